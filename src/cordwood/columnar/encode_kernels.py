"""Writing record batches in numba: where to cut rows into batches, and their bytes.

`plan_batches` looks at everything that `write_batches` will follow, so that writing needs no checks: row numbers, and
the places that arrays claim for their strings.
"""

from typing import TYPE_CHECKING

from cordwood.columnar.compiled import BYTES_IN, LONGS_IN, copy_bytes, int64, kernel, part, types, uint8

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

# A batch in the plan, one row each: which of the rows it ends before, its size, and its records' largest time.
END, SIZE, MAX_TIMESTAMP = range(3)
PLANNED = 3

# What all batches of a call have in common.
ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE = range(4)

NO_FAULT, NO_SUCH_ROW, BAD_ARRAY, NO_NAME, TOO_LARGE = range(5)
FAULTS = {
    NO_SUCH_ROW: "there is no such row",
    BAD_ARRAY: "the array's offsets point outside of its data",
    NO_NAME: "a header has no name",
    TOO_LARGE: "the record is larger than 1 GiB",
}

_HEADER_SIZE, _LOG_OVERHEAD, _MAGIC = 61, 12, 2
_LARGEST_RECORD = 1 << 30
_LARGEST_SEQUENCE = 0x7FFFFFFF

_STRINGS = (LONGS_IN, BYTES_IN, types.int64, BYTES_IN)
"""A column as `arrays.ByteStrings` takes it apart."""
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
    """How many bytes the number (zigzag varint) takes."""
    bits = (number << 1) ^ (number >> 63)
    size = int64(1)
    while bits & ~0x7F != 0:
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@part
def _put_number(out: "Bytes", position: int, number: int) -> int:
    bits = (number << 1) ^ (number >> 63)
    while bits & ~0x7F != 0:
        out[position] = uint8((bits & 0x7F) | 0x80)
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    out[position] = uint8(bits)
    return position + 1


@part
def _put_big_endian(out: "Bytes", position: int, size: int, number: int) -> int:
    for place in range(size):
        out[position + place] = uint8((number >> (8 * (size - 1 - place))) & 0xFF)
    return position + size


@part
def _is_null(ends: "Longs", valid: "Bytes", valid_at: int, row: int) -> bool:
    if len(ends) == 0:
        return True
    if len(valid) == 0:
        return False
    bit = valid_at + row
    return bool((valid[bit >> 3] >> (bit & 7)) & 1 == 0)


@part
def _string_size(ends: "Longs", valid: "Bytes", valid_at: int, data: "Bytes", row: int) -> int:
    """The size of a string, -1 if it is null, -2 if it is not there."""
    if _is_null(ends, valid, valid_at, row):
        return int64(-1)
    if row + 1 >= len(ends) or ends[row] < 0 or ends[row + 1] < ends[row] or ends[row + 1] > len(data):
        return int64(-2)
    return int64(ends[row + 1] - ends[row])


@part
def _put_string(
    out: "Bytes", position: int, ends: "Longs", valid: "Bytes", valid_at: int, data: "Bytes", row: int
) -> int:
    if _is_null(ends, valid, valid_at, row):
        out[position] = uint8(1)  # -1
        return position + 1
    size = ends[row + 1] - ends[row]
    position = _put_number(out, position, size)
    copy_bytes(out, position, data, ends[row], size)
    return int64(position + size)


