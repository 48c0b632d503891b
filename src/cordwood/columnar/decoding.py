"""Decodes record batches of fetch answers into columns.

A `Decoder` takes one answer after the other. The Python cost of an answer does not depend on its number of records, and
without compression not on its number of batches either: records are copied once, from the receive buffer to their
columns.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from cordwood.columnar import decode_kernels as kernels
from cordwood.columnar.batch_table import BatchTable, corrupt, corrupt_batch
from cordwood.columnar.columns import HEADERS, TIMESTAMP, Columns, origin_of
from cordwood.columnar.compiled import readable
from cordwood.columnar.unpacking import Unpacker
from cordwood.records.batch import CODEC_MASK, Buffer
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import MAX_UNCOMPRESSED_BYTES

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Ints, Longs

_MAX_COLUMN_BYTES = 0x7FFF_0000
"""Arrow's binary arrays count their bytes in 32 bits."""


class _Workspace(NamedTuple):
    """Memory that is reused for every answer."""

    table: BatchTable
    unpacker: Unpacker


_FEW_SPARE, _LARGE_ROOM_BYTES = 2, 64 << 20
_spare: list[_Workspace] = []


class Decoder:
    """Decodes answers to fetches, each independently of the others.

    Columns that are not requested are skipped, not built. Records are handed out in pieces of about max_bytes once
    uncompressed, or max_rows, whichever comes first; a piece is at least one batch.
    """

    def __init__(
        self,
        headers: bool = False,
        *,
        key: bool = True,
        value: bool = True,
        max_bytes: int = 16 << 20,
        max_rows: int = 1 << 20,
        origin: bool = False,
    ) -> None:
        """With `origin` each record has its producer, and control records are handed out, too."""
        self._headers = headers
        self._key = key
        self._value = value
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self._origin = origin

    def decode(
        self,
        records: Buffer,
        *,
        start_offset: int,
        end_offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        read_committed: bool = False,
    ) -> Iterator[Columns]:
        """The records of these whole batches with offsets in [start_offset, end_offset), in order.

        Control batches are skipped, unless the origin of records is requested. With read_committed records of aborted
        transactions are skipped, too: `aborted` has their (producer_id, first_offset), from the same answer. Usually
        there is one piece; none if there are no records; several if compressed batches are many times larger once
        uncompressed. The buffer must stay as it is until the last piece is there; the pieces do not refer to it.

        CorruptRecords names the offset of the first damaged batch. Faults of headers and checksums are raised before
        the first piece, faults inside of a batch when its piece is due.
        """
        try:
            workspace = _spare.pop()
        except IndexError:
            workspace = _Workspace(BatchTable(), Unpacker())
        try:
            wire = readable(records)
            batches = workspace.table.find(
                records,
                wire,
                start_offset,
                end_offset,
                aborted if read_committed else (),
                with_control=self._origin,
            )
            for piece, unpacked in self._pieces(memoryview(records), batches, workspace.unpacker):
                columns = self._columns(wire, unpacked, piece, start_offset, end_offset)
                if columns.count:
                    yield columns
        finally:
            if len(_spare) < _FEW_SPARE and workspace.unpacker.room_bytes <= _LARGE_ROOM_BYTES:
                _spare.append(workspace)

    def _pieces(self, view: memoryview, batches: "Longs", unpacker: Unpacker) -> "Iterator[tuple[Longs, Bytes]]":
        """The batches in pieces, with the records of those that were compressed; changes their places to there."""
        unpacker.used = first = 0
        compressed = np.flatnonzero(batches[:, kernels.ATTRIBUTES] & CODEC_MASK)
        for index, fields in zip(compressed.tolist(), batches[compressed].tolist(), strict=True):
            position, size, base_offset, _, attributes, _, _, count, start, end, _ = fields
            try:
                start, end = unpacker.unpack(
                    attributes & CODEC_MASK, view[start:end], max(MAX_UNCOMPRESSED_BYTES, 4 * size)
                )
            except CorruptRecords as error:
                raise corrupt(base_offset, str(error)) from error
            if count * kernels.SMALLEST_RECORD > end - start:
                raise corrupt_batch(view, position, kernels.BAD_COUNT)
            batches[index, kernels.START :] = start, end, 1
            if end >= self._max_bytes:
                for piece in self._cut(batches[first : index + 1]):
                    yield piece, readable(unpacker.data)
                unpacker.used, first = 0, index + 1
        for piece in self._cut(batches[first:]):
            yield piece, readable(unpacker.data)

    def _cut(self, batches: "Longs") -> "Iterator[Longs]":
        """Cuts batches that are too much for one piece."""
        ends = np.cumsum(batches[:, kernels.END] - batches[:, kernels.START])
        rows = np.cumsum(batches[:, kernels.COUNT])
        first, bytes_before, rows_before = 0, 0, 0
        while first < len(batches):
            last = min(
                int(np.searchsorted(ends, bytes_before + self._max_bytes)),
                int(np.searchsorted(rows, rows_before + self._max_rows)),
                len(batches) - 1,
            )
            yield batches[first : last + 1]
            first, bytes_before, rows_before = last + 1, int(ends[last]), int(rows[last])

    def _columns(self, wire: "Bytes", unpacked: "Bytes", batches: "Longs", start: int, end: int) -> Columns:
        rows = int(batches[:, kernels.COUNT].sum())
        room = int((batches[:, kernels.END] - batches[:, kernels.START]).sum())
        if room > _MAX_COLUMN_BYTES:
            raise corrupt(int(batches[0, kernels.BASE_OFFSET]), f"{room} bytes are too much for one column")
        offsets, timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
        timestamp_types = np.empty(rows, np.int32)
        keys = _Binary.room(rows, room) if self._key else _NO_COLUMN
        values = _Binary.room(rows, room) if self._value else _NO_COLUMN
        header_ends = np.empty(rows + 1 if self._headers else 0, np.int32)
        header_places = np.empty((rows if self._headers else 0, 2), np.int64)
        told = np.zeros(kernels.TOLD, np.int64)
        fault = kernels.fill_columns(
            wire,
            unpacked,
            batches,
            start,
            end,
            offsets,
            timestamps,
            timestamp_types,
            *keys,
            *values,
            header_ends,
            header_places,
            told,
        )
        if fault:
            raise corrupt(int(batches[told[kernels.FAULTY], kernels.BASE_OFFSET]), kernels.FAULTS[fault])
        rows = int(told[kernels.ROWS])
        headers = None
        if self._headers:
            header_ends = header_ends[: rows + 1]
            headers = _headers(wire, unpacked, offsets, header_ends, header_places, told)
        return Columns(
            count=rows,
            key=keys.array(rows, told[kernels.KEY_BYTES], told[kernels.NULL_KEYS]) if self._key else None,
            value=values.array(rows, told[kernels.VALUE_BYTES], told[kernels.NULL_VALUES]) if self._value else None,
            offset=_plain(pa.int64(), rows, offsets),
            timestamp=_plain(TIMESTAMP, rows, timestamps),
            timestamp_type=_plain(pa.int32(), rows, timestamp_types),
            headers=headers,
            origin=origin_of(wire, batches, offsets[:rows]) if self._origin else None,
        )


