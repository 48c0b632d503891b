"""The leader epochs of a partition's log, by which two replicas find where they diverge.

A list of (epoch, start offset), both strictly increasing. Kept in `leader-epoch-checkpoint`: text, version 0, count,
lines "epoch offset". A witness is beside it (checkpoint_witness.py): a flipped bit leaves a list that looks sound. The
rules are KIP-101's and KIP-279's (docs/formats.md).
"""

from bisect import bisect_right
from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.segments.checkpoint_text import decode_lines, encode_lines, number
from cordwood.segments.checkpoint_witness import witness_path
from cordwood.segments.damaged import DamagedCheckpoint

FILE_NAME = "leader-epoch-checkpoint"
WITNESS_FILE_NAME = witness_path(FILE_NAME)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log. `latest` is a plain attribute: an append compares it and rarely does more."""

    __slots__ = ("_entries", "latest")

    def __init__(self) -> None:
        self._entries: list[EpochStart] = []
        self.latest = UNDEFINED_EPOCH

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochs):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that this epoch writes from this offset on; True if that changed anything.

        A new entry removes entries at the end that contradict it (epoch or start offset not below its own).
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch
        return True

    def truncate_to_end(self, end_offset: int) -> bool:
        """Drops epochs that begin at or after the new end of the log. True if there were any."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        return len(entries) != before

    def truncate_to_start(self, start_offset: int) -> bool:
        """Drops epochs before the new start of the log; the epoch that covers the start begins there."""
        entries = self._entries
        covering = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if covering < 0 or (covering == 0 and entries[0].start_offset == start_offset):
            return False
        entries[: covering + 1] = [EpochStart(entries[covering].epoch, start_offset)]
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at this offset was written, UNDEFINED_EPOCH if that is not known."""
        covering = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[covering].epoch if covering >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and its end offset; (-1, -1) if unknown."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        own = self._entries[following - 1].epoch if following else epoch
        return own, self._entries[following].start_offset

    def to_bytes(self) -> bytes:
        """The content of the checkpoint file."""
        return encode_lines([f"{epoch} {start_offset}" for epoch, start_offset in self._entries])

    @classmethod
    def from_bytes(cls, data: Buffer) -> "LeaderEpochs":
        """The epochs in a checkpoint file. DamagedCheckpoint if it is not whole."""
        epochs = cls()
        for epoch, start_offset in decode_lines(data, 2):
            entry = EpochStart(number(epoch), number(start_offset))
            last = epochs._entries[-1] if epochs._entries else EpochStart(-1, -1)
            if entry.epoch <= last.epoch or entry.start_offset <= last.start_offset:
                raise DamagedCheckpoint(f"leader epochs: {entry} cannot follow {last}")
            epochs._entries.append(entry)
            epochs.latest = entry.epoch
        return epochs