@kernel(types.UniTuple(types.int64, 3)(*_ROWS, types.int64, types.int64, types.int64[::1], types.int64[:, ::1]))
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
    row_count: int,
    max_batch_bytes: int,
    sizes: "Longs",
    plan: "Longs",
) -> tuple[int, int, int]:
    """Finds the size of each record and where batches are cut; returns how many there are, and a fault and its row.

    A batch has as many records as fit into max_batch_bytes, and at least one.
    """
    batches, first, batch_size = int64(0), int64(0), int64(_HEADER_SIZE)
    base_timestamp, max_timestamp = int64(0), int64(0)
    for place in range(len(rows)):
        row = rows[place]
        if row < 0 or row >= row_count:
            return batches, NO_SUCH_ROW, row
        key_size = _string_size(key_ends, key_valid, key_valid_at, keys, row)
        value_size = _string_size(value_ends, value_valid, value_valid_at, values, row)
        if key_size < -1 or value_size < -1:
            return batches, BAD_ARRAY, row
        body = _number_size(key_size) + max(key_size, 0) + _number_size(value_size) + max(value_size, 0) + 1
        if len(header_ends) == 0:
            body += 1
        else:
            if row + 1 >= len(header_ends) or header_ends[row] < 0 or header_ends[row + 1] < header_ends[row]:
                return batches, BAD_ARRAY, row
            body += _number_size(header_ends[row + 1] - header_ends[row])
            for header in range(header_ends[row], header_ends[row + 1]):
                name_size = _string_size(name_ends, name_valid, name_valid_at, names, header)
                header_size = _string_size(
                    header_value_ends, header_value_valid, header_value_valid_at, header_values, header
                )
                if name_size == -1:
                    return batches, NO_NAME, row
                if name_size < 0 or header_size < -1:
                    return batches, BAD_ARRAY, row
                body += _number_size(name_size) + name_size + _number_size(header_size) + max(header_size, 0)
        if body > _LARGEST_RECORD:
            return batches, TOO_LARGE, row
        timestamp = timestamps[row if len(timestamps) > 1 else 0]

        own = body + _number_size(timestamp - base_timestamp) + _number_size(place - first)
        if place > first and batch_size + own + _number_size(own) > max_batch_bytes:
            plan[batches, END], plan[batches, SIZE], plan[batches, MAX_TIMESTAMP] = place, batch_size, max_timestamp
            batches += 1
            first, batch_size = place, int64(_HEADER_SIZE)
        if place == first:
            base_timestamp, max_timestamp = timestamp, timestamp
            own = body + 2  # both differences are 0
        max_timestamp = max(max_timestamp, timestamp)
        sizes[place] = own
        batch_size += own + _number_size(own)
    if len(rows) > 0:
        plan[batches, END], plan[batches, SIZE], plan[batches, MAX_TIMESTAMP] = len(rows), batch_size, max_timestamp
        batches += 1
    return batches, NO_FAULT, int64(0)


@kernel(types.int64(*_ROWS, types.int64[::1], types.int64[:, ::1], types.int64[::1], types.uint8[::1]))
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
    common: "Longs",
    out: "Bytes",
) -> int:
    """Writes the batches one behind the other, all but their checksums; returns where they end.

    Their records are not compressed, even where the attributes name a codec: that, and the size, is for the caller.
    """
    position, first = int64(0), int64(0)
    for batch in range(len(plan)):
        end = plan[batch, END]
        base_timestamp = timestamps[rows[first] if len(timestamps) > 1 else 0]
        sequence = common[BASE_SEQUENCE]
        if sequence >= 0:
            sequence = (sequence + first) & _LARGEST_SEQUENCE
        position = _put_big_endian(out, position, 8, 0)
        position = _put_big_endian(out, position, 4, plan[batch, SIZE] - _LOG_OVERHEAD)
        position = _put_big_endian(out, position, 4, -1)
        position = _put_big_endian(out, position, 1, _MAGIC)
        position = _put_big_endian(out, position, 4, 0)
        position = _put_big_endian(out, position, 2, common[ATTRIBUTES])
        position = _put_big_endian(out, position, 4, end - first - 1)
        position = _put_big_endian(out, position, 8, base_timestamp)
        position = _put_big_endian(out, position, 8, plan[batch, MAX_TIMESTAMP])
        position = _put_big_endian(out, position, 8, common[PRODUCER_ID])
        position = _put_big_endian(out, position, 2, common[PRODUCER_EPOCH])
        position = _put_big_endian(out, position, 4, sequence)
        position = _put_big_endian(out, position, 4, end - first)
        for place in range(first, end):
            row = rows[place]
            position = _put_number(out, position, sizes[place])
            out[position] = uint8(0)
            position = _put_number(out, position + 1, timestamps[row if len(timestamps) > 1 else 0] - base_timestamp)
            position = _put_number(out, position, place - first)
            position = _put_string(out, position, key_ends, key_valid, key_valid_at, keys, row)
            position = _put_string(out, position, value_ends, value_valid, value_valid_at, values, row)
            if len(header_ends) == 0:
                out[position] = uint8(0)
                position += 1
                continue
            position = _put_number(out, position, header_ends[row + 1] - header_ends[row])
            for header in range(header_ends[row], header_ends[row + 1]):
                position = _put_string(out, position, name_ends, name_valid, name_valid_at, names, header)
                position = _put_string(
                    out,
                    position,
                    header_value_ends,
                    header_value_valid,
                    header_value_valid_at,
                    header_values,
                    header,
                )
        first = end
    return position
