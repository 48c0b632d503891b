"""The index of a segment's aborted transactions, which read_committed consumers skip.

An entry is 34 bytes: int16 version 0, then producer id, first offset, last offset (that of the abort marker) and the
last stable offset when the marker was written, int64 each. Entries are in the order of their markers, in the segment
that holds the marker. Only aborts of transactions with records are kept.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedIndex

ENTRY_SIZE = 34
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
assert _ENTRY.size == ENTRY_SIZE


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Offsets here are absolute, as they are in the file."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransactionIndex):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """The size of its file."""
        return len(self._entries) * ENTRY_SIZE

    def entries(self) -> list[AbortedTransaction]:
        return list(self._entries)

    def append(self, aborted: AbortedTransaction) -> None:
        assert not self._entries or aborted.last_offset > self._entries[-1].last_offset, aborted
        self._entries.append(aborted)

    def collect(self, from_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch [from_offset, end_offset), and whether the list is complete.

        An incomplete list may go on in later segments: an entry is beside its marker, which can be far from the data.
        """
        found: list[AbortedTransaction] = []
        for entry in self._entries:
            if entry.last_offset >= from_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> bool:
        """Drops the entries whose marker is at or after this offset; True if there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].last_offset >= offset:
            self._entries.pop()
        return len(self._entries) < before

    def to_bytes(self, first_entry: int = 0) -> bytes:
        """The file's content from this entry on."""
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries[first_entry:])

    @classmethod
    def from_bytes(cls, data: Buffer, *, base_offset: int = 0) -> "TransactionIndex":
        """The index in a file of the segment that begins at base_offset. DamagedIndex if it cannot be one."""
        if len(data) % ENTRY_SIZE:
            raise DamagedIndex(f"transaction index: {len(data)} bytes are not a multiple of {ENTRY_SIZE}")
        index = cls()
        marker_before = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction._make(fields)
            if version != _VERSION:
                raise DamagedIndex(f"transaction index: version {version} is unknown")
            # A marker is never the first of its transaction. This rule also tells zeros, which a power cut may leave in
            # place of an entry, from the first entry of a log.
            if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= marker_before:
                raise DamagedIndex(f"transaction index: {entry} cannot follow offset {marker_before}")
            marker_before = entry.last_offset
            index._entries.append(entry)
        return index


class OpenTransactions:
    """The transactions that are open at a place in the log, and their ends: the source of the index.

    The object takes every transactional batch in order. Sequences and fencing are not checked here: a batch in the log
    was accepted.
    """

    __slots__ = ("_first_offsets",)

    def __init__(self, first_offsets: Mapping[int, int] | None = None) -> None:
        """`first_offsets`: the first offset of each producer id's open transaction, from a snapshot."""
        # In the order of first offsets, as in the log: the first item is the oldest open transaction.
        self._first_offsets = dict(sorted((first_offsets or {}).items(), key=lambda item: item[1]))

    @property
    def first_offset(self) -> int | None:
        """The first offset of the oldest open transaction, which is the last stable offset."""
        return next(iter(self._first_offsets.values()), None)

    @property
    def first_offsets(self) -> dict[int, int]:
        return dict(self._first_offsets)

    def first_offset_of(self, producer_id: int) -> int | None:
        """The first offset of this producer's open transaction; None if it has none."""
        return self._first_offsets.get(producer_id)

    def data(self, producer_id: int, base_offset: int) -> None:
        """Takes a transactional batch with records of this producer."""
        self._first_offsets.setdefault(producer_id, base_offset)

    def marker(self, producer_id: int, marker_offset: int, *, committed: bool) -> AbortedTransaction | None:
        """Ends this producer's transaction. Returns the entry for the index if the transaction is aborted."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if committed or first_offset is None:
            return None
        oldest = self.first_offset
        return AbortedTransaction(
            producer_id, first_offset, marker_offset, marker_offset + 1 if oldest is None else oldest
        )
