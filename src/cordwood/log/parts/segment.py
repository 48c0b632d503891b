"""One segment of a log: its log file, its indexes in memory, and the names of the files beside it.

A segment holds bytes and positions; the log decides about offsets, durability and rolling. Indexes are loaded at first
use, and rebuilt from the log file if they are missing or wrong.
"""

from array import array
from contextlib import suppress
from typing import NamedTuple

from cordwood.log.parts.holes import Hole, HoleyScan, read_batch_header
from cordwood.model.errors import DiskFull
from cordwood.segments.abort_witness import Witnessed
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.filesystem import File, Filesystem
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Stage, Suffix, segment_file
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from cordwood.segments.time_index import TimeIndex
from cordwood.segments.transaction_index import TransactionIndex

NEVER_MS = 2**63 - 1

RECENT_BATCHES = 256
"""The most places of last appended batches in memory; beyond that half of them are dropped."""

SEGMENT_SUFFIXES = (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)


class Deletion(NamedTuple):
    """Files of a removed segment that wait for their last readers."""

    due_ms: int | None
    """The time at which the files are removed, on the boot clock; None until the log is next told the time."""
    file: File
    """The log file."""
    paths: list[str]


class Segment:
    """A segment. `size` is the size of the valid log; the file may for a moment be longer, never shorter."""

    __slots__ = (
        "base_offset",
        "directory",
        "file",
        "filesystem",
        "full",
        "holes",
        "indexes",
        "recent_offsets",
        "recent_positions",
        "rewrite_transactions",
        "roll_at_ms",
        "saved_offsets",
        "saved_times",
        "saved_transactions",
        "size",
        "suspect",
        "transactions",
        "witnessed",
    )

    def __init__(self, filesystem: Filesystem, directory: str, base_offset: int, file: File) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = file.size
        self.indexes: SegmentIndexes | None = None
        """The offset and time index; None: not loaded."""
        self.transactions: TransactionIndex | None = None
        """The transaction index; None: not loaded."""
        self.holes: tuple[Hole, ...] = ()
        self.suspect = False
        """True if a reader met bytes that are no batch: the segment has to be examined."""
        self.full = False
        """True if the indexes have no room for another entry."""
        self.roll_at_ms = NEVER_MS
        self.saved_offsets = 0
        """The number of entries in the index's file; the same for the other two indexes."""
        self.saved_times = 0
        self.saved_transactions = 0
        self.witnessed: Witnessed | None = None
        """The witness of the transaction index's file; None: unknown."""
        self.rewrite_transactions = False
        """True if the transaction index's file may be wrong, and must be written anew, even without entries."""
        self.recent_offsets: array[int] | None = None
        """Base offsets and positions of the last appended batches, without gaps between them."""
        self.recent_positions: array[int] | None = None

    def __repr__(self) -> str:
        return f"Segment({self.file.path}, {self.size} bytes)"

    @classmethod
    def existing(cls, filesystem: Filesystem, directory: str, base_offset: int) -> "Segment":
        """The segment of an existing log file."""
        return cls(
            filesystem, directory, base_offset, filesystem.open(segment_file(directory, base_offset, Suffix.LOG))
        )

    @classmethod
    def create(cls, filesystem: Filesystem, directory: str, base_offset: int, interval_bytes: int) -> "Segment":
        """A new, empty segment. Its name is durable once the directory is synced."""
        file = filesystem.open(segment_file(directory, base_offset, Suffix.LOG), create=True)
        if file.size:
            # The file is left over from a crash: its bytes are no part of the log.
            file.truncate(0)
        segment = cls(filesystem, directory, base_offset, file)
        segment.indexes = SegmentIndexes(base_offset, interval_bytes)
        segment.transactions = TransactionIndex()
        segment.remember_recent()
        return segment

    def path(self, suffix: Suffix) -> str:
        return segment_file(self.directory, self.base_offset, suffix)

    def remember_recent(self) -> None:
        self.recent_offsets = array("q")
        self.recent_positions = array("q")

    def forget_recent(self) -> None:
        """Drops the recent places of an idle or closed segment: lookups go through the index."""
        self.recent_offsets = self.recent_positions = None

    def note_recent(self, base_offset: int, position: int) -> None:
        offsets, positions = self.recent_offsets, self.recent_positions
        if offsets is None or positions is None:
            offsets = self.recent_offsets = array("q")
            positions = self.recent_positions = array("q")
        elif len(offsets) >= RECENT_BATCHES:
            del offsets[: RECENT_BATCHES // 2]
            del positions[: RECENT_BATCHES // 2]
        offsets.append(base_offset)
        positions.append(position)

    def load_indexes(self, end_offset: int, interval_bytes: int) -> SegmentIndexes:
        """Loads the indexes of a closed segment that ends before end_offset. May block, and may run in threads."""
        indexes = self.indexes
        if indexes is not None:
            return indexes
        try:
            indexes = SegmentIndexes(self.base_offset, interval_bytes)
            indexes.offsets = OffsetIndex.from_bytes(
                self.filesystem.read_bytes(self.path(Suffix.INDEX)), log_size=self.size
            )
            indexes.times = TimeIndex.from_bytes(self.filesystem.read_bytes(self.path(Suffix.TIME_INDEX)))
            self.check_times(indexes.times)
            last = indexes.times.last
            indexes.max_timestamp_ms = last.timestamp_ms
            indexes.max_timestamp_offset = self.base_offset + last.relative_offset
        except (FileNotFoundError, DamagedIndex):
            self.examine(end_offset, interval_bytes)
            assert self.indexes is not None
            return self.indexes
        self.saved_offsets, self.saved_times = len(indexes.offsets), len(indexes.times)
        self.indexes = indexes
        return indexes

    def check_times(self, times: TimeIndex) -> None:
        """Raises DamagedIndex if the time index is empty although the first batch has a timestamp."""
        if len(times) or not self.size:
            return
        first = read_batch_header(self.file, 0)
        if first is not None and first.max_timestamp >= 0:
            raise DamagedIndex("time index: it is empty, and the segment has timestamps")

    def examine(self, end_offset: int, interval_bytes: int, *, closed: bool = True) -> int:
        """Reads the whole segment: rebuilds its indexes, and finds its holes. Returns the end offset of its last batch.

        The index files of an open segment are written by the next checkpoint.
        """
        indexes = SegmentIndexes(self.base_offset, interval_bytes)
        scan = HoleyScan(self.file, self.base_offset, trusted_below=end_offset)
        for position, header in scan:
            indexes.note(position, header.size, header.last_offset, header.max_timestamp)
        self.holes = tuple(scan.holes)
        self.indexes = indexes
        self.suspect = False
        self.saved_offsets = self.saved_times = 0
        if closed:
            indexes.close()
            # The topic may be deleted meanwhile: then there is no directory, and no need for index files. A full disk
            # must not keep readers from reading: the files are rebuilt at their next use.
            with suppress(FileNotFoundError, DiskFull):
                self.filesystem.replace(self.path(Suffix.INDEX), indexes.offsets.to_bytes())
                self.filesystem.replace(self.path(Suffix.TIME_INDEX), indexes.times.to_bytes())
                self.saved_offsets, self.saved_times = len(indexes.offsets), len(indexes.times)
        return scan.next_offset

    def load_transactions(self) -> TransactionIndex:
        """The aborted transactions that ended in this segment. A segment without aborts has no such file."""
        transactions = self.transactions
        if transactions is None:
            try:
                data = self.filesystem.read_bytes(self.path(Suffix.TXN_INDEX))
            except FileNotFoundError:
                data = b""
            if self.witnessed is not None and not self.witnessed.covers(data):
                raise DamagedIndex(f"transaction index: it must begin with {self.witnessed}")
            transactions = TransactionIndex.from_bytes(data, base_offset=self.base_offset)
            self.saved_transactions = len(transactions)
            self.transactions = transactions
        return transactions

    def max_timestamp_ms(self, end_offset: int, interval_bytes: int) -> int:
        """The largest timestamp in a closed segment: the last entry of its time index."""
        if self.indexes is not None:
            return self.indexes.max_timestamp_ms
        try:
            file = self.filesystem.open(self.path(Suffix.TIME_INDEX))
            if file.size and file.size % TIME_ENTRY_SIZE == 0:
                entry = file.read(file.size - TIME_ENTRY_SIZE, TIME_ENTRY_SIZE)
                file.close()
                return TimeIndex.from_bytes(entry).last.timestamp_ms
        except (FileNotFoundError, DamagedIndex):
            pass
        return self.load_indexes(end_offset, interval_bytes).max_timestamp_ms

    def mark_deleted(self) -> list[str]:
        """Renames the segment's files for removal. Returns the paths to remove once no reader can have them."""
        doomed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if not self.filesystem.exists(path):
                continue
            last = segment_file(self.directory, self.base_offset, suffix, Stage.DELETED)
            self.filesystem.rename(path, last)
            doomed.append(last)
            if suffix is Suffix.LOG:
                # A slice of the file may be on its way to a socket: a closed handle is opened again by this path.
                self.file.path = last
        return doomed


def base_offset_of(segment: Segment) -> int:
    return segment.base_offset
