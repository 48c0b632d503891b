"""Finds the batches of a buffer that hold wanted records, and checks that they are whole."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordwood.columnar import decode_kernels as kernels
from cordwood.columnar.memory import HAS_CRC32C
from cordwood.records.batch import Buffer, crc_is_right, read_header
from cordwood.records.corruption import CorruptRecords

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

_CHECKSUM_LIMIT = 4096 if HAS_CRC32C else 0
"""Up to this size a batch's checksum is computed in the kernel; beyond it, the package's threefold speed outweighs a
call from Python."""


class BatchTable:
    """The batches of a buffer, as the kernels list them. The table's memory is reused, and grows if needed."""

    def __init__(self) -> None:
        self._make(1024)

    def _make(self, rows: int) -> None:
        self._table = np.empty((rows, kernels.FIELDS), np.int64)
        self._unchecked = np.empty((rows, 2), np.int64)

    def find(
        self,
        records: Buffer,
        wire: "Bytes",
        start_offset: int,
        end_offset: int,
        aborted: Sequence[tuple[int, int]],
        *,
        with_control: bool = False,
    ) -> "Longs":
        """The batches that may hold wanted records, checked but for the records; CorruptRecords if one is not whole.

        Good until the next call.
        """
        producers, firsts = np.array(sorted(aborted, key=_first_offset), np.int64).reshape(-1, 2).T.copy()
        inside = np.empty_like(producers)
        while True:
            table, unchecked = self._table, self._unchecked
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
                inside,
            )
            if fault != kernels.FULL:
                break
            self._make(4 * len(table))
        for position, size in unchecked[:large].tolist():
            if not crc_is_right(records, position, size):
                raise corrupt_batch(records, position, kernels.BAD_CHECKSUM)
        if fault:
            raise corrupt_batch(records, faulty, fault)
        return table[:count]


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def corrupt_batch(records: Buffer, position: int, fault: int) -> CorruptRecords:
    """Describes the fault of the batch at this position, and the offsets concerned as far as its bytes tell."""
    reason = f"{kernels.FAULTS[fault]} (at byte {position} of {len(records)})"
    if fault != kernels.BAD_CHECKSUM:
        return corrupt(int.from_bytes(memoryview(records)[position : position + 8], "big", signed=True), reason)
    header = read_header(records, position)
    return CorruptRecords(f"offsets {header.base_offset} to {max(header.base_offset, header.last_offset)}: {reason}")


def corrupt(offset: int, reason: str) -> CorruptRecords:
    """Describes a fault at this offset."""
    return CorruptRecords(f"offset {offset}: {reason}")
