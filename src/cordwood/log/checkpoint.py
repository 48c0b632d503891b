"""Checkpoints save what recovery would otherwise rebuild: index entries, a producer snapshot, the leader epochs.

The recovery point moves only when these files and the batches are durable: the scan after a crash then begins at an
index entry close to the recovery point. Like a flush, a checkpoint is taken in the loop, written in any thread, and
booked in the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from cordwood.log.flushing import FlushTicket, begin_flush, finish_flush
from cordwood.log.segment import Segment
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments import leader_epochs
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.abort_witness import Witnessed, encode_witness, witness_of
from cordwood.segments.checkpoint_witness import believe
from cordwood.segments.checkpoint_witness import encode_witness as encode_checkpoint_witness
from cordwood.segments.filesystem import File, Filesystem
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.producer_snapshot import encode_snapshot
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from cordwood.segments.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from cordwood.segments.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from cordwood.log.log import Log

EMPTY_SNAPSHOT = encode_snapshot(())

TEMPORARY = ".tmp"

_SYNC_TOGETHER = 4
"""From so many logs on, two syncs of the whole filesystem cost less than a sync of every file."""


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
        "directory",
        "end_offset",
        "epochs",
        "flush",
        "indexes",
        "log",
        "obsolete_snapshots",
        "renamed_snapshot",
        "replaced",
        "saved",
        "snapshots",
        "truncations",
    )

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.end_offset = log.log_end_offset
        self.flush: FlushTicket | None = begin_flush(log)
        self.truncations = log.truncations
        self.directory = log.directory
        self.indexes: list[IndexWrite] = []
        self.replaced: list[tuple[str, bytes]] = []
        """Path and whole content of index files that must not lose entries, even for a moment."""
        self.saved: list[SavedIndexes] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.renamed_snapshot: tuple[int, int] | None = None
        """The old and new offset of an empty snapshot that is only renamed, as most are."""
        self.obsolete_snapshots: list[int] = []
        self.epochs: bytes | None = None
        self._filesystem = log.filesystem
        self._files: list[File] = []

    def write(self, *, keep_open: bool = True) -> None:
        """Step one: writes the new files under temporary names. `keep_open`: `sync` follows."""
        if self.truncations != self.log.truncations:
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
            self._write_file(self._snapshot_path(offset), 0, data)
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
                remove_if_there(self._filesystem, self._snapshot_path(offset))

    def _move_empty_snapshot(self, old: int, new: int) -> None:
        try:
            self._filesystem.rename(self._snapshot_path(old), self._snapshot_path(new))
        except FileNotFoundError:
            # A checkpoint that was written but never booked, because the broker was stopping, has renamed the snapshot
            # already.
            self._filesystem.replace(self._snapshot_path(new), EMPTY_SNAPSHOT)

    def sync_names(self) -> None:
        with self._void_if_cut():
            self._filesystem.sync_directory(self.directory)

    @contextmanager
    def _void_if_cut(self) -> Iterator[None]:
        """Ignores missing files of a log that was cut or deleted meanwhile."""
        try:
            yield
        except SyncFailure:
            raise
        except (StorageFailure, FileNotFoundError):
            if self.truncations == self.log.truncations:
                raise

    def _forget(self) -> None:
        """Voids the ticket: the log was cut after the ticket was taken."""
        self.flush = self.epochs = self.renamed_snapshot = None
        self.indexes, self.replaced, self.snapshots, self.obsolete_snapshots = [], [], [], []

    @property
    def _epochs_path(self) -> str:
        return f"{self.directory}/{leader_epochs.FILE_NAME}"

    @property
    def _epochs_witness_path(self) -> str:
        return f"{self.directory}/{leader_epochs.WITNESS_FILE_NAME}"

    def _snapshot_path(self, offset: int) -> str:
        return segment_file(self.directory, offset, Suffix.SNAPSHOT)

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

    `together`: whether one sync of the whole filesystem may replace the syncs of all files.
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
    """The checkpoint of all logs, under way: `write` runs in any thread, then DataDirectory.finish_checkpoint."""

    def __init__(
        self,
        filesystem: Filesystem,
        tickets: Sequence[CheckpointTicket],
        *,
        together: bool,
        when_saved: Callable[[], None],
    ) -> None:
        """`when_saved` is called, in any thread, once the recovery points are saved."""
        self.tickets = tickets
        self.when_saved = when_saved
        self._filesystem = filesystem
        self._together = together

    def write(self) -> None:
        """Writes the files that the logs need on disk before their recovery points move."""
        write_checkpoints(self._filesystem, self.tickets, together=self._together)


def read_if_there(filesystem: Filesystem, path: str) -> bytes | None:
    try:
        return filesystem.read_bytes(path)
    except FileNotFoundError:
        return None


def remove_if_there(filesystem: Filesystem, path: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.remove(path)


def begin_checkpoint(log: "Log") -> CheckpointTicket | None:
    """The ticket that moves the recovery point to the log's end; None if the log needs no checkpoint."""
    if not log.segments or not _due(log):
        return None
    ticket = CheckpointTicket(log)
    for segment in log.closing:
        _save_indexes(ticket, segment)
    if log.active is not None:
        _save_indexes(ticket, log.active)
    _save_snapshots(log, ticket)
    if log.epochs_changed:
        ticket.epochs = log.leader_epochs.to_bytes()
    if log.witness_due:
        witness = {each.base_offset: each.witnessed for each in log.segments if each.witnessed is not None}
        # Written behind the indexes: a crash in between leaves a witness of fewer entries, which does no harm.
        ticket.replaced.append((f"{log.directory}/{ABORTS_FILE}", encode_witness(witness)))
    return ticket


