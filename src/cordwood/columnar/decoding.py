"""Record batches, as a fetch answers them, to columns.

One answer after the other goes through a `Decoder`. What one costs in Python does not depend on how many records there
are, and for batches that are not compressed not on how many batches either: their records are copied once, from the
buffer that they arrived in to their columns.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from cordwood.columnar import decode_kernels as kernels
from cordwood.columnar.columns import HEADERS, TIMESTAMP, Columns, Origin
from cordwood.columnar.compiled import HAS_CRC32C, readable
from cordwood.records.batch import CODEC_MASK, CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, Buffer, crc_is_right
from cordwood.records.compression import decompress
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import MAX_UNCOMPRESSED_BYTES

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Ints, Longs

_CHECKSUM_LIMIT = 4096 if HAS_CRC32C else 0
"""Up to this size a batch's checksum is computed in the kernel; beyond it, the package's threefold speed outweighs a
call from Python."""

_MAX_COLUMN_BYTES = 0x7FFF_0000
"""Arrow's binary arrays count their bytes in 32 bits."""

_NOTHING = readable(b"")

_ORIGIN_FIELDS = np.dtype(
    {
        "names": ["producer_id", "producer_epoch", "base_sequence"],
        "formats": [">i8", ">i2", ">i4"],
        "offsets": [43, 51, 53],
        "itemsize": HEADER_SIZE,
    }
)


