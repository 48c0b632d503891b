"""Reads record batches in numba: finds the wanted batches of a buffer, and puts their records into columns.

The kernels trust no byte: each length is checked against the enclosing bytes before it is followed. A fault is returned
as a number of `FAULTS`, never raised, so that no state is left half done between numba and Python.
"""

from typing import TYPE_CHECKING

from cordwood.columnar.compiled import BYTES_IN, int64, kernel, part, types
from cordwood.columnar.memory import at, copy_bytes, crc32c_of, int16_at, int32_at, int64_at, memory

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Ints, Longs
    from cordwood.columnar.memory import Memory

# A batch in the table that `find_batches` fills, one row each.
POSITION, SIZE, BASE_OFFSET, LAST_DELTA, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT = range(8)
START, END, UNPACKED = range(8, 11)
"""The place of a batch's records: in the buffer itself or, UNPACKED, among the decompressed sections."""
FIELDS = 11

# The counts that `fill_columns` and `fill_headers` return.
ROWS, KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES, HEADERS, NAME_BYTES, HEADER_BYTES, NULL_HEADERS, FAULTY = range(
    10
)
TOLD = 10

NO_FAULT, FULL = 0, 17
CUT, BAD_SIZE, BAD_MAGIC, BAD_CHECKSUM, BACKWARDS, BAD_COUNT, BAD_CONTROL, LEFT_OVER = range(1, 9)
BAD_RECORD, BAD_NUMBER, BAD_DELTA, BAD_KEY, BAD_VALUE, BAD_HEADERS, BAD_HEADER, BAD_END = range(9, 17)
NOT_RISING = 18
FAULTS = {
    CUT: "the buffer ends within a batch",
    BAD_SIZE: "the batch claims a size that it cannot have",
    BAD_MAGIC: "the batch has a magic that is not supported",
    BAD_CHECKSUM: "the batch's checksum is wrong",
    BACKWARDS: "the batch's offsets are not behind those of the batch before",
    BAD_COUNT: "the batch claims a number of records that it cannot have",
    BAD_CONTROL: "a control batch has no type",
    LEFT_OVER: "bytes are left after the last record",
    BAD_RECORD: "a record reaches beyond its batch",
    BAD_NUMBER: "a number in a record is cut short or too long",
    BAD_DELTA: "a record's offset is not within its batch",
    NOT_RISING: "the offsets within the batch do not rise",
    BAD_KEY: "a key has a length that it cannot have",
    BAD_VALUE: "a value has a length that it cannot have",
    BAD_HEADERS: "a record claims more headers than fit",
    BAD_HEADER: "a header has a name or a value of a length that it cannot have",
    BAD_END: "a record's fields do not end where the record does",
}

_HEADER_SIZE, _LOG_OVERHEAD, _MAGIC, _CRC_START = 61, 12, 2, 21
_TIMESTAMP_TYPE_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT, _CODEC_MASK = 8, 16, 32, 7
_ABORT = 0
SMALLEST_RECORD = 7
_LARGEST = 0x7FFFFFFFFFFFFFFF
_LARGEST_MS = _LARGEST // 1000


@part
def _number(data: "Memory", position: int, end: int) -> tuple[int, int]:
    """The signed number (zigzag varint) at this position, and the position after it: -1 if it is not whole."""
    if position >= end:
        return int64(0), int64(-1)
    byte = at(data, position)
    position += 1
    bits = byte & 0x7F
    shift = int64(7)
    while byte > 0x7F:
        if position >= end or shift > 63:
            return int64(0), int64(-1)
        byte = at(data, position)
        position += 1
        if shift == 63 and byte > 1:
            return int64(0), int64(-1)
        bits |= (byte & 0x7F) << shift
        shift += 7
    return ((bits >> 1) & _LARGEST) ^ -(bits & 1), int64(position)


@part
def _control_type(data: "Memory", position: int, end: int) -> int:
    """The type of a control batch's record; -1 without a record. Unknown types are accepted."""
    size, position = _number(data, position, end)
    if position < 0 or size < 0 or size > end - position:
        return -1
    _, position = _number(data, position + 1, end)
    if position < 0:
        return -1
    _, position = _number(data, position, end)
    if position < 0:
        return -1
    size, position = _number(data, position, end)
    if position < 0 or size < 4 or size > end - position or int16_at(data, position) < 0:
        return -1
    return int16_at(data, position + 2) & 0xFFFF


