"""State that the batches of one log give: producers with their transactions, and leader epochs.

Appends keep the state current. A start restores it by a replay of the log's end (replay.py); after a clean stop the
first use does so, so that a start does not read every log.
"""

from collections.abc import Callable

from cordwood.log.parts.producers import ProducerStates
from cordwood.segments.leader_epochs import LeaderEpochs


class Replayed:
    __slots__ = (
        "_at_first_use",
        "_leader_epochs",
        "_producers",
        "epochs_changed",
        "latest_epoch",
        "ready",
    )

    def __init__(self) -> None:
        self.ready = True
        """False from a clean start until the first use: the end of the active segment has not been checked."""
        self._at_first_use: Callable[[], None] | None = None
        self._leader_epochs: LeaderEpochs | None = None
        self._producers: ProducerStates | None = None
        self.latest_epoch = -1
        self.epochs_changed = False
        """True if the next checkpoint has to save the leader epochs."""

    def wait_for_first_use(self, make_ready: Callable[[], None]) -> None:
        """Calls `make_ready` at the first use."""
        self.ready = False
        self._at_first_use = make_ready

    def make_ready(self) -> None:
        """Prepares the first use. Only called while the log is not ready."""
        assert self._at_first_use is not None
        self._at_first_use()
        self._at_first_use = None

    def take(self, producers: ProducerStates, leader_epochs: LeaderEpochs) -> None:
        """Takes the state that a replay of the log gave. Only now is the log ready: after a failed replay the next use
        replays again, since a log without its producers would take duplicates and show open transactions."""
        self._producers = producers
        self._leader_epochs = leader_epochs
        self.latest_epoch = leader_epochs.latest
        self.ready = True

    # Producers

    @property
    def producers(self) -> ProducerStates:
        if not self.ready:
            self.make_ready()
        if self._producers is None:
            self._producers = ProducerStates()
        return self._producers

    @property
    def producer_count(self) -> int:
        """The number of remembered producers; 0 if none was read yet."""
        return 0 if self._producers is None else len(self._producers)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open, or none was read yet."""
        return None if self._producers is None else self._producers.first_open_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end for read_committed readers, given the high watermark."""
        if self.ready and self._producers is None:
            return high_watermark
        return self.producers.last_stable_offset(high_watermark)

    def committed_to(self, high_watermark: int) -> None:
        """Forgets ended transactions below the new high watermark."""
        if self._producers is not None:
            self._producers.committed_to(high_watermark)

    def expire_producers(self, boot_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have written nothing for `expiration_ms`."""
        if self.ready and self._producers is not None and len(self._producers):
            self._producers.expire(boot_ms, expiration_ms)

    # Leader epochs

    @property
    def leader_epochs(self) -> LeaderEpochs:
        if not self.ready:
            self.make_ready()
        if self._leader_epochs is None:
            self._leader_epochs = LeaderEpochs()
        return self._leader_epochs

    def begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Records the start of a leader's epoch, even if the leader never writes in it."""
        if leader_epoch < 0:
            return
        if note_epoch(self.leader_epochs, leader_epoch, start_offset):
            self.epochs_changed = True
        self.latest_epoch = leader_epoch

    def start_at(self, log_start_offset: int) -> None:
        """Forgets the epochs that end before the log's new start."""
        if self.leader_epochs.truncate_to_start(log_start_offset):
            self.epochs_changed = True


def note_epoch(epochs: LeaderEpochs, epoch: int, start_offset: int) -> bool:
    """Notes that an epoch begins at this offset; True if the epochs changed.

    Entries with a later epoch are removed: no CRC covers a batch's epoch, so such an entry comes from damage.
    """
    changed = False
    while epochs.latest > epoch and epochs.entries:
        changed |= epochs.truncate_to_end(epochs.entries[-1].start_offset)
    return epochs.assign(epoch, start_offset) or changed if epoch >= 0 else changed
