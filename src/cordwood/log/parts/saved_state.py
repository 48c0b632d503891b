"""The files that checkpoints have saved beside one log's segments, and the duties of the next checkpoint.

Most of these files are producer snapshots: files with the state of all producers at an offset, from which a replay goes
on.
"""

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.partition_directory import PartitionDirectory
from cordwood.log.parts.producers import ProducerStates
from cordwood.segments.damaged import DamagedSnapshot
from cordwood.segments.filesystem import remove_if_there
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import decode_snapshot, encode_snapshot

EMPTY_SNAPSHOT = encode_snapshot(())


class SavedState:
    __slots__ = (
        "checkpoint_due",
        "directory",
        "newest_snapshot_is_empty",
        "snapshots",
        "unsaved_snapshots",
        "witness_due",
    )

    def __init__(self, directory: PartitionDirectory) -> None:
        self.directory = directory
        self.snapshots: list[int] = []
        """The offsets of the producer snapshots on disk, ascending."""
        self.unsaved_snapshots: tuple[tuple[int, bytes], ...] = ()
        self.newest_snapshot_is_empty = False
        self.checkpoint_due = False
        """True if files beside the log are wrong: a checkpoint must write them even without new data."""
        self.witness_due = False
        """True if the witness of the transaction indexes has to be written anew (segments/abort_witness.py)."""

    def snapshot_path(self, offset: int) -> str:
        return segment_file(self.directory.path, offset, Suffix.SNAPSHOT)

    def note_snapshot(self, offset: int, states: ProducerStates) -> None:
        """Keeps a snapshot of the producers at a segment's base for the next checkpoint: the log may be cut there."""
        if offset not in self.snapshots and all(offset != known for known, _ in self.unsaved_snapshots):
            self.unsaved_snapshots = (*self.unsaved_snapshots, (offset, encode_snapshot(states.snapshot_entries())))

    def believed_snapshot(self, offsets: LogOffsets) -> int | None:
        """The offset of the snapshot that a crash goes back to; None if there is none."""
        limit_offset = min(offsets.recovery_point, offsets.saved_recovery_point)
        return max((offset for offset in self.snapshots if offset <= limit_offset), default=None)

    def load_producers(self, limit_offset: int, boot_ms: int) -> tuple[ProducerStates, int] | None:
        """The newest readable snapshot up to this offset, and its offset; None if there is none."""
        for offset in reversed(self.snapshots.copy()):
            if offset > limit_offset:
                continue
            try:
                data = self.directory.filesystem.read_bytes(self.snapshot_path(offset))
                states = ProducerStates.from_snapshot(decode_snapshot(data), boot_ms)
            except (FileNotFoundError, DamagedSnapshot):
                # State that counted as saved in this snapshot must be saved again, by the next checkpoint.
                self._remove([offset])
                self.checkpoint_due = True
                continue
            if offset == self.snapshots[-1]:
                self.newest_snapshot_is_empty = data == EMPTY_SNAPSHOT
            return states, offset
        return None

    # Changes

    def forget_later(self, offsets: LogOffsets) -> None:
        """Removes snapshots beyond the log's end or the recovery point.

        A snapshot beyond the log's end has batches that are gone, and would be believed once the log has grown past it.
        A snapshot beyond the recovery point comes from an unfinished checkpoint: the snapshot, and the transaction
        index written with it, may be torn or not durable, and must not count as saved.
        """
        limit_offset = min(offsets.end, offsets.recovery_point)
        later = [offset for offset in self.snapshots if offset > limit_offset]
        self._remove(later)
        if later:
            self.directory.sync_names()

    def forget_before(self, base_offset: int) -> None:
        """Removes snapshots before the first segment, but never the newest one."""
        self._remove([offset for offset in self.snapshots[:-1] if offset < base_offset])

    def book(self, written: list[tuple[int, bytes]], renamed: tuple[int, int] | None, obsolete: list[int]) -> list[int]:
        """Notes the snapshots of a written checkpoint; returns their offsets.

        `renamed` are the old and the new offset of an empty snapshot.
        """
        new = {offset for offset, _ in written}
        snapshots = (set(self.snapshots) | new) - set(obsolete)
        if renamed is not None:
            snapshots.discard(renamed[0])
            snapshots.add(renamed[1])
            new.add(renamed[1])
        self.snapshots = sorted(snapshots)
        self.unsaved_snapshots = tuple(snapshot for snapshot in self.unsaved_snapshots if snapshot[0] not in new)
        if written:
            self.newest_snapshot_is_empty = max(written)[1] == EMPTY_SNAPSHOT
        return sorted(new)

    def forget(self, written: list[int]) -> None:
        """Removes the snapshots of a checkpoint that a cut has voided: they may have batches that are gone."""
        self._remove(written)
        self.newest_snapshot_is_empty = False

    def forget_all(self) -> None:
        self._remove(self.snapshots.copy())

    def save_only(self, offset: int, producers: ProducerStates) -> None:
        """Makes this the one snapshot of a log that goes on without batches, durably."""
        self.directory.filesystem.replace(self.snapshot_path(offset), encode_snapshot(producers.snapshot_entries()))
        self.snapshots = [offset]

    def end_at(self, end_offset: int) -> None:
        """Forgets unsaved state of batches that were cut, and asks for a checkpoint."""
        self.unsaved_snapshots = tuple(snapshot for snapshot in self.unsaved_snapshots if snapshot[0] <= end_offset)
        self.checkpoint_due = True

    def _remove(self, snapshots: list[int]) -> None:
        for offset in snapshots:
            remove_if_there(self.directory.filesystem, self.snapshot_path(offset))
            self.snapshots.remove(offset)
