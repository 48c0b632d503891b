"""Checkpoints save index entries, a producer snapshot and the leader epochs, so that recovery need not rebuild them.

The recovery point moves only when these files and the batches are durable: the scan after a crash then begins at an
index entry close to the recovery point. Like a flush, a checkpoint is taken in the loop, written in any thread, and
booked in the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.saved_state import EMPTY_SNAPSHOT, SavedState
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.log.upkeep.flushing import FlushTicket, begin_flush
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments import leader_epochs
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.abort_witness import Witnessed, encode_witness, witness_of
from cordwood.segments.checkpoint_witness import believe
from cordwood.segments.checkpoint_witness import encode_witness as encode_checkpoint_witness
from cordwood.segments.filesystem import File, Filesystem, read_if_there, remove_if_there
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Suffix
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.producer_snapshot import encode_snapshot
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from cordwood.segments.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from cordwood.segments.transaction_index import TransactionIndex

TEMPORARY = ".tmp"

_SYNC_TOGETHER = 4
"""With this many logs or more, two syncs of the whole filesystem cost less than a sync of every file."""


class IndexWrite(NamedTuple):
    """New entries of one index file."""

    path: str
    keep_bytes: int
    data: bytes


class SavedIndexes(NamedTuple):
    """The number of entries in a segment's index files once the checkpoint is written."""

    segment: Segment
    offsets: int
    times: int
    transactions: int


