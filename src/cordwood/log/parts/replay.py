"""Rebuilds the state of a log from its bytes: producers, open and aborted transactions, leader epochs.

A snapshot and the epoch checkpoint save the replay of earlier batches; without them the whole log is replayed.
"""

from collections.abc import Iterator
from contextlib import suppress

from cordwood.log.parts.holes import HoleyScan
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.producers import ProducerStates
from cordwood.log.parts.replayed import Replayed, note_epoch
from cordwood.log.parts.report import LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.model.errors import DiskFull
from cordwood.records.batch import BatchHeader
from cordwood.segments.abort_witness import witness_of
from cordwood.segments.checkpoint_witness import believe
from cordwood.segments.damaged import DamagedCheckpoint, DamagedIndex
from cordwood.segments.filesystem import Filesystem, read_if_there
from cordwood.segments.leader_epochs import FILE_NAME as EPOCHS_FILE
from cordwood.segments.leader_epochs import WITNESS_FILE_NAME as EPOCHS_WITNESS
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Suffix
from cordwood.segments.transaction_index import TransactionIndex


def restore_history(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState, reports: LogReports
) -> None:
    """Loads the saved state, and replays the batches behind it up to the log's end."""
    saved.forget_later(offsets)
    epochs, epochs_known_to = _load_epochs(segments, offsets, replayed, reports)
    states, states_known_to = _load_producers(segments, offsets, saved)
    changed = epochs.truncate_to_end(offsets.end) | epochs.truncate_to_start(offsets.start)
    first_offset = max(offsets.start, segments[0].base_offset) if segments.all else offsets.start
    if not epochs.entries or epochs.entries[0].start_offset > first_offset:
        # The epochs were saved when the log began later: a crash took back a log start that was not durable yet.
        epochs, epochs_known_to = LeaderEpochs(), offsets.start
    start = min(epochs_known_to, states_known_to)
    if start < offsets.end:
        base_offset = states_known_to
        for segment, header, batch in _batches_from(segments, offsets, start):
            if segment.base_offset > base_offset:
                # The segment was begun after the last snapshot: the snapshot at its base was never saved.
                base_offset = segment.base_offset
                saved.note_snapshot(base_offset, states)
            if header.partition_leader_epoch != epochs.latest:
                epoch_start = header.base_offset if epochs.entries else _first_record(segments, header.base_offset)
                changed |= note_epoch(epochs, header.partition_leader_epoch, epoch_start)
            if header.producer_id >= 0 and header.base_offset >= states_known_to:
                aborted = states.replay(header, batch, segments.opened.boot_ms)
                if aborted is not None:
                    segment.load_transactions().append(aborted)
    if changed:
        replayed.epochs_changed = True
    replayed.take(states, epochs)


def _first_record(segments: LogSegments, first_readable: int) -> int:
    """The first record of a log whose epochs are lost. Damage before the first readable batch held records: if the
    epochs began behind them, the next start would take the damaged file for a needless one."""
    damaged = segments[0].holes and segments[0].base_offset < first_readable
    return segments[0].base_offset if damaged else first_readable


def _batches_from(
    segments: LogSegments, offsets: LogOffsets, offset: int
) -> Iterator[tuple[Segment, BatchHeader, memoryview]]:
    """All readable batches that end at or after this offset, in order; bad places are skipped."""
    for place in range(segments.place_of(offset), len(segments)):
        segment = segments[place]
        end_offset = segments.end_of(place)
        if end_offset <= offset or not segment.size:
            continue
        indexes = segments.indexes_of(segment, end_offset)
        scan = HoleyScan(
            segment.file,
            segment.base_offset,
            trusted_below=end_offset,
            position=indexes.position_of(offset) if offset >= segment.base_offset else 0,
            verify_crc=False,
        )
        for _, header in scan:
            if header.base_offset >= offsets.end:
                return
            if header.last_offset >= offset:
                yield segment, header, scan.batch


def _load_epochs(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, reports: LogReports
) -> tuple[LeaderEpochs, int]:
    """The epochs in the checkpoint, and the offset up to which they are complete."""
    filesystem, directory = segments.directory.filesystem, segments.directory.path
    try:
        epochs = saved_epochs(filesystem, directory)
    except DamagedCheckpoint:
        reports.note_rebuilt(f"{directory}/{EPOCHS_FILE}")
        replayed.epochs_changed = True
        epochs = None
    # A log without a checkpoint has no epochs file; its recovery point is its start.
    return (LeaderEpochs(), offsets.start) if epochs is None else (epochs, offsets.recovery_point)


