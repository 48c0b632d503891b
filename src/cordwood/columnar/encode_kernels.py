"""Writes record batches in numba: cuts rows into batches, and writes their bytes.

`plan_batches` checks all numbers that `write_batches` follows, so that writing needs no checks: row numbers, and the
places of strings in their arrays.
"""

from typing import TYPE_CHECKING

from cordwood.columnar.compiled import BYTES_IN, LONGS_IN, int64, kernel, part, types
from cordwood.columnar.memory import at, copy_bytes, memory, prefetch, put_byte, put_int16, put_int32, put_int64

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs
    from cordwood.columnar.memory import Memory

    Strings = tuple[Memory, int, Memory, int, int, Memory, int]

# The columns of the plan, one row per batch: the end in the list of rows, the size, the largest timestamp, and the
# number of earlier rows of the group.
END, SIZE, MAX_TIMESTAMP, BEFORE = range(4)
PLANNED = 4

# Fields that all batches of a call share.
ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH = range(3)

NO_FAULT, NO_SUCH_ROW, BAD_ARRAY, NO_NAME, TOO_LARGE = range(5)
FAULTS = {
    NO_SUCH_ROW: "there is no such row",
    BAD_ARRAY: "the array's offsets point outside of its data",
    NO_NAME: "a header has no name",
    TOO_LARGE: "the record is larger than 1 GiB",
}

_HEADER_SIZE, _LOG_OVERHEAD, _MAGIC = 61, 12, 2
_LARGEST_RECORD = 1 << 30
_AHEAD = 12
_LARGEST_SEQUENCE = 0x7FFFFFFF

_STRINGS = (LONGS_IN, BYTES_IN, types.int64, BYTES_IN)
"""A column, taken apart by `arrays.ByteStrings`."""
_ROWS = (
    LONGS_IN,  # rows
    LONGS_IN,  # timestamps: one each, or one for all
    *_STRINGS,  # keys
    *_STRINGS,  # values
    LONGS_IN,  # header_ends: empty if there are none
    *_STRINGS,  # header names
    *_STRINGS,  # header values
)


@part
def _number_size(number: int) -> int:
    """The number of bytes of a zigzag varint."""
    bits = (number << 1) ^ (number >> 63)
    size = int64(1)
    while bits & ~0x7F != 0:
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@part
def _put_number(out: "Memory", position: int, number: int) -> int:
    bits = (number << 1) ^ (number >> 63)
    while bits & ~0x7F != 0:
        put_byte(out, position, bits | 0x80)
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    put_byte(out, position, bits)
    return position + 1


@part
def _strings(ends: "Longs", valid: "Bytes", valid_at: int, data: "Bytes") -> "Strings":
    """A column as the functions below take it."""
    return memory(ends), int64(len(ends)), memory(valid), int64(len(valid)), valid_at, memory(data), int64(len(data))


@part
def _string(strings: "Strings", row: int) -> tuple[int, int]:
    """The start and size of a string; size -1: null, -2: outside of the data."""
    ends, end_count, valid, valid_count, valid_at, _, data_size = strings
    if end_count == 0:
        return int64(0), int64(-1)
    if row + 1 >= end_count:
        return int64(0), int64(-2)
    if valid_count > 0:
        bit = valid_at + row
        if (at(valid, bit >> 3) >> (bit & 7)) & 1 == 0:
            return int64(0), int64(-1)
    start, end = at(ends, row), at(ends, row + 1)
    if start < 0 or end < start or end > data_size:
        return int64(0), int64(-2)
    return start, end - start


@part
def _fetch_ahead(strings: "Strings", row: int) -> None:
    """Prefetches a string: the rows of a partition are spread over the columns, so each access would wait."""
    if strings[1] > 0:
        start = at(strings[0], row)
        prefetch(strings[5], start)
        prefetch(strings[5], start + 64)


@part
def _put_string(out: "Memory", position: int, strings: "Strings", row: int) -> int:
    start, size = _string(strings, row)
    position = _put_number(out, position, size)
    if size > 0:
        copy_bytes(out, position, strings[5], start, size)
        position += size
    return position