class CheckpointTicket:
    """The files of a log's checkpoint as of `end_offset`, ready to be written."""

    __slots__ = (
        "_files",
        "_filesystem",
        "_replayed",
        "_saved",
        "_segments",
        "_truncations",
        "directory",
        "end_offset",
        "epochs",
        "flush",
        "indexes",
        "obsolete_snapshots",
        "offsets",
        "renamed_snapshot",
        "replaced",
        "saved_indexes",
        "snapshots",
    )

    def __init__(self, segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState) -> None:
        self._segments = segments
        self._replayed = replayed
        self._saved = saved
        self.offsets = offsets
        """The offsets of the ticket's log, whose recovery point `finish` moves."""
        self.directory = segments.directory
        self.end_offset = offsets.end
        self.flush: FlushTicket | None = begin_flush(segments, offsets)
        self._truncations = offsets.truncations
        self.indexes: list[IndexWrite] = []
        self.replaced: list[tuple[str, bytes]] = []
        """Path and whole content of index files that must not lose entries, even for a moment."""
        self.saved_indexes: list[SavedIndexes] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.renamed_snapshot: tuple[int, int] | None = None
        """The old and new offset of an empty snapshot that is only renamed, as most are."""
        self.obsolete_snapshots: list[int] = []
        self.epochs: bytes | None = None
        self._filesystem = self.directory.filesystem
        self._files: list[File] = []

    @property
    def void(self) -> bool:
        """True if the log was cut or deleted since: the ticket may have batches that are gone."""
        return self._truncations != self.offsets.truncations

    def write(self, *, keep_open: bool = True) -> None:
        """Step one: writes the new files under temporary names. `keep_open`: `sync` follows."""
        if self.void:
            self._forget()
            return
        try:
            with self._void_if_cut():
                self._write_files()
        except StorageFailure:
            self._close_files()
            raise
        if not keep_open:
            self._close_files()

    def _write_files(self) -> None:
        for path, keep_bytes, data in self.indexes:
            self._write_file(path, keep_bytes, data)
        for path, data in self.replaced:
            self._write_file(path + TEMPORARY, 0, data)
        for offset, data in self.snapshots:
            self._write_file(self._saved.snapshot_path(offset), 0, data)
        if self.epochs is not None:
            witness = encode_checkpoint_witness(self.epochs, self._epochs_before())
            self._write_file(self._epochs_witness_path + TEMPORARY, 0, witness)
            self._write_file(self._epochs_path + TEMPORARY, 0, self.epochs)

    def _epochs_before(self) -> bytes | None:
        """The content of the epochs' file, which a crash may bring back beside the new witness; None if unsound."""
        before = read_if_there(self._filesystem, self._epochs_path)
        return believe(before, read_if_there(self._filesystem, self._epochs_witness_path)).data

    def sync(self) -> None:
        """Step two: waits for the disk. Not needed if the whole filesystem is synced."""
        if self.flush is not None:
            self.flush.sync()
        with self._void_if_cut():
            for file in self._files:
                file.sync()
        self._close_files()
        self.sync_names()

    def install(self) -> None:
        """Step three: gives files their final names, and removes old files. Durable after another sync."""
        with self._void_if_cut():
            if self.epochs is not None:
                self._filesystem.rename(self._epochs_witness_path + TEMPORARY, self._epochs_witness_path)
                self._filesystem.rename(self._epochs_path + TEMPORARY, self._epochs_path)
            for path, _ in self.replaced:
                self._filesystem.rename(path + TEMPORARY, path)
            if self.renamed_snapshot is not None:
                self._move_empty_snapshot(*self.renamed_snapshot)
            for offset in self.obsolete_snapshots:
                remove_if_there(self._filesystem, self._saved.snapshot_path(offset))

    def _move_empty_snapshot(self, old: int, new: int) -> None:
        try:
            self._filesystem.rename(self._saved.snapshot_path(old), self._saved.snapshot_path(new))
        except FileNotFoundError:
            # A checkpoint that was written but never booked, because the broker was stopping, has renamed the snapshot
            # already.
            self._filesystem.replace(self._saved.snapshot_path(new), EMPTY_SNAPSHOT)

    def sync_names(self) -> None:
        with self._void_if_cut():
            self.directory.sync_names()

    def finish(self) -> None:
        """Books the written ticket, in the loop: the recovery point moves."""
        written = self._saved.book(self.snapshots, self.renamed_snapshot, self.obsolete_snapshots)
        if self.void:
            self._saved.forget(written)
            return
        if self.flush is not None:
            self.flush.finish()
        for segment, offsets, times, transactions in self.saved_indexes:
            segment.saved_offsets, segment.saved_times, segment.saved_transactions = offsets, times, transactions
            segment.rewrite_transactions = False
        if self.epochs is not None and self.epochs == self._replayed.leader_epochs.to_bytes():
            self._replayed.epochs_changed = False
        _let_go_of_closed(self._segments)
        self._saved.checkpoint_due = self._saved.witness_due = False
        self.offsets.recovery_point = max(self.offsets.recovery_point, self.end_offset)

    @contextmanager
    def _void_if_cut(self) -> Iterator[None]:
        """Ignores missing files of a log that was cut or deleted meanwhile."""
        try:
            yield
        except SyncFailure:
            raise
        except (StorageFailure, FileNotFoundError):
            if self.void:
                return
            path = self.directory.path
            if not self._filesystem.exists(path):
                raise StorageFailure(
                    f"{path} is gone: it was renamed or removed under the running broker, which keeps its files open. "
                    "If it was renamed, rename it back before the broker stops; until then no checkpoint of this data "
                    "directory is taken, and a start after a crash takes longer"
                ) from None
            raise

    def _forget(self) -> None:
        """Voids the ticket: the log was cut after the ticket was taken."""
        self.flush = self.epochs = self.renamed_snapshot = None
        self.indexes, self.replaced, self.snapshots, self.obsolete_snapshots = [], [], [], []

    @property
    def _epochs_path(self) -> str:
        return f"{self.directory.path}/{leader_epochs.FILE_NAME}"

    @property
    def _epochs_witness_path(self) -> str:
        return f"{self.directory.path}/{leader_epochs.WITNESS_FILE_NAME}"

    def _write_file(self, path: str, keep_bytes: int, data: bytes) -> None:
        file = self._filesystem.open(path, create=True)
        if file.size < keep_bytes:
            # The file lost entries that were saved before. Without a file the index is rebuilt from the log at its next
            # use.
            file.close()
            self._filesystem.remove(path)
            return
        self._files.append(file)
        if file.size > keep_bytes:
            file.truncate(keep_bytes)
        file.append(data)

    def _close_files(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()


def write_checkpoints(filesystem: Filesystem, tickets: Sequence[CheckpointTicket], *, together: bool = True) -> None:
    """Writes these tickets, durably, in the cheapest way. Runs in any thread.

    `together`: one sync of the whole filesystem may replace the syncs of all files.
    """
    if together and len(tickets) >= _SYNC_TOGETHER:
        for ticket in tickets:
            ticket.write(keep_open=False)
        filesystem.sync_everything()
        for ticket in tickets:
            ticket.install()
        filesystem.sync_everything()
        return
    for ticket in tickets:
        ticket.write()
        ticket.sync()
    for ticket in tickets:
        ticket.install()
        ticket.sync_names()


class Checkpoint:
    """The checkpoint of all logs, under way: `write` runs in any thread, then DirectoryCheckpoints.finish."""

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        tickets: Sequence[CheckpointTicket],
        *,
        together: bool,
        when_saved: Callable[[], None],
    ) -> None:
        """`path` is the data directory's. `when_saved` is called, in any thread, once the recovery points are saved."""
        self._path = path
        self.tickets = tickets
        self.when_saved = when_saved
        self._filesystem = filesystem
        self._together = together

    def write(self) -> None:
        """Writes the files that the logs need on disk before their recovery points move. Raises SyncFailure if the data
        directory is gone, also when no log has changed."""
        self._filesystem.check_present(self._path)
        write_checkpoints(self._filesystem, self.tickets, together=self._together)


