"""Partitions of many topics as a value: one number for each topic, whose bits are its partitions.

A member of a small group has hundreds of partitions, and every step compares and lists such sets. With bits that takes
a few operations on numbers, and a partition takes a bit instead of the hundred bytes of a set's entry. The price: a
share is as long as its largest partition number. Code that makes a share of numbers from outside checks first that such
partitions can exist.
"""

import uuid
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress

from cordwood.model.identifiers import TopicId


class Share:
    """An immutable share. It has no topic without partitions, so equal shares have equal masks.

    A member's current assignment, its target and its history are mostly one object: compare identities first.
    """

    __slots__ = ("masks",)

    def __init__(self, masks: dict[int, int]) -> None:
        """`masks` has a mask by topic id, as a number, which is quicker to look up than the id. No mask is 0."""
        self.masks = masks

    def __and__(self, other: "Share") -> "Share":
        if self is other:
            return self
        few, many = self.masks, other.masks
        if len(few) > len(many):
            few, many = many, few
        found = {}
        for topic, mask in few.items():
            if topic in many and (both := mask & many[topic]):
                found[topic] = both
        return Share(found) if found else NOTHING

    def __or__(self, other: "Share") -> "Share":
        if not other.masks:
            return self
        return union((self, other)) if self.masks else other

    def __sub__(self, other: "Share") -> "Share":
        """Removes partitions. Returns the same object if none of them was there, so that equal shares stay one
        object."""
        if self is other:
            return NOTHING
        others = other.masks
        if not others or not self.masks:
            return self
        left, changed = {}, False
        for topic, mask in self.masks.items():
            if topic in others and (both := mask & others[topic]):
                changed = True
                if both != mask:
                    left[topic] = mask ^ both
            else:
                left[topic] = mask
        return Share(left) if changed else self

    def isdisjoint(self, other: "Share") -> bool:
        return not self & other

    def __le__(self, other: "Share") -> bool:
        get = other.masks.get
        return all(mask & get(topic, 0) == mask for topic, mask in self.masks.items())

    def __lt__(self, other: "Share") -> bool:
        return self <= other and self != other

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Share) and self.masks == other.masks)

    def __hash__(self) -> int:
        return hash(frozenset(self.masks.items()))

    def __bool__(self) -> bool:
        return bool(self.masks)

    def __len__(self) -> int:
        return sum(map(int.bit_count, self.masks.values()))

    def __repr__(self) -> str:
        return f"Share({', '.join(f'{topic_id}: {numbers}' for topic_id, numbers in by_topic_id(self))})"


NOTHING = Share({})


def share_of(partitions: Iterable[tuple[TopicId, int]]) -> Share:
    masks: dict[int, int] = {}
    for topic_id, number in partitions:
        topic = topic_id.int
        masks[topic] = masks.get(topic, 0) | 1 << number
    return Share(masks)


def partitions_in(topic_id: TopicId, numbers: Sequence[int]) -> Share:
    return Share({topic_id.int: mask_of(numbers)}) if numbers else NOTHING


def union(shares: Iterable[Share]) -> Share:
    masks: dict[int, int] = {}
    for share in shares:
        for topic, mask in share.masks.items():
            masks[topic] = masks.get(topic, 0) | mask
    return Share(masks)


def by_topic_id(share: Share) -> list[tuple[TopicId, list[int]]]:
    """Topic ids with their partitions, sorted, as answers list them."""
    return [(_topic_id(topic), list(numbers_in(mask))) for topic, mask in sorted(share.masks.items())]


@lru_cache(maxsize=4096)
def _topic_id(number: int) -> TopicId:
    return uuid.UUID(int=number)


# One topic's partitions

FEW = 64
"""Up to this many bits, setting them one by one is quicker."""

SPARSE = 12
"""If fewer than one bit of this many is set, finding each set bit is quicker than testing all."""

_DIGITS_TO_FLAGS = bytes.maketrans(b"01", b"\0\1")


def run(start: int, end: int) -> int:
    """The mask of neighbouring partitions, without `end`."""
    return ((1 << end - start) - 1) << start


def mask_of(numbers: Sequence[int]) -> int:
    """The mask of these partitions, in any order, none negative."""
    count = len(numbers)
    if count == 1:
        return 1 << numbers[0]
    if count and numbers[-1] - numbers[0] == count - 1 and [*numbers] == [*range(numbers[0], numbers[-1] + 1)]:
        return run(numbers[0], numbers[-1] + 1)
    if count <= FEW:
        mask = 0
        for number in numbers:
            mask |= 1 << number
        return mask
    last = max(numbers)
    digits = bytearray(b"0") * (last + 1)
    for number in numbers:
        digits[last - number] = ord("1")
    return int(digits, 2)


def numbers_in(mask: int) -> Sequence[int]:
    """The partitions of a mask, sorted. Most members have neighbours only."""
    end, count = mask.bit_length(), mask.bit_count()
    if mask == (1 << count) - 1 << end - count:
        return range(end - count, end)
    if count * SPARSE < end:
        found = []
        while mask:
            number = mask.bit_length() - 1
            found.append(number)
            mask ^= 1 << number
        return found[::-1]
    return list(compress(range(end), bin(mask)[:1:-1].encode().translate(_DIGITS_TO_FLAGS)))
