"""Columns to record batches, as a producer sends them: the bytes that `records.build.build_batch` gives, without a
Python object per record.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyarrow import types as arrow_types

from cordwood.columnar import encode_kernels as kernels
from cordwood.columnar.arrays import ALL_NULL, NO_NUMBERS, byte_strings, one_chunk
from cordwood.columnar.compiled import numbers
from cordwood.records.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    Codec,
)
from cordwood.records.checksum import crc32c
from cordwood.records.compression import compress

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Longs

Column = Any  # pa.Array | pa.ChunkedArray | None

_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One whole batch with its checksum; base offset 0 and leader epoch -1, as producers send them."""

    data: bytearray | memoryview
    count: int


class OutgoingRows:
    """Rows to be sent, taken apart once for all their partitions.

    Keys and values are strings or bytes of any kind, null where there is none; no column at all means all null.
    Headers are lists of structs of a name and a value. Times are one for each row, or one for all.
    """

    def __init__(
        self,
        key: Column,
        value: Column,
        headers: Column = None,
        timestamp_ms: "Longs | int" = -1,
    ) -> None:
        columns = [column for column in (key, value, headers) if column is not None]
        self.count = len(columns[0]) if columns else np.size(timestamp_ms)
        times = numbers(timestamp_ms)
        if any(len(column) != self.count for column in columns) or len(times) not in (1, self.count):
            raise ValueError("the columns are not equally long")
        header_parts = _header_parts(headers)
        if len(header_parts[0]) not in (0, self.count + 1):
            raise ValueError("the headers' offsets are not as many as their rows")
        self._columns: tuple[Any, ...] = (times, *byte_strings(key), *byte_strings(value), *header_parts)

    def encode(
        self,
        rows: "Longs | None" = None,
        *,
        codec: int = Codec.NONE,
        level: int | None = None,
        max_batch_bytes: int = 1 << 20,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> list[EncodedBatch]:
        """The rows with these numbers (all, if none are given), in this order, as batches for one partition.

        A batch has as many records as fit into max_batch_bytes before compression, header included, and at least one;
        fewer if their timestamps are 2**63 ms or more apart, which no batch can hold. Sequence numbers go on from batch
        to batch. ValueError if a row cannot be a record.
        """
        (batches,) = self.encode_groups(
            [(np.arange(self.count) if rows is None else rows, base_sequence)],
            codec=codec,
            level=level,
            max_batch_bytes=max_batch_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        return batches

    def encode_groups(
        self,
        groups: "Sequence[tuple[Longs, int]]",
        *,
        codec: int = Codec.NONE,
        level: int | None = None,
        max_batch_bytes: int = 1 << 20,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
    ) -> list[list[EncodedBatch]]:
        """`encode` for many partitions, each with (rows, base_sequence).

        All batches are written to one piece of memory, in one go, which is several times faster if each partition has
        only some hundred rows.
        """
        filled = [numbers(rows) for rows, _ in groups if len(rows)]
        if not filled:
            return [[] for _ in groups]
        rows = filled[0] if len(filled) == 1 else numbers(np.concatenate(filled))
        group_ends = np.cumsum([len(of_group) for of_group in filled], dtype=np.int64)
        base_sequences = np.array([sequence for of_group, sequence in groups if len(of_group)], np.int64)
        columns = (rows, *self._columns)
        sizes = np.empty(len(rows), np.int64)
        plan = np.empty((len(rows), kernels.PLANNED), np.int64)
        count, fault, row = kernels.plan_batches(*(*columns, group_ends, self.count, max_batch_bytes, sizes, plan))
        if fault:
            raise ValueError(f"row {row}: {kernels.FAULTS[fault]}")
        plan = plan[:count]
        attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
        common = np.array([attributes, producer_id, producer_epoch], np.int64)
        written = np.empty(int(plan[:, kernels.SIZE].sum()), np.uint8)
        kernels.write_batches(*(*columns, sizes, plan, base_sequences, common, written))

        view = memoryview(written)  # type: ignore[arg-type]
        batches: list[EncodedBatch] = []
        of_filled: list[list[EncodedBatch]] = []
        position = first = 0
        for end, size, _, before in plan.tolist():
            if before == 0:
                batches = []
                of_filled.append(batches)
            data = _finished(view[position : position + size], codec, level)
            batches.append(EncodedBatch(data, end - first))
            position, first = position + size, end
        found = iter(of_filled)
        return [next(found) if len(of_group) else [] for of_group, _ in groups]


def _finished(batch: memoryview, codec: int, level: int | None) -> bytearray | memoryview:
    """The batch with its records compressed, and its checksum."""
    finished: bytearray | memoryview = batch
    if codec:
        finished = bytearray(batch[:HEADER_SIZE])
        finished += compress(codec, batch[HEADER_SIZE:], level)
        _LENGTH.pack_into(finished, 8, len(finished) - LOG_OVERHEAD)
    _CRC.pack_into(finished, CRC_POSITION, crc32c(memoryview(finished)[CRC_START:]))
    return finished


def _header_parts(headers: Column) -> "tuple[Longs, *tuple[Any, ...]]":
    """The ends of each row's headers, and the names and values of all headers."""
    if headers is None or arrow_types.is_null(headers.type):
        return NO_NUMBERS, *ALL_NULL, *ALL_NULL
    lists = one_chunk(headers)
    kind = lists.type
    if not (arrow_types.is_list(kind) or arrow_types.is_large_list(kind)) or not (
        arrow_types.is_struct(kind.value_type) and {field.name for field in kind.value_type} == {"key", "value"}
    ):
        raise TypeError(f"headers are lists of structs of key and value, not {kind}")
    if lists.null_count:
        lists = lists.fill_null([])  # a null list may still have a place
    structs = lists.values
    parts = dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))  # null structs included
    return (
        numbers(lists.offsets.to_numpy()),
        *byte_strings(parts["key"]),
        *byte_strings(parts["value"]),
    )