@part
def _headers_size(names: "Strings", values: "Strings", first: int, end: int) -> int:
    """The number of bytes of the headers; a negative number is a fault."""
    size = _number_size(end - first)
    for header in range(first, end):
        name_size = _string(names, header)[1]
        value_size = _string(values, header)[1]
        if name_size == -1:
            return int64(-NO_NAME)
        if name_size < 0 or value_size < -1:
            return int64(-BAD_ARRAY)
        size += _number_size(name_size) + name_size + _number_size(value_size) + max(value_size, 0)
    return size


@part
def _plan_batch(plan: "Longs", batch: int, end: int, size: int, max_timestamp: int, before: int) -> None:
    plan[batch, END], plan[batch, SIZE] = end, size
    plan[batch, MAX_TIMESTAMP], plan[batch, BEFORE] = max_timestamp, before


@kernel(
    types.UniTuple(types.int64, 3)(
        *_ROWS, types.int64[::1], types.int64, types.int64, types.int64[::1], types.int64[:, ::1]
    )
)
def plan_batches(
    rows: "Longs",
    timestamps: "Longs",
    key_ends: "Longs",
    key_valid: "Bytes",
    key_valid_at: int,
    keys: "Bytes",
    value_ends: "Longs",
    value_valid: "Bytes",
    value_valid_at: int,
    values: "Bytes",
    header_ends: "Longs",
    name_ends: "Longs",
    name_valid: "Bytes",
    name_valid_at: int,
    names: "Bytes",
    header_value_ends: "Longs",
    header_value_valid: "Bytes",
    header_value_valid_at: int,
    header_values: "Bytes",
    group_ends: "Longs",
    row_count: int,
    max_batch_bytes: int,
    sizes: "Longs",
    plan: "Longs",
) -> tuple[int, int, int]:
    """Finds the size of each record and where batches are cut; returns how many there are, and a fault and its row.

    A batch has as many records as fit into max_batch_bytes, and at least one, all of one group: partitions have groups
    of rows of their own, which end at group_ends, none of them empty.
    """
    key_strings = _strings(key_ends, key_valid, key_valid_at, keys)
    value_strings = _strings(value_ends, value_valid, value_valid_at, values)
    name_strings = _strings(name_ends, name_valid, name_valid_at, names)
    header_strings = _strings(header_value_ends, header_value_valid, header_value_valid_at, header_values)
    batches, first, batch_size = int64(0), int64(0), int64(_HEADER_SIZE)
    base_timestamp, max_timestamp, group, group_start = int64(0), int64(0), int64(0), int64(0)
    for place in range(len(rows)):
        row = rows[place]
        if row < 0 or row >= row_count:
            return batches, NO_SUCH_ROW, row
        key_size = _string(key_strings, row)[1]
        value_size = _string(value_strings, row)[1]
        headers_size = int64(1)
        if len(header_ends) > 0:
            first_header, end_header = header_ends[row], header_ends[row + 1]
            if first_header < 0 or end_header < first_header:
                return batches, BAD_ARRAY, row
            headers_size = _headers_size(name_strings, header_strings, first_header, end_header)
        if key_size < -1 or value_size < -1:
            return batches, BAD_ARRAY, row
        if headers_size < 0:
            return batches, -headers_size, row
        body = _number_size(key_size) + max(key_size, 0) + _number_size(value_size) + max(value_size, 0)
        body += 1 + headers_size
        if body > _LARGEST_RECORD:
            return batches, TOO_LARGE, row
        timestamp = timestamps[row if len(timestamps) > 1 else 0]

        difference = timestamp - base_timestamp
        too_far = (timestamp ^ base_timestamp) & (timestamp ^ difference) < 0  # beyond 64 bits
        size = body + _number_size(difference) + _number_size(place - first)
        too_large = batch_size + size + _number_size(size) > max_batch_bytes
        group_ends_here = place == group_ends[group]
        if group_ends_here or (place > first and (too_large or too_far)):
            _plan_batch(plan, batches, place, batch_size, max_timestamp, first - group_start)
            batches += 1
            first, batch_size = place, int64(_HEADER_SIZE)
        if group_ends_here:
            group, group_start = group + 1, place
        if place == first:
            base_timestamp, max_timestamp = timestamp, timestamp
            size = body + 2  # both differences are 0
        max_timestamp = max(max_timestamp, timestamp)
        sizes[place] = size
        batch_size += size + _number_size(size)
    if len(rows) > 0:
        _plan_batch(plan, batches, len(rows), batch_size, max_timestamp, first - group_start)
        batches += 1
    return batches, NO_FAULT, int64(0)