@part
def _fault_in_header(data: "Memory", position: int, end: int) -> int:
    """The fault in the frame of the batch at this position."""
    if position + _HEADER_SIZE > end:
        return CUT
    size = int32_at(data, position + 8) + _LOG_OVERHEAD
    if size < _HEADER_SIZE:
        return BAD_SIZE
    if size > end - position:
        return CUT
    if at(data, position + 16) != _MAGIC:
        return BAD_MAGIC
    return NO_FAULT


@kernel(
    types.UniTuple(types.int64, 4)(
        BYTES_IN,
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.int64,
        types.int64,
        types.int64,
        types.boolean,
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def find_batches(
    wire: "Bytes",
    table: "Longs",
    unchecked: "Longs",
    checksum_limit: int,
    start_offset: int,
    end_offset: int,
    with_control: bool,
    aborted_producers: "Longs",
    aborted_from: "Longs",
    inside: "Longs",
) -> tuple[int, int, int, int]:
    """Fills the table with the batches that may hold wanted records; returns how many, how many are unchecked, and a
    fault and where it is. FULL is no fault: the tables want more rows.

    Batches beyond the limit, wanted or not, have their checksum left unchecked: position and size go to `unchecked`.
    Control batches are left out unless requested, and so are batches without records, batches before start_offset or
    from end_offset on, and batches of aborted transactions: from a transaction's first offset (the list is sorted by
    it) to its producer's next abort marker. `inside` is room for the producers with an open aborted transaction.
    """
    data = memory(wire)
    position, end, found = int64(0), int64(len(wire)), int64(0)
    known, active, large = int64(0), int64(0), int64(0)
    next_offset = int64(0)
    while position < end:
        if position + 8 <= end and int64_at(data, position) >= end_offset:
            break
        fault = _fault_in_header(data, position, end)
        if fault != NO_FAULT:
            return found, large, fault, position
        base_offset, size = int64_at(data, position), int32_at(data, position + 8) + _LOG_OVERHEAD
        if size > checksum_limit:
            if large == len(unchecked):
                return found, large, FULL, position
            unchecked[large, 0], unchecked[large, 1] = position, size
            large += 1
        elif crc32c_of(data, position + _CRC_START, position + size) != int32_at(data, position + 17) & 0xFFFFFFFF:
            return found, large, BAD_CHECKSUM, position
        attributes, last_delta = int16_at(data, position + 21), int32_at(data, position + 23)
        producer_id, count = int64_at(data, position + 43), int32_at(data, position + 57)
        if base_offset < next_offset or last_delta < 0 or base_offset > _LARGEST - 1 - last_delta:
            return found, large, BACKWARDS, position
        next_offset = base_offset + last_delta + 1
        codec = attributes & _CODEC_MASK
        if count < 0 or (codec == 0 and count * SMALLEST_RECORD > size - _HEADER_SIZE):
            return found, large, BAD_COUNT, position
        if codec == 0 and count == 0 and size != _HEADER_SIZE:
            return found, large, LEFT_OVER, position

        wanted = count > 0 and next_offset > start_offset and (with_control or attributes & _CONTROL_BIT == 0)
        # A batch that compaction has emptied ends no transaction, though it may have been a marker.
        if producer_id >= 0 and count > 0 and len(aborted_from) > 0:
            while known < len(aborted_from) and aborted_from[known] < next_offset:
                seen = False
                for place in range(active):
                    seen = seen or inside[place] == aborted_producers[known]
                if not seen:
                    inside[active] = aborted_producers[known]
                    active += 1
                known += 1
            if attributes & _CONTROL_BIT != 0:
                kind = int64(-1) if codec != 0 else _control_type(data, position + _HEADER_SIZE, position + size)
                if kind < 0:
                    return found, large, BAD_CONTROL, position
                if kind == _ABORT:
                    for place in range(active):
                        if inside[place] == producer_id:
                            active -= 1
                            inside[place] = inside[active]
                            break
            elif attributes & _TRANSACTIONAL_BIT != 0:
                for place in range(active):
                    wanted = wanted and inside[place] != producer_id
        if wanted:
            if found == len(table):
                return found, large, FULL, position
            table[found, POSITION], table[found, SIZE] = position, size
            table[found, BASE_OFFSET], table[found, LAST_DELTA] = base_offset, last_delta
            table[found, ATTRIBUTES], table[found, COUNT] = attributes, count
            table[found, BASE_TIMESTAMP] = int64_at(data, position + 27)
            table[found, MAX_TIMESTAMP] = int64_at(data, position + 35)
            table[found, START], table[found, END] = position + _HEADER_SIZE, position + size
            table[found, UNPACKED] = 0
            found += 1
        position += size
    return found, large, NO_FAULT, position


@part
def _microseconds(base_ms: int, delta_ms: int) -> int:
    """The time in microseconds, held at the ends of what 64 bits can say."""
    time_ms = base_ms + delta_ms
    if (base_ms ^ time_ms) & (delta_ms ^ time_ms) < 0:  # beyond 64 bits
        time_ms = int64(_LARGEST) if delta_ms > 0 else int64(-_LARGEST)
    if time_ms > _LARGEST_MS:
        return int64(_LARGEST)
    if time_ms < -_LARGEST_MS:
        return int64(-_LARGEST)
    return time_ms * 1000


@part
def _length(data: "Memory", position: int, end: int) -> tuple[int, int]:
    """A length that fits before the end (-1: null), and the position after it; position -1 if there is none."""
    size, position = _number(data, position, end)
    if size < -1 or size > end - position:
        return int64(0), int64(-1)
    return size, position


@kernel(
    types.int64(
        BYTES_IN,
        BYTES_IN,
        types.int64[:, ::1],
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int32[::1],
        types.int32[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int32[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int32[::1],
        types.int64[:, ::1],
        types.int64[::1],
    )
)
def fill_columns(
    wire: "Bytes",
    unpacked: "Bytes",
    table: "Longs",
    start_offset: int,
    end_offset: int,
    offsets: "Longs",
    timestamps: "Longs",
    timestamp_types: "Ints",
    key_ends: "Ints",
    key_valid: "Bytes",
    keys: "Bytes",
    value_ends: "Ints",
    value_valid: "Bytes",
    values: "Bytes",
    header_ends: "Ints",
    header_places: "Longs",
    told: "Longs",
) -> int:
    """The records of these batches with offsets in [start_offset, end_offset), one row each; returns a fault.

    The columns have room for all records of the batches, keys and values for all their bytes, and their bitmaps have
    all bits set. A column that is not wanted has no room. Headers are only counted: where a record's begin and end is
    left in header_places, counted through both buffers.
    """
    row, key_end, value_end, header_end = int64(0), int64(0), int64(0), int64(0)
    null_keys, null_values, header_bytes = int64(0), int64(0), int64(0)
    with_key, with_value, with_headers = len(key_ends) > 0, len(value_ends) > 0, len(header_ends) > 0
    if with_key:
        key_ends[0] = 0
    if with_value:
        value_ends[0] = 0
    if with_headers:
        header_ends[0] = 0
    key_memory, value_memory = memory(keys), memory(values)
    for batch in range(len(table)):
        told[FAULTY] = batch
        data, places = memory(wire), int64(0)
        if table[batch, UNPACKED] != 0:
            data, places = memory(unpacked), int64(len(wire))
        position, end = table[batch, START], table[batch, END]
        base_offset, last_delta = table[batch, BASE_OFFSET], table[batch, LAST_DELTA]
        timestamp_type = int64(table[batch, ATTRIBUTES] & _TIMESTAMP_TYPE_BIT != 0)
        base_timestamp = table[batch, MAX_TIMESTAMP] if timestamp_type else table[batch, BASE_TIMESTAMP]
        last_seen = int64(-1)
        for _ in range(table[batch, COUNT]):
            size, position = _number(data, position, end)
            if position < 0 or size < 0 or size > end - position:
                return BAD_RECORD
            record_end = position + size
            timestamp_delta, position = _number(data, position + 1, record_end)  # skips the unused attributes
            if position < 0:
                return BAD_NUMBER
            delta, position = _number(data, position, record_end)
            if position < 0:
                return BAD_NUMBER
            if delta < 0 or delta > last_delta:
                return BAD_DELTA
            if delta <= last_seen:
                return NOT_RISING
            last_seen = delta
            key_size, key_at = _length(data, position, record_end)
            if key_at < 0:
                return BAD_KEY
            value_size, value_at = _length(data, key_at + max(key_size, 0), record_end)
            if value_at < 0:
                return BAD_VALUE
            header_count, position = _number(data, value_at + max(value_size, 0), record_end)
            if position < 0 or header_count < 0 or header_count > record_end - position:
                return BAD_HEADERS
            if header_count == 0 and position != record_end:
                return BAD_END
            headers_at, position = position, record_end

            offset = base_offset + delta
            if offset < start_offset or offset >= end_offset:
                continue
            offsets[row] = offset
            timestamps[row] = _microseconds(base_timestamp, int64(0) if timestamp_type else timestamp_delta)
            timestamp_types[row] = timestamp_type
            if with_key:
                if key_size > 0:
                    copy_bytes(key_memory, key_end, data, key_at, key_size)
                    key_end += key_size
                elif key_size < 0:
                    key_valid[row >> 3] &= ~(1 << (row & 7))
                    null_keys += 1
                key_ends[row + 1] = key_end
            if with_value:
                if value_size > 0:
                    copy_bytes(value_memory, value_end, data, value_at, value_size)
                    value_end += value_size
                elif value_size < 0:
                    value_valid[row >> 3] &= ~(1 << (row & 7))
                    null_values += 1
                value_ends[row + 1] = value_end
            if with_headers:
                header_end += header_count
                header_ends[row + 1] = header_end
                header_bytes += record_end - headers_at
                header_places[row, 0], header_places[row, 1] = places + headers_at, places + record_end
            row += 1
        if position != end:
            return LEFT_OVER
    told[ROWS], told[KEY_BYTES], told[VALUE_BYTES], told[HEADERS] = row, key_end, value_end, header_end
    told[NULL_KEYS], told[NULL_VALUES], told[HEADER_BYTES] = null_keys, null_values, header_bytes
    return NO_FAULT


@kernel(
    types.int64(
        BYTES_IN,
        BYTES_IN,
        types.int32[::1],
        types.int64[:, ::1],
        types.int32[::1],
        types.uint8[::1],
        types.int32[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int64[::1],
    )
)
def fill_headers(
    wire: "Bytes",
    unpacked: "Bytes",
    header_ends: "Ints",
    header_places: "Longs",
    name_ends: "Ints",
    names: "Bytes",
    value_ends: "Ints",
    value_valid: "Bytes",
    values: "Bytes",
    told: "Longs",
) -> int:
    """The headers that `fill_columns` counted and found the places of; returns a fault, FAULTY being the row then."""
    header, name_end, value_end, nulls = int64(0), int64(0), int64(0), int64(0)
    name_ends[0], value_ends[0] = 0, 0
    name_memory, value_memory = memory(names), memory(values)
    for row in range(len(header_ends) - 1):
        told[FAULTY] = row
        data, position, end = memory(wire), header_places[row, 0], header_places[row, 1]
        if position >= len(wire):
            data, position, end = memory(unpacked), position - len(wire), end - len(wire)
        for _ in range(header_ends[row + 1] - header_ends[row]):
            size, position = _length(data, position, end)
            if position < 0 or size < 0:
                return BAD_HEADER
            copy_bytes(name_memory, name_end, data, position, size)
            name_end += size
            size, position = _length(data, position + size, end)
            if position < 0:
                return BAD_HEADER
            if size > 0:
                copy_bytes(value_memory, value_end, data, position, size)
                value_end += size
                position += size
            elif size < 0:
                value_valid[header >> 3] &= ~(1 << (header & 7))
                nulls += 1
            header += 1
            name_ends[header], value_ends[header] = name_end, value_end
        if position != end:
            return BAD_END
    told[NAME_BYTES], told[HEADER_BYTES], told[NULL_HEADERS] = name_end, value_end, nulls
    return NO_FAULT
