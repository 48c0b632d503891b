"""The header of a record batch (magic 2): reads its fields, and sets those that a broker may set.

A batch is opaque bytes to the broker: its cost in Python is per batch, not per record. Big-endian throughout;
the layout is Apache Kafka's, byte for byte (docs/formats.md).
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from cordwood.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes up to and including the length field, which counts the bytes behind it."""

MAGIC = 2
CRC_POSITION = 17
CRC_START = 21
"""The CRC covers all bytes from here on: base offset and leader epoch can be set without a new CRC."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
assert _HEADER.size == HEADER_SIZE

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

MAX_SEQUENCE = 2**31 - 1
"""After this sequence number comes 0."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The fields of a batch header, in file order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the tombstones in this batch; None if it is not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at this position. The caller knows that 61 bytes are there; nothing is checked."""
    # BatchHeader._make without its count of fields: this runs for every batch.
    return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))


def is_later(sequence: int, other: int) -> bool:
    """Whether a producer gives this sequence number after the other one. Numbers go round."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


def read_offset_and_size(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Base offset and total size of the batch at this position, for stepping from batch to batch. Checks nothing."""
    base_offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
    return base_offset, length + LOG_OVERHEAD


def batches_in(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch in the buffer; ends at the first incomplete batch."""
    position, end = 0, len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > end:
            return
        yield position, header
        position += header.size


def crc_is_right(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the CRC of the batch at this position matches its bytes."""
    view = memoryview(buffer)
    (stored,) = _CRC.unpack_from(view, position + CRC_POSITION)
    return bool(crc32c(view[position + CRC_START : position + size]) == stored)


def assign_offset(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes the batch's offset and leader epoch into its buffer. The CRC does not cover these fields."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, 12, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, wall_ms: int) -> None:
    """Makes every record of the batch read as appended now (LogAppendTime), and renews the CRC."""
    view = memoryview(batch)
    (attributes,) = struct.unpack_from(">h", view, 21)
    struct.pack_into(">h", view, 21, attributes | TIMESTAMP_TYPE_BIT)
    struct.pack_into(">q", view, 35, wall_ms)
    _CRC.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]))