def cost_of(log: "Log") -> int:
    """The time that taking a checkpoint of this log holds the loop, in units of about 50 us."""
    if not log.ready:
        return 1
    return 1 + len(log.closing) + log.producer_count // 25


def _due(log: "Log") -> bool:
    if not log.ready:
        return False
    return log.recovery_point < log.log_end_offset or log.epochs_changed or bool(log.closing) or log.checkpoint_due


def _save_indexes(ticket: CheckpointTicket, segment: Segment) -> None:
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
        _save_transactions(ticket, segment, transactions)
    ticket.saved.append(SavedIndexes(segment, offsets, times, aborted))


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


def _save_transactions(ticket: CheckpointTicket, segment: Segment, transactions: TransactionIndex) -> None:
    if len(transactions) == segment.saved_transactions and not segment.rewrite_transactions:
        return
    segment.witnessed = _witness(segment, transactions)
    ticket.log.witness_due = True
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


def _save_snapshots(log: "Log", ticket: CheckpointTicket) -> None:
    end_offset = ticket.end_offset
    ticket.snapshots = list(log.unsaved_snapshots)
    planned = {offset for offset, _ in ticket.snapshots}
    bases = {segment.base_offset for segment in log.segments}
    newest = log.snapshots[-1] if log.snapshots else None
    # The snapshot that a crash goes back to must stay until this checkpoint's recovery point is saved. An empty
    # snapshot may still be renamed: without it a replay of the segments finds expired producers, which is harmless.
    # Compacted segments might lack producers, so their snapshot stays.
    needed = saved_snapshot(log)
    movable = log.newest_snapshot_is_empty and newest not in bases and not (log.may_have_gaps and newest == needed)
    if end_offset not in planned and newest != end_offset:
        data = encode_snapshot(log.producers.snapshot_entries())
        if data == EMPTY_SNAPSHOT and movable and newest is not None:
            ticket.renamed_snapshot = (newest, end_offset)
        else:
            ticket.snapshots.append((end_offset, data))
    # The snapshots at the segments' base offsets are for truncation; older ones but the newest are obsolete.
    renamed = None if ticket.renamed_snapshot is None else ticket.renamed_snapshot[0]
    ticket.obsolete_snapshots = [
        offset for offset in log.snapshots if offset not in bases and offset not in (end_offset, renamed, needed)
    ]


def saved_snapshot(log: "Log") -> int | None:
    """The offset of the snapshot that a crash goes back to; None if there is none."""
    limit_offset = min(log.recovery_point, log.saved_recovery_point)
    return max((offset for offset in log.snapshots if offset <= limit_offset), default=None)


def finish_checkpoint(log: "Log", ticket: CheckpointTicket) -> None:
    """Books a written ticket: the recovery point moves."""
    written = {offset for offset, _ in ticket.snapshots}
    snapshots = (set(log.snapshots) | written) - set(ticket.obsolete_snapshots)
    if ticket.renamed_snapshot is not None:
        old, new = ticket.renamed_snapshot
        snapshots.discard(old)
        snapshots.add(new)
        written.add(new)
    log.snapshots = sorted(snapshots)
    log.unsaved_snapshots = tuple(snapshot for snapshot in log.unsaved_snapshots if snapshot[0] not in written)
    if ticket.snapshots:
        log.newest_snapshot_is_empty = max(ticket.snapshots)[1] == EMPTY_SNAPSHOT
    if ticket.truncations != log.truncations:
        # The log was cut while the ticket was written: its snapshots may have batches that are gone.
        for offset in sorted(written):
            remove_if_there(log.filesystem, segment_file(log.directory, offset, Suffix.SNAPSHOT))
            log.snapshots.remove(offset)
        log.newest_snapshot_is_empty = False
        return
    if ticket.flush is not None:
        finish_flush(log, ticket.flush)
    for segment, offsets, times, transactions in ticket.saved:
        segment.saved_offsets, segment.saved_times, segment.saved_transactions = offsets, times, transactions
        segment.rewrite_transactions = False
    if ticket.epochs is not None and ticket.epochs == log.leader_epochs.to_bytes():
        log.epochs_changed = False
    _let_go_of_closed(log)
    log.checkpoint_due = log.witness_due = False
    log.recovery_point = max(log.recovery_point, ticket.end_offset)


def _let_go_of_closed(log: "Log") -> None:
    """Frees the indexes of closed segments whose index files are complete."""
    unsaved = []
    for segment in log.closing:
        indexes, transactions = segment.indexes, segment.transactions
        aborts_saved = transactions is None or segment.saved_transactions == len(transactions)
        aborts_saved = aborts_saved and not segment.rewrite_transactions
        if aborts_saved and (
            indexes is None
            or (segment.saved_offsets == len(indexes.offsets) and segment.saved_times == len(indexes.times))
        ):
            log.loaded_indexes.used(segment)
        else:
            unsaved.append(segment)
    log.closing = unsaved
