"""Subscriptions and assignments, the bytes that consumers exchange through the broker.

In a classic group these bytes belong to the clients, and the broker reads only the topics of a subscription. If members
of both protocols share a group, the broker assigns partitions, so it decodes and encodes subscriptions and assignments
completely.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cordwood.groups.state.record_fields import FieldReader, UnreadableRecord, string

NamedPartitions = tuple[tuple[str, Sequence[int]], ...]
"""Partition numbers by the topic's name."""

_OWNED_FROM_VERSION, _GENERATION_FROM_VERSION, _RACK_FROM_VERSION = 1, 2, 3


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned: NamedPartitions
    """The partitions that the member owns and has not given up for the round."""
    rack_id: str | None


class Assignment(NamedTuple):
    partitions: NamedPartitions
    has_user_data: bool
    """True if the client's own assignor added data to the partitions."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription; None for other bytes."""
    try:
        fields = FieldReader(metadata)
        _version(fields)
        return _topics(fields)
    except UnreadableRecord:
        return None


def same_subscription(before: bytes, after: bytes) -> bool:
    """True if two subscriptions name the same topics. Sticky assignors add data of their own that changes from round to
    round."""
    if before == after:
        return True
    topics = subscribed_topics(before)
    return topics is not None and topics == subscribed_topics(after)


def read_subscription(metadata: bytes) -> Subscription:
    """Decodes a whole ConsumerProtocolSubscription of any version. Raises UnreadableRecord."""
    fields = FieldReader(metadata)
    version = _version(fields)
    topics = _topics(fields)
    fields.octets()
    owned = _partitions(fields) if version >= _OWNED_FROM_VERSION else ()
    if version >= _GENERATION_FROM_VERSION:
        fields.int32()
    return Subscription(topics, owned, fields.nullable_string() if version >= _RACK_FROM_VERSION else None)


def read_assignment(assignment: bytes) -> Assignment:
    """Decodes a ConsumerProtocolAssignment of any version; no bytes mean no partitions. Raises UnreadableRecord."""
    if not assignment:
        return Assignment((), has_user_data=False)
    fields = FieldReader(assignment)
    _version(fields)
    partitions = _partitions(fields)
    return Assignment(partitions, has_user_data=bool(fields.octets()))


def write_assignment(partitions: Iterable[tuple[str, Sequence[int]]]) -> bytes:
    topics = [
        string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, numbers in partitions
    ]
    return struct.pack(">hi", 0, len(topics)) + b"".join(topics) + struct.pack(">i", -1)


def _version(fields: FieldReader) -> int:
    version = fields.int16()
    if version < 0:
        raise UnreadableRecord(f"there is no version {version}")
    return version


def _topics(fields: FieldReader) -> frozenset[str]:
    count = fields.int32()
    if count < 0:
        raise UnreadableRecord("the list of topics is null")
    return frozenset([fields.string() for _ in range(count)])


def _partitions(fields: FieldReader) -> NamedPartitions:
    return tuple([(fields.string(), fields.int32s()) for _ in range(fields.count())])