def begin_checkpoint(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState
) -> CheckpointTicket | None:
    """The ticket that moves the recovery point to the log's end; None if the log needs no checkpoint."""
    if not segments.all or not _due(segments, offsets, replayed, saved):
        return None
    ticket = CheckpointTicket(segments, offsets, replayed, saved)
    for segment in segments.closing:
        _save_indexes(ticket, saved, segment)
    if segments.active is not None:
        _save_indexes(ticket, saved, segments.active)
    _save_snapshots(ticket, segments, saved, replayed)
    if replayed.epochs_changed:
        ticket.epochs = replayed.leader_epochs.to_bytes()
    if saved.witness_due:
        witness = {each.base_offset: each.witnessed for each in segments if each.witnessed is not None}
        # Written behind the indexes: a crash in between leaves a witness of fewer entries, which does no harm.
        ticket.replaced.append((f"{segments.directory.path}/{ABORTS_FILE}", encode_witness(witness)))
    return ticket


def cost_of(segments: LogSegments, replayed: Replayed) -> int:
    """The time that taking a checkpoint of this log holds the loop, in units of about 50 us."""
    if not replayed.ready:
        return 1
    return 1 + len(segments.closing) + replayed.producer_count // 25


def _due(segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState) -> bool:
    if not replayed.ready:
        return False
    moved = offsets.recovery_point < offsets.end
    return moved or replayed.epochs_changed or bool(segments.closing) or saved.checkpoint_due


def _save_indexes(ticket: CheckpointTicket, saved: SavedState, segment: Segment) -> None:
    indexes, transactions = segment.indexes, segment.transactions
    offsets, times, aborted = segment.saved_offsets, segment.saved_times, segment.saved_transactions
    if indexes is not None:
        # The index is saved as if closed: if the segment closes before the next checkpoint, its largest timestamp is
        # there.
        indexes.close()
        offsets, times = len(indexes.offsets), len(indexes.times)
        _save_places(ticket, segment, indexes)
    if transactions is not None:
        aborted = len(transactions)
        _save_transactions(ticket, saved, segment, transactions)
    ticket.saved_indexes.append(SavedIndexes(segment, offsets, times, aborted))


