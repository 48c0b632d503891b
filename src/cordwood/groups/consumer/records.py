"""The records of a consumer-protocol group in __consumer_offsets, in Apache Kafka's own formats.

Types: 3 the group's epoch, 5 a member, 6 the epoch of the target assignment, 7 a member's target, 8 what a member has
now, 16 the topics that a regular expression matches. Values are version 0, which is flexible. A null value removes.

One tagged field of type 3 is ours, because Kafka passes over tags that it does not know: when the last member went.
"""

import struct
import sys
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from cordwood.groups.consumer.shares import Share, by_topic_id, partitions_in
from cordwood.groups.record_fields import (
    FieldReader,
    UnreadableRecord,
    compact_string,
    one_tag,
    string,
    two_tags,
    uvarint,
)
from cordwood.records.written import Written

GROUP_TYPE = 3
MEMBER_TYPE = 5
TARGET_EPOCH_TYPE = 6
TARGET_TYPE = 7
CURRENT_TYPE = 8
EXPRESSION_TYPE = 16
CONSUMER_GROUP_KEY_TYPES = (GROUP_TYPE, MEMBER_TYPE, TARGET_EPOCH_TYPE, TARGET_TYPE, CURRENT_TYPE, EXPRESSION_TYPE)
_TYPES_WITH_SUBJECT = (MEMBER_TYPE, TARGET_TYPE, CURRENT_TYPE, EXPRESSION_TYPE)
_METADATA_HASH, _EMPTIED_MS = 0, 10_000


class MemberState:
    """As Kafka numbers them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int
    emptied_ms: int = -1
    """When its last member went; -1 while it has some, and where the record does not say."""


class Profile(NamedTuple):
    """What a member said of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    rebalance_timeout_ms: int
    assignor: str | None
    expression: str | None = None
    """It also reads every topic that this regular expression matches."""


class Current(NamedTuple):
    """What a member has, and how far it is on its way to its target."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Share
    revoking: Share
    since: Mapping[int, int]
    """The epoch in which the member got each of these partitions: its positions there count from then on."""


class Resolution(NamedTuple):
    """The topics that a regular expression matched, in which version of the metadata, and when that was worked out."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class RecordKey(NamedTuple):
    type: int
    group_id: str
    subject: str
    """A member's id, or a regular expression; empty where the record is about the whole group."""


def encode_consumer_key(kind: int, group_id: str, subject: str = "") -> bytes:
    key = struct.pack(">h", kind) + string(group_id)
    if kind in _TYPES_WITH_SUBJECT:
        return Written(key + string(subject), RecordKey(kind, group_id, subject))
    return Written(key, RecordKey(kind, group_id, ""))


def decode_consumer_key(key: bytes) -> RecordKey:
    if isinstance(key, Written) and isinstance(key.says, RecordKey):
        return key.says
    fields = FieldReader(key)
    kind = fields.int16()
    return RecordKey(kind, fields.string(), fields.string() if kind in _TYPES_WITH_SUBJECT else "")


# Values


def encode_group_epoch(value: GroupEpoch) -> bytes:
    hashed = struct.pack(">q", value.metadata_hash)
    tags = (
        one_tag(hashed) if value.emptied_ms < 0 else two_tags(hashed, _EMPTIED_MS, struct.pack(">q", value.emptied_ms))
    )
    return struct.pack(">hi", 0, value.epoch) + tags


def decode_group_epoch(value: bytes) -> GroupEpoch:
    fields = _fields(value)
    epoch = fields.int32()
    tags = fields.tagged()
    hashed, emptied = tags.get(_METADATA_HASH), tags.get(_EMPTIED_MS)
    return GroupEpoch(
        epoch,
        0 if hashed is None else FieldReader(hashed).int64(),
        -1 if emptied is None else FieldReader(emptied).int64(),
    )


def encode_target_epoch(epoch: int) -> bytes:
    return struct.pack(">hi", 0, epoch) + b"\0"


def decode_target_epoch(value: bytes) -> int:
    return _fields(value).int32()