class Decoder:
    """Decodes answers to fetches of one partition. It keeps nothing from one to the next: each stands for itself.

    Columns that are not asked for are skipped, not built. Records are handed out in pieces of about max_bytes once
    uncompressed, or max_rows, whichever comes first; a piece is at least one batch.
    """

    def __init__(
        self,
        headers: bool = False,
        *,
        key: bool = True,
        value: bool = True,
        max_bytes: int = 32 << 20,
        max_rows: int = 1 << 20,
        origin: bool = False,
    ) -> None:
        """With `origin` each record says who wrote it, and control records are handed out, too."""
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

        Control batches are skipped, unless the origin of records is asked for. With read_committed, what aborted
        transactions wrote is skipped too: `aborted` tells their (producer_id, first_offset), as the same answer does.
        Usually there is one piece; none if there is nothing to hand out; several where compressed batches are many
        times larger than they came. The buffer must stay as it is until the last piece is there; the pieces do not
        refer to it.

        CorruptRecords names the offset of the first batch that is not what it claims to be. What is wrong with a
        batch's header or checksum is said before the first piece, what is wrong inside of it when its piece is due.
        """
        wire = readable(records)
        aborted = sorted(aborted, key=_first_offset) if read_committed else ()
        batches = _find_batches(records, wire, start_offset, end_offset, aborted, with_control=self._origin)
        for piece, unpacked in self._pieces(records, batches):
            columns = self._columns(wire, unpacked, piece, start_offset, end_offset)
            if columns.count:
                yield columns

    def _pieces(self, records: Buffer, batches: "Longs") -> "Iterator[tuple[Longs, Bytes]]":
        """The batches in pieces, with the records of those that were compressed; changes their places to there."""
        view = memoryview(records)
        compressed = np.flatnonzero(batches[:, kernels.ATTRIBUTES] & CODEC_MASK)
        first = 0
        sections: list[bytes] = []
        unpacked_size = 0
        for index in compressed.tolist():
            position, size, base_offset, _, attributes, _, _, count = batches[index, : kernels.START].tolist()
            section = view[position + HEADER_SIZE : position + size]
            try:
                data = decompress(attributes & CODEC_MASK, section, max(MAX_UNCOMPRESSED_BYTES, 4 * size))
            except CorruptRecords as error:
                raise _corrupt(base_offset, str(error)) from error
            if count * 7 > len(data):
                raise _corrupt(base_offset, kernels.FAULTS[kernels.BAD_COUNT])
            batches[index, kernels.START :] = unpacked_size, unpacked_size + len(data), 1
            sections.append(data)
            unpacked_size += len(data)
            if unpacked_size >= self._max_bytes:
                yield from self._cut(batches[first : index + 1], sections)
                first, sections, unpacked_size = index + 1, [], 0
        yield from self._cut(batches[first:], sections)

    def _cut(self, batches: "Longs", sections: list[bytes]) -> "Iterator[tuple[Longs, Bytes]]":
        """Where these batches are still too much for one piece, they become several."""
        unpacked = readable(sections[0] if len(sections) == 1 else b"".join(sections)) if sections else _NOTHING
        if len(batches) == 0:
            return
        ends = np.cumsum(batches[:, kernels.END] - batches[:, kernels.START])
        rows = np.cumsum(batches[:, kernels.COUNT])
        first, bytes_before, rows_before = 0, 0, 0
        while first < len(batches):
            last = min(
                int(np.searchsorted(ends, bytes_before + self._max_bytes)),
                int(np.searchsorted(rows, rows_before + self._max_rows)),
                len(batches) - 1,
            )
            yield batches[first : last + 1], unpacked
            first, bytes_before, rows_before = last + 1, int(ends[last]), int(rows[last])

    def _columns(self, wire: "Bytes", unpacked: "Bytes", batches: "Longs", start: int, end: int) -> Columns:
        rows = int(batches[:, kernels.COUNT].sum())
        room = int((batches[:, kernels.END] - batches[:, kernels.START]).sum())
        if room > _MAX_COLUMN_BYTES:
            raise _corrupt(int(batches[0, kernels.BASE_OFFSET]), f"{room} bytes are too much for one column")
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
            raise _corrupt(int(batches[told[kernels.FAULTY], kernels.BASE_OFFSET]), kernels.FAULTS[fault])
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
            origin=_origin_of(wire, batches, offsets[:rows]) if self._origin else None,
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


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def _find_batches(
    records: Buffer,
    wire: "Bytes",
    start_offset: int,
    end_offset: int,
    aborted: Sequence[tuple[int, int]],
    *,
    with_control: bool,
) -> "Longs":
    table = np.empty((len(wire) // HEADER_SIZE, kernels.FIELDS), np.int64)
    unchecked = np.empty((len(wire) // max(_CHECKSUM_LIMIT, HEADER_SIZE), 2), np.int64)
    producers = np.array([producer_id for producer_id, _ in aborted], np.int64)
    firsts = np.array([first_offset for _, first_offset in aborted], np.int64)
    count, large, fault, faulty = kernels.find_batches(
        wire,
        table,
        unchecked,
        _CHECKSUM_LIMIT,
        start_offset,
        end_offset,
        with_control,
        producers,
        firsts,
        np.empty_like(producers),
    )
    for position, size in unchecked[:large].tolist():
        if not crc_is_right(records, position, size):
            raise _corrupt_batch(records, position, kernels.BAD_CHECKSUM)
    if fault:
        raise _corrupt_batch(records, faulty, fault)
    return table[:count]


def _origin_of(wire: "Bytes", batches: "Longs", offsets: "Longs") -> Origin:
    """From the headers of the batches that the records are in."""
    headers = np.lib.stride_tricks.sliding_window_view(wire, HEADER_SIZE)[batches[:, kernels.POSITION]]
    fields = np.ascontiguousarray(headers).view(_ORIGIN_FIELDS)[:, 0]
    of_batch = np.searchsorted(batches[:, kernels.BASE_OFFSET], offsets, side="right") - 1
    base_sequence = fields["base_sequence"][of_batch].astype(np.int64)
    counted = (base_sequence + offsets - batches[of_batch, kernels.BASE_OFFSET]) & 0x7FFF_FFFF
    attributes = batches[of_batch, kernels.ATTRIBUTES]
    return Origin(
        producer_id=pa.array(fields["producer_id"][of_batch].astype(np.int64)),
        producer_epoch=pa.array(fields["producer_epoch"][of_batch].astype(np.int32)),
        sequence=pa.array(np.where(base_sequence < 0, -1, counted).astype(np.int32)),
        transactional=pa.array(attributes & TRANSACTIONAL_BIT != 0),
        control=pa.array(attributes & CONTROL_BIT != 0),
    )


def _headers(
    wire: "Bytes", unpacked: "Bytes", offsets: "Longs", ends: "Ints", places: "Longs", told: "Longs"
) -> pa.ListArray:
    count, room = int(told[kernels.HEADERS]), int(told[kernels.HEADER_BYTES])
    name_ends, names = np.empty(count + 1, np.int32), np.empty(room, np.uint8)
    values = _Binary.room(count, room)
    fault = kernels.fill_headers(wire, unpacked, ends, places, name_ends, names, *values, told)
    if fault:
        raise _corrupt(int(offsets[told[kernels.FAULTY]]), kernels.FAULTS[fault])
    name_array = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(name_ends), pa.py_buffer(names[: told[kernels.NAME_BYTES]])], 0
    )
    value_array = values.array(count, told[kernels.HEADER_BYTES], told[kernels.NULL_HEADERS])
    structs = pa.StructArray.from_arrays([_text(name_array), value_array], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(HEADERS, len(ends) - 1, [None, pa.py_buffer(ends)], 0, children=[structs])


def _text(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # as Java's consumers read them
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _plain(kind: pa.DataType, count: int, numbers: "Longs | Ints") -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], 0)


def _corrupt_batch(records: Buffer, position: int, fault: int) -> CorruptRecords:
    base_offset = int.from_bytes(memoryview(records)[position : position + 8], "big", signed=True)
    return _corrupt(base_offset, f"{kernels.FAULTS[fault]} (at byte {position} of {len(records)})")


def _corrupt(offset: int, reason: str) -> CorruptRecords:
    return CorruptRecords(f"offset {offset}: {reason}")
