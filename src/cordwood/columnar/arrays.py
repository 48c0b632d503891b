"""Arrow's arrays of byte strings taken apart, as kernels read them: of any kind, sliced or in chunks."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow_types

from cordwood.columnar.compiled import numbers, readable

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

_NO_BYTES = readable(b"")
NO_NUMBERS = numbers(np.empty(0, np.int64))


class ByteStrings(NamedTuple):
    """A column of byte strings. The string at `row` is data[ends[row]:ends[row + 1]]; without ends, all are null."""

    ends: "Longs"
    valid: "Bytes"
    """A bit per row, from valid_at on, set where there is a value; empty where there always is."""
    valid_at: int
    data: "Bytes"


ALL_NULL = ByteStrings(NO_NUMBERS, _NO_BYTES, 0, _NO_BYTES)


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if arrow_types.is_string(column.type) or arrow_types.is_binary(column.type):
        column = column.cast(pa.large_binary())  # together they may be too much for 32 bits
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def byte_strings(column: pa.Array | pa.ChunkedArray | None) -> ByteStrings:
    """A column of strings or bytes of any kind; TypeError if it is another."""
    if column is None or arrow_types.is_null(column.type):
        return ALL_NULL
    array = one_chunk(column)
    kind = array.type
    width: Any = np.int64
    if arrow_types.is_binary(kind) or arrow_types.is_string(kind):
        width = np.int32
    elif not arrow_types.is_large_binary(kind) and not arrow_types.is_large_string(kind):
        try:
            array = array.cast(pa.large_binary())
        except pa.ArrowNotImplementedError:
            raise TypeError(f"a column of {kind} holds neither strings nor bytes") from None
    valid, ends, data = array.buffers()
    if len(array) == 0:  # an array may have no buffers at all
        return ByteStrings(numbers(0), _NO_BYTES, 0, _NO_BYTES)
    places = numbers(np.frombuffer(ends, width)[array.offset : array.offset + len(array) + 1])
    bits = readable(valid) if valid is not None and array.null_count else _NO_BYTES
    if len(places) <= len(array) or 0 < 8 * len(bits) < array.offset + len(array):
        raise ValueError("the array's buffers are shorter than it is")
    return ByteStrings(places, bits, array.offset, readable(data) if data is not None else _NO_BYTES)