def encode_profile(profile: Profile) -> bytes:
    return b"".join(
        (
            struct.pack(">h", 0),
            compact_string(profile.instance_id),
            compact_string(profile.rack_id),
            compact_string(profile.client_id),
            compact_string(profile.client_host),
            uvarint(len(profile.topics) + 1),
            *(compact_string(topic) for topic in sorted(profile.topics)),
            compact_string(profile.expression),
            struct.pack(">i", profile.rebalance_timeout_ms),
            compact_string(profile.assignor),
            b"\0",
        )
    )


def decode_profile(value: bytes) -> Profile:
    fields = _fields(value)
    instance_id = fields.nullable_string()
    rack_id = fields.nullable_string()
    client_id = fields.string()
    client_host = fields.string()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    expression = fields.nullable_string() or None  # Kafka writes an empty one where there is none
    timeout_ms = fields.int32()
    assignor = fields.nullable_string()
    return Profile(instance_id, rack_id, client_id, client_host, topics, timeout_ms, assignor, expression)


def encode_target(share: Share) -> bytes:
    return Written(struct.pack(">h", 0) + _share(share) + b"\0", share)


def decode_target(value: bytes) -> Share:
    if isinstance(value, Written) and isinstance(value.says, frozenset):
        return value.says
    return frozenset(_read_epochs(_fields(value), 0))


def encode_current(current: Current) -> bytes:
    head = struct.pack(">hiib", 0, current.epoch, current.previous_epoch, current.state)
    value = head + _share(current.assigned, current.since) + _share(current.revoking, current.since) + b"\0"
    if len(current.since) > len(current.assigned) + len(current.revoking):
        return value  # it does not say all of this
    return Written(value, current)


def decode_current(value: bytes) -> Current:
    if isinstance(value, Written) and isinstance(value.says, Current):
        return value.says
    fields = _fields(value)
    epoch, previous_epoch, state = fields.int32(), fields.int32(), fields.int8()
    assigned = _read_epochs(fields, epoch)
    revoking = _read_epochs(fields, epoch)
    return Current(epoch, previous_epoch, state, frozenset(assigned), frozenset(revoking), {**revoking, **assigned})


def encode_resolution(resolution: Resolution) -> bytes:
    topics = sorted(resolution.topics)
    return b"".join(
        (
            struct.pack(">h", 0),
            uvarint(len(topics) + 1),
            *(compact_string(topic) for topic in topics),
            struct.pack(">qq", resolution.version, resolution.timestamp_ms),
            b"\0",
        )
    )


def decode_resolution(value: bytes) -> Resolution:
    fields = _fields(value)
    # Many expressions may match the same topics: their names are kept once.
    topics = frozenset(sys.intern(fields.string()) for _ in range(fields.count()))
    return Resolution(topics, fields.int64(), fields.int64())


def _fields(value: bytes) -> FieldReader:
    fields = FieldReader(value)
    version = fields.int16()
    if version != 0:
        raise UnreadableRecord(f"version {version} of a consumer group's record is not known")
    fields.flexible = True
    return fields


def _share(share: Share, since: Mapping[int, int] | None = None) -> bytes:
    topics = by_topic_id(share)
    parts = [uvarint(len(topics) + 1)]
    for topic_id, numbers in topics:
        count = len(numbers)
        parts += (topic_id.bytes, uvarint(count + 1), struct.pack(f">{count}i", *numbers))
        if since is None:
            parts.append(b"\0")
        else:
            epochs = [since[partition] for partition in partitions_in(topic_id, numbers)]
            parts.append(one_tag(uvarint(count + 1) + struct.pack(f">{count}i", *epochs)))
    return b"".join(parts)


def _read_epochs(fields: FieldReader, epoch: int) -> dict[int, int]:
    """Partitions, and the epochs in which they were assigned; this one where the record does not say."""
    found: dict[int, int] = {}
    for _ in range(fields.count()):
        topic_id = uuid.UUID(bytes=fields.raw(16))
        partitions = partitions_in(topic_id, [fields.int32() for _ in range(fields.count())])
        raw = fields.tagged().get(0)
        epochs = [epoch] * len(partitions)
        if raw is not None:
            told = FieldReader(raw, flexible=True)
            epochs = [told.int32() for _ in range(told.count())] or epochs
        if len(epochs) != len(partitions):
            raise UnreadableRecord(f"{len(epochs)} epochs for {len(partitions)} partitions")
        found.update(zip(partitions, epochs, strict=True))
    return found