def saved_epochs(filesystem: Filesystem, directory: str) -> LeaderEpochs | None:
    """The epochs in the checkpoint of a partition's directory; None: it has no checkpoint. Raises DamagedCheckpoint.

    The copy in the witness is not used: the batches know all epochs, and either file may be an older one.
    """
    data, problem = believe(
        read_if_there(filesystem, f"{directory}/{EPOCHS_FILE}"),
        read_if_there(filesystem, f"{directory}/{EPOCHS_WITNESS}"),
    )
    if problem:
        raise DamagedCheckpoint(problem)
    return None if data is None else LeaderEpochs.from_bytes(data)


def _load_producers(segments: LogSegments, offsets: LogOffsets, saved: SavedState) -> tuple[ProducerStates, int]:
    """The newest usable snapshot and its offset. Cuts the transaction indexes back to that offset."""
    states, known_to = _newest_snapshot(segments, offsets, saved, offsets.end)
    last = len(segments) - 1
    for place in reversed(range(len(segments))):
        # The last segment is always checked: its index may have markers beyond the log's end, which a crash took back.
        # A segment that ends exactly at `known_to` may have such markers, too: it was the last one, and was closed
        # before a checkpoint could rewrite its index.
        if segments.end_of(place) < known_to and place != last:
            break
        segment = segments[place]
        try:
            transactions = segment.load_transactions()
        except DamagedIndex:
            # A replay from before this segment rebuilds its index.
            segment.transactions = transactions = TransactionIndex()
            segment.saved_transactions = 0
            _rewrite_transactions(segments, saved, segment)
            states, known_to = _newest_snapshot(segments, offsets, saved, segment.base_offset)
        if transactions.truncate(known_to):
            segment.saved_transactions = min(segment.saved_transactions, len(transactions))
            _rewrite_transactions(segments, saved, segment)
    return states, known_to


def _rewrite_transactions(segments: LogSegments, saved: SavedState, segment: Segment) -> None:
    """Makes the next checkpoint write the segment's transaction index anew.

    Dropped entries stay in the file until then, and would be believed once the log has grown past them. A crash before
    that is harmless: the recovery point has not moved, so they are dropped again.
    """
    segment.rewrite_transactions = saved.checkpoint_due = True
    if segment is not segments.active and segment not in segments.closing:
        segments.closing.append(segment)


def rebuild_transactions(segments: LogSegments, offsets: LogOffsets, saved: SavedState, place: int) -> None:
    """Rebuilds the transaction index of one segment, from the producers at its base."""
    segment, end_offset = segments[place], segments.end_of(place)
    states, known_to = _newest_snapshot(segments, offsets, saved, segment.base_offset)
    transactions = TransactionIndex()
    for _, header, batch in _batches_from(segments, offsets, known_to):
        if header.base_offset >= end_offset:
            break
        aborted = states.replay(header, batch, segments.opened.boot_ms)
        if aborted is not None and header.base_offset >= segment.base_offset:
            transactions.append(aborted)
    segment.transactions = transactions
    segment.saved_transactions = 0
    segment.witnessed = witness_of(transactions.to_bytes())
    saved.witness_due = saved.checkpoint_due = True
    # A full disk must not keep readers from reading: the file is rebuilt at its next use.
    with suppress(DiskFull):
        segments.directory.filesystem.replace(segment.path(Suffix.TXN_INDEX), transactions.to_bytes())
        segment.saved_transactions = len(transactions)


def _newest_snapshot(
    segments: LogSegments, offsets: LogOffsets, saved: SavedState, limit_offset: int
) -> tuple[ProducerStates, int]:
    """The producers of the newest snapshot up to this offset, and the offset from which on batches are replayed."""
    start_offset = segments[0].base_offset if segments.all else offsets.start
    found = saved.load_producers(limit_offset, segments.opened.boot_ms)
    if found is None:
        return ProducerStates(), start_offset
    states, offset = found
    return states, max(offset, start_offset)