@kernel(
    types.int64(*_ROWS, types.int64[::1], types.int64[:, ::1], types.int64[::1], types.int64[::1], types.uint8[::1])
)
def write_batches(
    rows: "Longs",
    timestamps: "Longs",
    key_ends: "Longs",
    key_valid: "Bytes",
    key_valid_at: int,
    keys: "Bytes",
    value_ends: "Longs",
    value_valid: "Bytes",
    value_valid_at: int,
    values: "Bytes",
    header_ends: "Longs",
    name_ends: "Longs",
    name_valid: "Bytes",
    name_valid_at: int,
    names: "Bytes",
    header_value_ends: "Longs",
    header_value_valid: "Bytes",
    header_value_valid_at: int,
    header_values: "Bytes",
    sizes: "Longs",
    plan: "Longs",
    base_sequences: "Longs",
    common: "Longs",
    written: "Bytes",
) -> int:
    """Writes the batches one behind the other, all but their checksums; returns where they end.

    Sequence numbers go on within a group, from its base on; -1 stays. Records are not compressed, even where the
    attributes name a codec: that, and the size, is for the caller.
    """
    key_strings = _strings(key_ends, key_valid, key_valid_at, keys)
    value_strings = _strings(value_ends, value_valid, value_valid_at, values)
    name_strings = _strings(name_ends, name_valid, name_valid_at, names)
    header_strings = _strings(header_value_ends, header_value_valid, header_value_valid_at, header_values)
    out = memory(written)
    position, first, group = int64(0), int64(0), int64(-1)
    for batch in range(len(plan)):
        end = plan[batch, END]
        if plan[batch, BEFORE] == 0:
            group += 1
        base_timestamp = timestamps[rows[first] if len(timestamps) > 1 else 0]
        sequence = base_sequences[group]
        if sequence >= 0:
            sequence = (sequence + plan[batch, BEFORE]) & _LARGEST_SEQUENCE
        put_int64(out, position, 0)  # base offset
        put_int32(out, position + 8, plan[batch, SIZE] - _LOG_OVERHEAD)
        put_int32(out, position + 12, -1)  # leader epoch
        put_byte(out, position + 16, _MAGIC)
        put_int32(out, position + 17, 0)  # checksum
        put_int16(out, position + 21, common[ATTRIBUTES])
        put_int32(out, position + 23, end - first - 1)
        put_int64(out, position + 27, base_timestamp)
        put_int64(out, position + 35, plan[batch, MAX_TIMESTAMP])
        put_int64(out, position + 43, common[PRODUCER_ID])
        put_int16(out, position + 51, common[PRODUCER_EPOCH])
        put_int32(out, position + 53, sequence)
        put_int32(out, position + 57, end - first)
        position += _HEADER_SIZE
        for place in range(first, end):
            if place + _AHEAD < len(rows):
                _fetch_ahead(key_strings, rows[place + _AHEAD])
                _fetch_ahead(value_strings, rows[place + _AHEAD])
            row = rows[place]
            position = _put_number(out, position, sizes[place])
            put_byte(out, position, 0)
            position = _put_number(out, position + 1, timestamps[row if len(timestamps) > 1 else 0] - base_timestamp)
            position = _put_number(out, position, place - first)
            position = _put_string(out, position, key_strings, row)
            position = _put_string(out, position, value_strings, row)
            if len(header_ends) == 0:
                put_byte(out, position, 0)
                position += 1
                continue
            position = _put_number(out, position, header_ends[row + 1] - header_ends[row])
            for header in range(header_ends[row], header_ends[row + 1]):
                position = _put_string(out, position, name_strings, header)
                position = _put_string(out, position, header_strings, header)
        first = end
    return position