def _save_places(ticket: CheckpointTicket, segment: Segment, indexes: SegmentIndexes) -> None:
    # An index without entries has a file, too: a missing file would be rebuilt from the log.
    ticket.indexes.append(
        IndexWrite(
            segment.path(Suffix.INDEX),
            segment.saved_offsets * OFFSET_ENTRY_SIZE,
            indexes.offsets.to_bytes(segment.saved_offsets),
        )
    )
    ticket.indexes.append(
        IndexWrite(
            segment.path(Suffix.TIME_INDEX),
            segment.saved_times * TIME_ENTRY_SIZE,
            indexes.times.to_bytes(segment.saved_times),
        )
    )


def _save_transactions(
    ticket: CheckpointTicket, saved: SavedState, segment: Segment, transactions: TransactionIndex
) -> None:
    if len(transactions) == segment.saved_transactions and not segment.rewrite_transactions:
        return
    segment.witnessed = _witness(segment, transactions)
    saved.witness_due = True
    if not segment.saved_transactions or segment.rewrite_transactions:
        # The old file is damaged, or has too many entries, and the recovery point vouches for part of it. If the file
        # were cut and a crash came before the entries are back, the segment would seem to have no aborts.
        ticket.replaced.append((segment.path(Suffix.TXN_INDEX), transactions.to_bytes()))
    else:
        ticket.indexes.append(
            IndexWrite(
                segment.path(Suffix.TXN_INDEX),
                segment.saved_transactions * TRANSACTION_ENTRY_SIZE,
                transactions.to_bytes(segment.saved_transactions),
            )
        )


def _witness(segment: Segment, transactions: TransactionIndex) -> Witnessed:
    """The witness of the index's file after this checkpoint. Known entries are not read again."""
    before = segment.witnessed
    if before is None or before.entries != segment.saved_transactions or segment.rewrite_transactions:
        return witness_of(transactions.to_bytes())
    return before.followed_by(transactions.to_bytes(before.entries))


def _save_snapshots(ticket: CheckpointTicket, segments: LogSegments, saved: SavedState, replayed: Replayed) -> None:
    end_offset = ticket.end_offset
    ticket.snapshots = list(saved.unsaved_snapshots)
    planned = {offset for offset, _ in ticket.snapshots}
    bases = {segment.base_offset for segment in segments}
    newest = saved.snapshots[-1] if saved.snapshots else None
    # The snapshot that a crash goes back to must stay until this checkpoint's recovery point is saved. An empty
    # snapshot may still be renamed: without it a replay of the segments finds expired producers, which is harmless.
    # Compacted segments might lack producers, so their snapshot stays.
    needed = saved.believed_snapshot(ticket.offsets)
    movable = saved.newest_snapshot_is_empty and newest not in bases
    movable = movable and not (segments.may_have_gaps and newest == needed)
    if end_offset not in planned and newest != end_offset:
        data = encode_snapshot(replayed.producers.snapshot_entries())
        if data == EMPTY_SNAPSHOT and movable and newest is not None:
            ticket.renamed_snapshot = (newest, end_offset)
        else:
            ticket.snapshots.append((end_offset, data))
    # The snapshots at the segments' base offsets are for truncation; older ones but the newest are obsolete.
    renamed = None if ticket.renamed_snapshot is None else ticket.renamed_snapshot[0]
    ticket.obsolete_snapshots = [
        offset for offset in saved.snapshots if offset not in bases and offset not in (end_offset, renamed, needed)
    ]


def _let_go_of_closed(segments: LogSegments) -> None:
    """Frees the indexes of closed segments whose index files are complete."""
    unsaved = []
    for segment in segments.closing:
        indexes, transactions = segment.indexes, segment.transactions
        aborts_saved = transactions is None or segment.saved_transactions == len(transactions)
        aborts_saved = aborts_saved and not segment.rewrite_transactions
        if aborts_saved and (
            indexes is None
            or (segment.saved_offsets == len(indexes.offsets) and segment.saved_times == len(indexes.times))
        ):
            segments.loaded_indexes.used(segment)
        else:
            unsaved.append(segment)
    segments.closing = unsaved
