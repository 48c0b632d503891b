"""Compares a segment's index files with its log.

An index is sparse and may end early, so it is not compared with a rebuilt one: it is sound if a reader that trusts it
misses nothing.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from cordwood.log.inspection.directory import Segment
from cordwood.log.inspection.files import read_whole
from cordwood.records.batch import BatchHeader
from cordwood.segments.damaged import DamagedFile
from cordwood.segments.names import Suffix
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.rebuild import note_transaction
from cordwood.segments.time_index import TimeIndex
from cordwood.segments.transaction_index import OpenTransactions, TransactionIndex

T = TypeVar("T")


class IndexWalk:
    """Takes every batch of a segment in order; entries and batches only go forward. Keeps one reason for each file."""

    def __init__(self, segment: Segment, transactions: OpenTransactions, *, still_written: bool) -> None:
        """`transactions` are open where the segment begins, and are carried on. A segment that is `still_written` may
        lack index files."""
        self._segment = segment
        self._may_be_missing = still_written or not segment.size_bytes
        self._wrong: dict[Suffix, str] = {}
        log_size = segment.size_bytes
        offsets = self._load(Suffix.INDEX, lambda data: OffsetIndex.from_bytes(data, log_size=log_size))
        times = self._load(Suffix.TIME_INDEX, TimeIndex.from_bytes)
        self._aborted = self._load(
            Suffix.TXN_INDEX, lambda data: TransactionIndex.from_bytes(data, base_offset=segment.base_offset)
        )
        self._offset_entries = iter(offsets.entries() if offsets is not None else [])
        self._time_entries = iter(times.entries() if times is not None else [])
        self._offset_entry = next(self._offset_entries, None)
        self._time_entry = next(self._time_entries, None)
        self._latest_ms = -1
        self._transactions = transactions
        self._rebuilt = TransactionIndex()

    def _load(self, suffix: Suffix, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(read_whole(self._segment.path(suffix)))
        except FileNotFoundError:
            if not self._may_be_missing and suffix is not Suffix.TXN_INDEX:
                self._wrong[suffix] = "is missing"
        except DamagedFile as error:
            self._wrong[suffix] = str(error)
        return None

    def batch(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        """Compares the next batch of the log."""
        self._compare_offsets(position, header)
        self._compare_times(header)
        if header.transactional:
            note_transaction(header, batch, self._transactions, self._rebuilt)

    def _compare_offsets(self, position: int, header: BatchHeader) -> None:
        while self._offset_entry is not None and self._offset_entry[1] <= position:
            relative_offset, indexed = self._offset_entry
            if indexed < position:
                self._wrong.setdefault(Suffix.INDEX, f"points to byte {indexed}, where no batch begins")
            elif self._segment.base_offset + relative_offset < header.base_offset:
                offset = self._segment.base_offset + relative_offset
                self._wrong.setdefault(
                    Suffix.INDEX, f"has offset {offset} at byte {position}, where {header.base_offset} begins"
                )
            self._offset_entry = next(self._offset_entries, None)

    def _compare_times(self, header: BatchHeader) -> None:
        before_ms = self._latest_ms
        self._latest_ms = max(before_ms, header.max_timestamp)
        while self._time_entry is not None:
            timestamp_ms, relative_offset = self._time_entry
            offset = self._segment.base_offset + relative_offset
            if offset > header.last_offset:
                return
            latest_ms = self._latest_ms if offset == header.last_offset else before_ms
            if latest_ms > timestamp_ms:
                self._wrong.setdefault(
                    Suffix.TIME_INDEX, f"says that nothing up to offset {offset} is later than {timestamp_ms}"
                )
            self._time_entry = next(self._time_entries, None)

    def end(self, *, complete: bool) -> Iterator[tuple[Suffix, str]]:
        """The wrong files, each with the reason. `complete`: the log was read to its end."""
        if complete:
            if self._offset_entry is not None:
                self._wrong.setdefault(Suffix.INDEX, f"points to byte {self._offset_entry[1]}, where no batch begins")
            if self._time_entry is not None:
                self._wrong.setdefault(Suffix.TIME_INDEX, "has entries beyond the end of the log")
            known = set(self._aborted.entries()) if self._aborted is not None else set()
            missing = [entry for entry in self._rebuilt.entries() if entry not in known]
            if missing:
                self._wrong.setdefault(Suffix.TXN_INDEX, f"lacks the aborted transaction {missing[0]}")
        yield from self._wrong.items()
