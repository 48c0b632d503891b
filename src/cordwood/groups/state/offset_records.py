"""The records of committed positions in __consumer_offsets, in Apache Kafka's own format.

Key: record type 1, group, topic, partition. Value: version 4, whose tagged field names the id of the position's topic.
Versions 0 to 4 are read; those before 4 have no topic id. A position with a time to live, from an old client, is
written as version 1, the only version with a field for it. A null value removes the position.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from cordwood.groups.state.record_fields import FieldReader, UnreadableRecord, compact_string, string
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from cordwood.records.written import Written

OFFSET_COMMIT_KEY_TYPES = (0, 1)
"""Kafka before 0.9 wrote the same key as type 0; the layouts are equal."""

EXPIRING_VERSION = 1
FLEXIBLE_FROM_VERSION = 4
TOPIC_ID_TAG = 0

_NO_NOTE = b"\1"
_NO_TAGS = b"\0"
_TOPIC_ID_FOLLOWS = b"\1\0\x10"
"""One tagged field, number 0, of 16 bytes."""
_TYPE_1 = struct.pack(">h", 1)
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_FLEXIBLE_HEAD = struct.Struct(">hqi")
"""Version, offset, leader epoch."""


class PositionKey(NamedTuple):
    group: str
    partition: TopicPartition


class Position(NamedTuple):
    """The position of a group in one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When the position expires; -1: by the broker's settings and the group's members."""
    topic_id: TopicId = ZERO_TOPIC_ID
    """The id of the position's topic; zero in records of earlier versions."""


@lru_cache(maxsize=4096)
def encode_key(group: str, partition: TopicPartition) -> bytes:
    """The key of a position. Some keys are cached, because a reader commits the same positions again and again."""
    topic, index = partition
    return Written(_TYPE_1 + string(group) + string(topic) + _INT32.pack(index), PositionKey(group, partition))


def key_prefixes(group: str) -> tuple[bytes, ...]:
    """The first bytes of every key of a position of this group, and of no other key."""
    return tuple(struct.pack(">h", kind) + string(group) for kind in OFFSET_COMMIT_KEY_TYPES)


def encode_value(position: Position) -> bytes:
    if position.expire_timestamp_ms >= 0:
        # Version 1 has no field for the epoch and the topic's id.
        return (
            struct.pack(">hq", EXPIRING_VERSION, position.offset)
            + string(position.metadata)
            + struct.pack(">qq", position.commit_timestamp_ms, position.expire_timestamp_ms)
        )
    head = _FLEXIBLE_HEAD.pack(FLEXIBLE_FROM_VERSION, position.offset, position.leader_epoch)
    note = compact_string(position.metadata) if position.metadata else _NO_NOTE
    end = _INT64.pack(position.commit_timestamp_ms) + _tags(position.topic_id.int)
    return Written(head + note + end, position)


@lru_cache(maxsize=1024)
def _tags(topic_id: int) -> bytes:
    """The tagged field of a topic id, given as a number, which is quicker to look up."""
    return _TOPIC_ID_FOLLOWS + topic_id.to_bytes(16) if topic_id else _NO_TAGS


def record_type(key: bytes) -> int:
    if len(key) < 2:
        raise UnreadableRecord(f"a key of {len(key)} bytes has no record type")
    return key[0] << 8 | key[1]


def decode_key(key: bytes) -> PositionKey:
    if type(key) is Written and type(key.says) is PositionKey:
        return key.says
    kind = record_type(key)
    if kind not in OFFSET_COMMIT_KEY_TYPES:
        raise UnreadableRecord(f"record type {kind} is not a committed position")
    try:
        topic_at = 4 + (key[2] << 8 | key[3])
        partition_at = topic_at + 2 + (key[topic_at] << 8 | key[topic_at + 1])
        (partition,) = _INT32.unpack_from(key, partition_at)
        return PositionKey(
            key[4:topic_at].decode(), TopicPartition(key[topic_at + 2 : partition_at].decode(), partition)
        )
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"a position's key is cut short or garbled: {error}") from None


def decode_value(value: bytes) -> Position:
    if type(value) is Written and type(value.says) is Position:
        return value.says
    # The fast path for nearly all values, because a coordinator reads millions at its start: version 4, metadata of
    # less than 127 bytes, and the topic's id as the only tagged field.
    if len(value) >= 42 and value[1] == FLEXIBLE_FROM_VERSION and value[14] == len(value) - 41:
        tags_at = 22 + value[14]
        if value[tags_at : tags_at + 3] == _TOPIC_ID_FOLLOWS and not value[0] and 0 < value[14] < 0x80:
            _, offset, leader_epoch = _FLEXIBLE_HEAD.unpack_from(value)
            (committed_ms,) = _INT64.unpack_from(value, tags_at - 8)
            try:
                metadata = value[15 : tags_at - 8].decode()
            except UnicodeDecodeError as error:
                raise UnreadableRecord(f"a position's metadata is garbled: {error}") from None
            return Position(offset, leader_epoch, metadata, committed_ms, -1, _topic_id(value[tags_at + 3 :]))
    return _decode_any_value(value)


def _decode_any_value(value: bytes) -> Position:
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
    topic_id = ZERO_TOPIC_ID if raw_id is None else _topic_id(raw_id)
    return Position(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)


@lru_cache(maxsize=10_000)
def _topic_id(raw: bytes) -> TopicId:
    """The topic id; positions in one topic share one object."""
    return TopicId(bytes=raw)
