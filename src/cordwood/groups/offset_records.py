"""The records of committed positions in __consumer_offsets, in Apache Kafka's own format.

Key: record type 1, group, topic, partition. Value: version 4, whose tagged field says which topic of that name the
position is in (0 to 4 are read; before 4 nobody knows). A position that an old client gave a time to live is version 1,
the only one that has a place for it. A null value removes the position.
"""

import struct
import uuid
from typing import NamedTuple

from cordwood.groups.record_fields import FieldReader, UnreadableRecord, compact_string, one_tag, string
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

OFFSET_COMMIT_KEY_TYPES = (0, 1)
"""Type 0 is how Kafka wrote the same key before 0.9; the layouts are equal."""

EXPIRING_VERSION = 1
FLEXIBLE_FROM_VERSION = 4
TOPIC_ID_TAG = 0


class PositionKey(NamedTuple):
    group: str
    partition: TopicPartition


class Position(NamedTuple):
    """Where a group's reader of one partition goes on."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """From then on it is forgotten; -1: as the broker's settings and the group's members have it."""
    topic_id: TopicId = ZERO_TOPIC_ID
    """Of the topic that it is in; zero in records of earlier versions, which do not say."""


def encode_key(key: PositionKey) -> bytes:
    topic, partition = key.partition
    return struct.pack(">h", 1) + string(key.group) + string(topic) + struct.pack(">i", partition)


def encode_value(position: Position) -> bytes:
    if position.expire_timestamp_ms >= 0:
        return (
            struct.pack(">hq", EXPIRING_VERSION, position.offset)
            + string(position.metadata)
            + struct.pack(">qq", position.commit_timestamp_ms, position.expire_timestamp_ms)
        )
    return (
        struct.pack(">hqi", FLEXIBLE_FROM_VERSION, position.offset, position.leader_epoch)
        + compact_string(position.metadata)
        + struct.pack(">q", position.commit_timestamp_ms)
        + (b"\0" if position.topic_id == ZERO_TOPIC_ID else one_tag(position.topic_id.bytes))
    )


def record_type(key: bytes) -> int:
    if len(key) < 2:
        raise UnreadableRecord(f"a key of {len(key)} bytes has no record type")
    return int(struct.unpack_from(">h", key)[0])


def decode_key(key: bytes) -> PositionKey:
    fields = FieldReader(key)
    kind = fields.int16()
    if kind not in OFFSET_COMMIT_KEY_TYPES:
        raise UnreadableRecord(f"record type {kind} is not a committed position")
    return PositionKey(fields.string(), TopicPartition(fields.string(), fields.int32()))


def decode_value(value: bytes) -> Position:
    fields = FieldReader(value)
    version = fields.int16()
    if not 0 <= version <= FLEXIBLE_FROM_VERSION:
        raise UnreadableRecord(f"version {version} of a position's value is not known")
    fields.flexible = version >= FLEXIBLE_FROM_VERSION
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else -1
    metadata = fields.string()
    committed_ms = fields.int64()
    expires_ms = fields.int64() if version == EXPIRING_VERSION else -1
    raw_id = fields.tagged().get(TOPIC_ID_TAG) if fields.flexible else None
    if raw_id is not None and len(raw_id) != 16:
        raise UnreadableRecord(f"a topic's id has {len(raw_id)} bytes")
    topic_id = ZERO_TOPIC_ID if raw_id is None else uuid.UUID(bytes=raw_id)
    return Position(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)
