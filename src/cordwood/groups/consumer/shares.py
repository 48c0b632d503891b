"""Partitions of many topics as sets of numbers: the topic's id and, in the last 32 bits, the partition's number.

A member of a small group has hundreds of them, and every step of it compares such sets. A pair of an id and a number
would be hashed in Python each time, which was most of what a rebalance took. Sorted numbers are sorted by topic id and
partition.
"""

import uuid
from collections.abc import Iterable
from functools import lru_cache

from cordwood.model.identifiers import TopicId

Share = frozenset[int]

NOTHING: Share = frozenset()

_NUMBER_BITS = 32
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1


def partition_in(topic_id: TopicId, number: int) -> int:
    """Peers may send any number of 32 bits: a negative one is no partition of ours, and harmless."""
    return topic_id.int << _NUMBER_BITS | number & _NUMBER_MASK


def partitions_in(topic_id: TopicId, numbers: Iterable[int]) -> list[int]:
    start = topic_id.int << _NUMBER_BITS
    return [start | number & _NUMBER_MASK for number in numbers]


def topic_number(partition: int) -> int:
    """The topic's id as a number: quicker to look up than the id."""
    return partition >> _NUMBER_BITS


def number_of(partition: int) -> int:
    return partition & _NUMBER_MASK


def by_topic_id(share: Iterable[int]) -> list[tuple[TopicId, list[int]]]:
    """Sorted, as answers and records list them."""
    topics: dict[int, list[int]] = {}
    for partition in sorted(share):
        topics.setdefault(partition >> _NUMBER_BITS, []).append(partition & _NUMBER_MASK)
    return [(_topic_id(topic), numbers) for topic, numbers in topics.items()]


@lru_cache(maxsize=4096)
def _topic_id(number: int) -> TopicId:
    return uuid.UUID(int=number)