class _Binary(NamedTuple):
    """Room for a column of byte strings, as the kernels fill it."""

    ends: "Ints"
    valid: "Bytes"
    data: "Bytes"

    @classmethod
    def room(cls, count: int, size: int) -> "_Binary":
        return cls(np.empty(count + 1, np.int32), np.full((count + 7) >> 3, 0xFF, np.uint8), np.empty(size, np.uint8))

    def array(self, count: int, size: int, nulls: int) -> pa.BinaryArray:
        valid = pa.py_buffer(self.valid) if nulls else None
        return pa.Array.from_buffers(
            pa.binary(), count, [valid, pa.py_buffer(self.ends), pa.py_buffer(self.data[:size])], int(nulls)
        )


_NO_COLUMN = _Binary(np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.uint8))


def _headers(
    wire: "Bytes", unpacked: "Bytes", offsets: "Longs", ends: "Ints", places: "Longs", told: "Longs"
) -> pa.ListArray:
    count, room = int(told[kernels.HEADERS]), int(told[kernels.HEADER_BYTES])
    name_ends, names = np.empty(count + 1, np.int32), np.empty(room, np.uint8)
    values = _Binary.room(count, room)
    fault = kernels.fill_headers(wire, unpacked, ends, places, name_ends, names, *values, told)
    if fault:
        raise corrupt(int(offsets[told[kernels.FAULTY]]), kernels.FAULTS[fault])
    name_array = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(name_ends), pa.py_buffer(names[: told[kernels.NAME_BYTES]])], 0
    )
    value_array = values.array(count, told[kernels.HEADER_BYTES], told[kernels.NULL_HEADERS])
    structs = pa.StructArray.from_arrays([_text(name_array), value_array], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(HEADERS, len(ends) - 1, [None, pa.py_buffer(ends)], 0, children=[structs])


def _text(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # as Java's consumers do
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _plain(kind: pa.DataType, count: int, numbers: "Longs | Ints") -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], 0)
