"""The records of committed positions in __consumer_offsets, in Apache Kafka's own format.

Key: record type 1, group, topic, partition. Value: version 3 (0 to 4 are read). A null value removes the position.
"""

import struct
from typing import NamedTuple

from cordwood.model.identifiers import TopicPartition

OFFSET_COMMIT_KEY_TYPES = (0, 1)
"""Type 0 is how Kafka wrote the same key before 0.9; the layouts are equal."""

_VALUE_VERSION = 3


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


class UnreadableRecord(ValueError):
    """A record that no version of this format explains."""


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def encode_key(key: PositionKey) -> bytes:
    topic, partition = key.partition
    return struct.pack(">h", 1) + _string(key.group) + _string(topic) + struct.pack(">i", partition)


def encode_value(position: Position) -> bytes:
    return (
        struct.pack(">hqi", _VALUE_VERSION, position.offset, position.leader_epoch)
        + _string(position.metadata)
        + struct.pack(">q", position.commit_timestamp_ms)
    )


def record_type(key: bytes) -> int:
    if len(key) < 2:
        raise UnreadableRecord(f"a key of {len(key)} bytes has no record type")
    return int(struct.unpack_from(">h", key)[0])


def decode_key(key: bytes) -> PositionKey:
    if record_type(key) not in OFFSET_COMMIT_KEY_TYPES:
        raise UnreadableRecord(f"record type {record_type(key)} is not a committed position")
    try:
        group, at = _read_string(key, 2)
        topic, at = _read_string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"a position's key is cut short or garbled: {error}") from None
    return PositionKey(group, TopicPartition(topic, partition))


def decode_value(value: bytes) -> Position:
    try:
        (version,) = struct.unpack_from(">h", value)
        (offset,) = struct.unpack_from(">q", value, 2)
        at, leader_epoch, expires = 10, -1, -1
        if version >= 3:
            (leader_epoch,) = struct.unpack_from(">i", value, at)
            at += 4
        metadata, at = _read_compact_string(value, at) if version >= 4 else _read_string(value, at)
        (committed,) = struct.unpack_from(">q", value, at)
        if version == 1:
            (expires,) = struct.unpack_from(">q", value, at + 8)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise UnreadableRecord(f"a position's value is cut short or garbled: {error}") from None
    if not 0 <= version <= 4:
        raise UnreadableRecord(f"version {version} of a position's value is not known")
    return Position(offset, leader_epoch, metadata, committed, expires)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    at += 2
    if length < 0 or at + length > len(data):
        raise UnreadableRecord(f"a string of {length} bytes does not fit at {at} in {len(data)}")
    return data[at : at + length].decode(), at + length


def _read_compact_string(data: bytes, at: int) -> tuple[str, int]:
    length, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    length -= 1
    if length < 0 or at + length > len(data):
        raise UnreadableRecord(f"a string of {length} bytes does not fit at {at} in {len(data)}")
    return data[at : at + length].decode(), at + length
