"""Reads the records of one batch, one after the other.

A Python object per record is slow by nature: the broker's append and fetch paths never come here. Compaction, checks on
compacted topics, `inspect`, the in-process API and tests do. Callers that do not need headers leave them packed: one
record of a small batch can have millions.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from cordwood.records.batch import CODEC_MASK, HEADER_SIZE, MAGIC, TIMESTAMP_TYPE_BIT, Buffer, read_header
from cordwood.records.compression import decompress
from cordwood.records.corruption import CorruptRecords as CorruptRecords
from cordwood.records.corruption import TooMuchToOpen

Headers = tuple[tuple[str, bytes | None], ...]

MAX_UNCOMPRESSED_BYTES = 128 * 1024 * 1024
"""The records of one batch may be this large once uncompressed, however small the batch is."""

LEAST_RECORD_BYTES = 7
"""A record without key, value and headers: its length, attributes, two deltas, two lengths and a count, a byte each."""

MAX_RECORDS_PER_COMPRESSED_BYTE = 8
"""A batch that claims more records than this is damaged or hostile.

Neighbouring records differ at least in their offsets, which takes a codec a bit per record. The densest batches of
empty records that zstd writes, at any level, have 1.7 records in a byte, gzip's 0.75, lz4's and snappy's 0.25.
"""


class Record(NamedTuple):
    """One record. A header's name that is not UTF-8 has its odd bytes as surrogates, so that nothing is lost.

    The timestamp is the sum of two numbers that the producer chose: in a hostile batch it may take more than 64 bits.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class PackedHeaders(bytes):
    """A record's headers as its bytes have them, their number first; empty if there are none.

    Only the number was read, and checked against the bytes.
    """


