"""Rebuilds the state of a log from its bytes: producers, open and aborted transactions, leader epochs.

A snapshot and the epoch checkpoint save the replay of earlier batches; without them the whole log is replayed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from cordwood.log.checkpoint import EMPTY_SNAPSHOT, read_if_there, remove_if_there
from cordwood.log.holes import HoleyScan
from cordwood.log.producers import ProducerStates
from cordwood.log.segment import Segment
from cordwood.model.errors import DiskFull
from cordwood.records.batch import BatchHeader
from cordwood.segments.abort_witness import witness_of
from cordwood.segments.checkpoint_witness import believe
from cordwood.segments.damaged import DamagedCheckpoint, DamagedIndex, DamagedSnapshot
from cordwood.segments.leader_epochs import FILE_NAME as EPOCHS_FILE
from cordwood.segments.leader_epochs import WITNESS_FILE_NAME as EPOCHS_WITNESS
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import decode_snapshot, encode_snapshot
from cordwood.segments.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from cordwood.log.log import Log


def restore_history(log: "Log") -> None:
    """Loads the saved state, and replays the batches behind it up to the log's end."""
    forget_later_snapshots(log)
    epochs, epochs_known_to = _load_epochs(log)
    states, states_known_to = _load_producers(log)
    changed = epochs.truncate_to_end(log.log_end_offset) | epochs.truncate_to_start(log.log_start_offset)
    if not epochs.entries or epochs.entries[0].start_offset > log.log_start_offset:
        # The epochs were saved when the log began later: a crash took back a log start that was not durable yet.
        epochs, epochs_known_to = LeaderEpochs(), log.log_start_offset
    start = min(epochs_known_to, states_known_to)
    if start < log.log_end_offset:
        base_offset = states_known_to
        for segment, header, batch in batches_from(log, start):
            if segment.base_offset > base_offset:
                # The segment was begun after the last snapshot: the snapshot at its base was never saved.
                base_offset = segment.base_offset
                note_snapshot(log, base_offset, states)
            if header.partition_leader_epoch != epochs.latest:
                changed |= note_epoch(epochs, header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0 and header.base_offset >= states_known_to:
                aborted = states.replay(header, batch, log.opened.boot_ms)
                if aborted is not None:
                    segment.load_transactions().append(aborted)
    if changed:
        log.epochs_changed = True
    log.set_history(states, epochs)


def note_epoch(epochs: LeaderEpochs, epoch: int, start_offset: int) -> bool:
    """Notes that an epoch begins at this offset; True if the epochs changed.

    Entries with a later epoch are removed: no CRC covers a batch's epoch, so such an entry comes from damage.
    """
    changed = False
    while epochs.latest > epoch and epochs.entries:
        changed |= epochs.truncate_to_end(epochs.entries[-1].start_offset)
    return epochs.assign(epoch, start_offset) or changed if epoch >= 0 else changed


def note_snapshot(log: "Log", offset: int, states: ProducerStates) -> None:
    """Keeps a snapshot of the producers at a segment's base for the next checkpoint: the log may be cut there."""
    if offset not in log.snapshots and all(offset != known for known, _ in log.unsaved_snapshots):
        log.unsaved_snapshots = (*log.unsaved_snapshots, (offset, encode_snapshot(states.snapshot_entries())))


def batches_from(log: "Log", offset: int) -> Iterator[tuple[Segment, BatchHeader, memoryview]]:
    """All readable batches that end at or after this offset, in order; bad places are skipped."""
    for place in range(log.place_of(offset), len(log.segments)):
        segment = log.segments[place]
        end_offset = log.end_of_segment(place)
        if end_offset <= offset or not segment.size:
            continue
        indexes = segment.indexes
        if indexes is None:
            indexes = segment.load_indexes(end_offset, log.settings.index_interval_bytes)
            log.loaded_indexes.used(segment)
        scan = HoleyScan(
            segment.file,
            segment.base_offset,
            trusted_below=end_offset,
            position=indexes.position_of(offset) if offset >= segment.base_offset else 0,
            verify_crc=False,
        )
        for _, header in scan:
            if header.base_offset >= log.log_end_offset:
                return
            if header.last_offset >= offset:
                yield segment, header, scan.batch


def _load_epochs(log: "Log") -> tuple[LeaderEpochs, int]:
    """The epochs in the checkpoint, and the offset up to which they are complete."""
    path, witness = f"{log.directory}/{EPOCHS_FILE}", f"{log.directory}/{EPOCHS_WITNESS}"
    data, problem = believe(read_if_there(log.filesystem, path), read_if_there(log.filesystem, witness))
    if not problem and data is None:
        # A log without a checkpoint has no epochs file; its recovery point is its start.
        return LeaderEpochs(), log.log_start_offset
    with suppress(DamagedCheckpoint):
        if not problem and data is not None:
            return LeaderEpochs.from_bytes(data), log.recovery_point
    # The copy in the witness is not used: the batches know all epochs, and either file may be an older one.
    log.note_rebuilt(path)
    log.epochs_changed = True
    return LeaderEpochs(), log.log_start_offset


def _load_producers(log: "Log") -> tuple[ProducerStates, int]:
    """The newest usable snapshot and its offset. Cuts the transaction indexes back to that offset."""
    states, known_to = _newest_snapshot(log, log.log_end_offset)
    last = len(log.segments) - 1
    for place in reversed(range(len(log.segments))):
        # The last segment is always checked: its index may have markers beyond the log's end, which a crash took back.
        # So may a segment that ends exactly at `known_to`: it was the last one, and was closed before a checkpoint
        # could rewrite its index.
        if log.end_of_segment(place) < known_to and place != last:
            break
        segment = log.segments[place]
        try:
            transactions = segment.load_transactions()
        except DamagedIndex:
            # A replay from before this segment rebuilds its index.
            segment.transactions = transactions = TransactionIndex()
            segment.saved_transactions = 0
            _rewrite_transactions(log, segment)
            states, known_to = _newest_snapshot(log, segment.base_offset)
        if transactions.truncate(known_to):
            segment.saved_transactions = min(segment.saved_transactions, len(transactions))
            _rewrite_transactions(log, segment)
    return states, known_to


def _rewrite_transactions(log: "Log", segment: Segment) -> None:
    """Has the next checkpoint write the segment's transaction index anew.

    Dropped entries stay in the file until then, and would be believed once the log has grown past them. A crash before
    that is harmless: the recovery point has not moved, so they are dropped again.
    """
    segment.rewrite_transactions = log.checkpoint_due = True
    if segment is not log.active and segment not in log.closing:
        log.closing.append(segment)


def rebuild_transactions(log: "Log", place: int) -> None:
    """Rebuilds the transaction index of one segment, from the producers at its base."""
    segment, end_offset = log.segments[place], log.end_of_segment(place)
    states, known_to = _newest_snapshot(log, segment.base_offset)
    transactions = TransactionIndex()
    for _, header, batch in batches_from(log, known_to):
        if header.base_offset >= end_offset:
            break
        aborted = states.replay(header, batch, log.opened.boot_ms)
        if aborted is not None and header.base_offset >= segment.base_offset:
            transactions.append(aborted)
    segment.transactions = transactions
    segment.saved_transactions = 0
    segment.witnessed = witness_of(transactions.to_bytes())
    log.witness_due = log.checkpoint_due = True
    # A full disk must not keep readers from reading: the file is rebuilt at its next use.
    with suppress(DiskFull):
        log.filesystem.replace(segment.path(Suffix.TXN_INDEX), transactions.to_bytes())
        segment.saved_transactions = len(transactions)


def _newest_snapshot(log: "Log", limit_offset: int) -> tuple[ProducerStates, int]:
    start_offset = log.segments[0].base_offset if log.segments else log.log_start_offset
    for offset in reversed(log.snapshots.copy()):
        if offset > limit_offset:
            continue
        path = segment_file(log.directory, offset, Suffix.SNAPSHOT)
        try:
            data = log.filesystem.read_bytes(path)
            states = ProducerStates.from_snapshot(decode_snapshot(data), log.opened.boot_ms)
        except (FileNotFoundError, DamagedSnapshot):
            # State that counted as saved in this snapshot must be saved again, by the next checkpoint.
            remove_if_there(log.filesystem, path)
            log.snapshots.remove(offset)
            log.checkpoint_due = True
            continue
        if offset == log.snapshots[-1]:
            log.newest_snapshot_is_empty = data == EMPTY_SNAPSHOT
        return states, max(offset, start_offset)
    return ProducerStates(), start_offset


def forget_later_snapshots(log: "Log") -> None:
    """Removes snapshots beyond the log's end or the recovery point.

    A snapshot beyond the log's end has batches that are gone, and would be believed once the log has grown past it. A
    snapshot beyond the recovery point comes from an unfinished checkpoint: the snapshot, and the transaction index
    written with it, may be torn or not durable, and must not count as saved.
    """
    limit_offset = min(log.log_end_offset, log.recovery_point)
    later = [offset for offset in log.snapshots if offset > limit_offset]
    for offset in later:
        remove_if_there(log.filesystem, segment_file(log.directory, offset, Suffix.SNAPSHOT))
        log.snapshots.remove(offset)
    if later:
        log.filesystem.sync_directory(log.directory)