class PackedRecord(NamedTuple):
    """A record as Record has it, but for its headers."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: PackedHeaders


_AnyRecord = TypeVar("_AnyRecord", Record, PackedRecord)


def uncompressed_records(batch: Buffer, max_size: int | None = None) -> bytes:
    """The records section of a batch as it was before compression; CorruptRecords if that cannot be had."""
    size = len(batch)
    if size < HEADER_SIZE:
        raise CorruptRecords(f"{size} bytes are too few for a batch")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise CorruptRecords(f"magic {header.magic} is not supported")
    if not HEADER_SIZE <= header.size <= size:
        raise CorruptRecords(f"the batch claims {header.size} bytes, {size} are there")
    if header.record_count < 0:
        raise CorruptRecords(f"the batch claims {header.record_count} records")
    codec = header.attributes & CODEC_MASK
    section = memoryview(batch)[HEADER_SIZE : header.size]
    if not codec:
        return bytes(section)
    if max_size is None:
        max_size = max(MAX_UNCOMPRESSED_BYTES, 4 * size)
    return decompress(codec, section, max_size) if header.record_count else b""


def records_in(batch: Buffer, max_size: int | None = None) -> Iterator[Record]:
    """The records of one batch in order. CorruptRecords where the bytes are not as many whole records as they claim."""
    return _walk(batch, max_size, Record, _headers, ())


def packed_records_in(
    batch: Buffer, max_size: int | None = None, *, uncompressed: bytes | None = None
) -> Iterator[PackedRecord]:
    """As records_in, without reading headers: these may be malformed, and cost nothing.

    `uncompressed`: the records section, for a caller that has it.
    """
    return _walk(batch, max_size, PackedRecord, _packed_headers, PackedHeaders(), uncompressed)


def max_record_count(section_bytes: int, codec: int) -> int:
    """The most records in a records section of so many bytes."""
    if codec:
        return section_bytes * MAX_RECORDS_PER_COMPRESSED_BYTE
    return section_bytes // LEAST_RECORD_BYTES


def count_headers(packed: PackedHeaders, max_count: int) -> int:
    """The number of headers. Raises CorruptRecords if they are malformed, TooMuchToOpen beyond max_count."""
    if not packed:
        return 0
    end = len(packed)
    count, position = _header_count(packed, 0, end)
    if count > max_count:
        raise TooMuchToOpen("it has more headers than are opened for one batch")
    try:
        for _ in range(count):
            number = packed[position]
            position += 1
            if number > 0x7F:
                number, position = _long_varint(packed, position, number)
            if number & 1:
                raise CorruptRecords("a header has no name")
            position += number >> 1
            number = packed[position]
            position += 1
            if number > 0x7F:
                number, position = _long_varint(packed, position, number)
            if not number & 1:
                position += number >> 1
            elif number != 1:
                raise CorruptRecords("a header's value has a negative length")
    except IndexError:
        position = end + 1
    if position > end:
        raise CorruptRecords("a header reaches beyond its record")
    if position != end:
        raise CorruptRecords(f"a record's headers end {end - position} bytes before it")
    return count


def _walk(
    batch: Buffer,
    max_size: int | None,
    record_type: type[_AnyRecord],
    read_headers: Callable[[bytes, int, int], tuple[object, int]],
    no_headers: object,
    uncompressed: bytes | None = None,
) -> Iterator[_AnyRecord]:
    """The records of one batch, each with its headers as read_headers(data, position, record_end) has them.

    Every length is checked against its record's end, so mutated bytes cost no more than reading them once. Numbers of
    one byte, and of two where they are usual, are read in place: a call for each would cost more than all the rest.
    """
    data = uncompressed_records(batch, max_size) if uncompressed is None else uncompressed
    header = read_header(batch)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    last_number = header.last_offset_delta << 1  # zigzag, as in a varint
    offset_number = -1
    new = tuple.__new__
    position, end = 0, len(data)
    try:
        for _ in range(header.record_count):
            number = data[position]
            position += 1
            if number > 0x7F:
                byte = data[position]
                if byte > 0x7F:
                    number, position = _long_varint(data, position, number)
                else:
                    number += (byte << 7) - 0x80
                    position += 1
            record_end = position + (number >> 1)
            if number & 1 or record_end > end:
                raise CorruptRecords(f"a record ends at {record_end} of {end} bytes")
            number = data[position + 1]  # the byte before it: attributes, unused
            position += 2
            if number > 0x7F:
                number, position = _long_varint(data, position, number)
            timestamp = base_timestamp + ((number >> 1) ^ -(number & 1)) if append_time is None else append_time

            number = data[position]
            position += 1
            if number > 0x7F:
                byte = data[position]
                if byte > 0x7F:
                    number, position = _long_varint(data, position, number)
                else:
                    number += (byte << 7) - 0x80
                    position += 1
            if number & 1 or number > last_number:
                raise CorruptRecords("a record's offset is not within its batch")
            if number <= offset_number:
                # Equal records compress a thousandfold: a small batch would be millions of records.
                raise CorruptRecords("the offsets within it do not rise")
            offset_number = number
            offset = base_offset + (number >> 1)

            number = data[position]
            position += 1
            if number > 0x7F:
                number, position = _long_varint(data, position, number)
            if number & 1:
                if number != 1:
                    raise CorruptRecords("a key has a negative length")
                key = None
            else:
                start, position = position, position + (number >> 1)
                key = data[start:position]

            number = data[position]
            position += 1
            if number > 0x7F:
                byte = data[position]
                if byte > 0x7F:
                    number, position = _long_varint(data, position, number)
                else:
                    number += (byte << 7) - 0x80
                    position += 1
            if number & 1:
                if number != 1:
                    raise CorruptRecords("a value has a negative length")
                value = None
            else:
                start, position = position, position + (number >> 1)
                value = data[start:position]

            if data[position]:
                headers, position = read_headers(data, position, record_end)
            else:
                headers, position = no_headers, position + 1
            if position != record_end:
                raise CorruptRecords(f"a record's fields end at {position}, the record at {record_end}")
            yield new(record_type, (offset, timestamp, key, value, headers))
    except IndexError:
        raise CorruptRecords(f"the records are cut short at {end} bytes") from None
    if position != end:
        raise CorruptRecords(f"{end - position} bytes are left after the last record")


def _header_count(data: bytes, position: int, record_end: int) -> tuple[int, int]:
    count = data[position]
    position += 1
    if count > 0x7F:
        count, position = _long_varint(data, position, count)
    if count & 1 or count >> 1 > record_end - position:
        raise CorruptRecords("a record claims more headers than fit")
    return count >> 1, position


def _packed_headers(data: bytes, position: int, record_end: int) -> tuple[PackedHeaders, int]:
    _header_count(data, position, record_end)
    return PackedHeaders(data[position:record_end]), record_end


def _headers(data: bytes, position: int, record_end: int) -> tuple[Headers, int]:
    count, position = _header_count(data, position, record_end)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number = data[position]
        position += 1
        if number > 0x7F:
            number, position = _long_varint(data, position, number)
        if number & 1:
            raise CorruptRecords("a header has no name")
        start, position = position, position + (number >> 1)
        name = data[start:position].decode("utf-8", "surrogateescape")
        number = data[position]
        position += 1
        if number > 0x7F:
            number, position = _long_varint(data, position, number)
        if number & 1:
            if number != 1:
                raise CorruptRecords("a header's value has a negative length")
            headers.append((name, None))
        else:
            start, position = position, position + (number >> 1)
            headers.append((name, data[start:position]))
        if position > record_end:
            raise CorruptRecords("a header reaches beyond its record")
    return tuple(headers), position


def _long_varint(data: bytes, position: int, first: int) -> tuple[int, int]:
    """A number of several bytes (zigzag not undone), and the position after it; `position` is its second byte's."""
    byte = data[position]
    position += 1
    result = (first & 0x7F) | (byte & 0x7F) << 7
    shift = 14
    while byte > 0x7F:
        if shift > 63:
            raise CorruptRecords("a number is longer than 64 bits")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
    if result >> 64:
        raise CorruptRecords("a number is longer than 64 bits")
    return result, position


_LATEST_MS = 2**63 - 1


class FoundInBatch(NamedTuple):
    """Offset and time of the record; -1 for both if there is none."""

    offset: int
    timestamp_ms: int
    uncompressed_bytes: int
    """The bytes that were opened for the search."""


def first_as_late(batch: Buffer, timestamp_ms: int, start_offset: int, max_size: int | None = None) -> FoundInBatch:
    """Looks at the batch's records from `start_offset` on, one by one. CorruptRecords if they cannot be read."""
    uncompressed = uncompressed_records(batch, max_size)
    for record in packed_records_in(batch, uncompressed=uncompressed):
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            if record.timestamp_ms > _LATEST_MS:
                raise CorruptRecords(f"a record has the time {record.timestamp_ms}")
            return FoundInBatch(record.offset, record.timestamp_ms, len(uncompressed))
    return FoundInBatch(-1, -1, len(uncompressed))
