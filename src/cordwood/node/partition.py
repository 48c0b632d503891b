"""One partition that this node hosts: leader or follower, and the acks and fetches that wait for it.

The image of the metadata decides who leads (`HostedReplicas`). A leader has a `LeaderReplica` from the first use of its
log on, one for each leader epoch. A follower keeps its log and serves nobody. A partition whose log cannot be opened is
offline: each use tries again, and fails with the StorageFailure of the attempt.

Three kinds of waiting exist, each woken by exactly one event: acks wait for this replica's disk, acks (and
coordinators) wait for the high watermark, and fetches wait for records.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.topic_settings import TopicSettings
from cordwood.replication.leader import LeaderReplica

Done = Callable[[ErrorCode], None]


class WaitingAck:
    """A callback for an offset, called once: at the offset, at the deadline, or when the partition goes away."""

    __slots__ = ("deadline_ms", "done", "offset")

    def __init__(self, offset: int, deadline_ms: int, done: Done) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.done = done


class WaitingReader(Protocol):
    def woken_by(self, partition: "Partition", now: Moment) -> None: ...


class Partition:
    """A partition that this node hosts. The first use opens its log."""

    __slots__ = (
        "_broker_id",
        "_high_watermark",
        "_log",
        "_open",
        "_replica",
        "appended_bytes",
        "fetched_bytes",
        "flush_due",
        "isr",
        "leader_epoch",
        "leads",
        "name",
        "settings",
        "topic_id",
        "unsynced_messages",
        "waiting_committed",
        "waiting_durable",
        "waiting_readers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        settings: TopicSettings,
        broker_id: int,
        open_log: Callable[["Partition"], Log],
    ) -> None:
        """A follower; `lead` makes it the leader."""
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.leads = False
        self.leader_epoch = -1
        """The epoch in which the partition is led, here or elsewhere."""
        self.isr: tuple[int, ...] = ()
        self._broker_id = broker_id
        self._open = open_log
        self._log: Log | None = None
        self._replica: LeaderReplica | None = None
        self._high_watermark = 0
        """The last high watermark of an earlier leadership."""
        self.waiting_durable: deque[WaitingAck] = deque()
        self.waiting_committed: deque[WaitingAck] = deque()
        self.waiting_readers: dict[WaitingReader, None] = {}
        self.unsynced_messages = 0
        self.flush_due = False
        self.appended_bytes = 0
        self.fetched_bytes = 0
        """Bytes sent to readers since the broker started."""

    # The log and its leader

    @property
    def replica(self) -> LeaderReplica:
        """The leader. Raises NOT_LEADER_OR_FOLLOWER, or StorageFailure if the log cannot be opened."""
        return self._replica or self._take_the_lead()

    @property
    def log(self) -> Log:
        """The log, whoever leads. Raises StorageFailure if it cannot be opened."""
        if self.leads:
            return self.replica.log
        return self._log or self._opened_log()

    @property
    def opened(self) -> Log | None:
        """The log if it is open, for duties that must not open a log."""
        return self._log

    @property
    def leading(self) -> LeaderReplica | None:
        """The leader if its log is open, for duties that must not open a log."""
        return self._replica

    @property
    def high_watermark(self) -> int:
        """The high watermark as far as this broker knows it. The log has to be open."""
        replica, log = self._replica, self._log
        if replica is not None:
            return replica.high_watermark
        assert log is not None
        return max(self._high_watermark, log.offsets.start)

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader, as far as this broker knows it. The log has to be open."""
        log = self._log
        assert log is not None
        return max(log.replayed.last_stable_offset(self.high_watermark), log.offsets.start)

    def _opened_log(self) -> Log:
        log = self._log = self._open(self)
        return log

    def _take_the_lead(self) -> LeaderReplica:
        if not self.leads:
            raise not_led_here(*self.name)
        log = self._log or self._opened_log()
        replica = self._replica = LeaderReplica(
            log,
            self._broker_id,
            self.leader_epoch,
            self.isr,
            self.settings.min_insync_replicas,
            high_watermark=self._high_watermark,
        )
        return replica

    # Leadership

    def lead(self, leader_epoch: int, isr: tuple[int, ...], now: Moment) -> None:
        """Leads from now on, in this epoch. Waits of an earlier epoch of this leader go on."""
        if self.leads and leader_epoch == self.leader_epoch:
            if isr != self.isr:
                self.isr = isr
                if self._replica is not None and self._replica.change_isr(isr):
                    self._watermark_moved(self._replica, now)
            return
        self._end_replica()
        self.leads, self.leader_epoch, self.isr = True, leader_epoch, isr
        if self._log is not None:
            with suppress(StorageFailure):  # offline: the next use tries again
                self._watermark_moved(self._take_the_lead(), now)

    def follow(self, leader_epoch: int, isr: tuple[int, ...]) -> list[WaitingAck]:
        """Leads no longer. Returns the acks that waited; the caller ends them, and wakes the readers."""
        self._end_replica()
        self.leads, self.leader_epoch, self.isr = False, leader_epoch, isr
        return self.take_acks()

    def _end_replica(self) -> None:
        if self._replica is not None:
            self._high_watermark = self._replica.high_watermark
            self._replica = None

    def followers_vouch(self, now: Moment) -> bool:
        """Whether followers vouch that no other leader was elected. A leader alone in its ISR has nobody to vouch."""
        return False

    @property
    def must_sync(self) -> bool:
        """Whether the ack of the last append waits for this replica's disk."""
        settings = self.settings
        return settings.ack_durability == "disk" or self.unsynced_messages >= settings.flush_messages

    def change_settings(self, settings: TopicSettings, now: Moment) -> None:
        self.settings = settings
        if self._log is not None:
            self._log.change_settings(settings)
        if self._replica is not None and self._replica.change_min_insync(settings.min_insync_replicas):
            self._watermark_moved(self._replica, now)

    # Waiting

    def when_durable(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once the record at `offset` is on this replica's disk."""
        self.waiting_durable.append(WaitingAck(offset, deadline_ms, done))

    def when_committed(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once every in-sync replica has the record at `offset`."""
        self.waiting_committed.append(WaitingAck(offset, deadline_ms, done))

    def synced(self, durable_end_offset: int, now: Moment) -> None:
        """Wakes the acks below the log's new durable end."""
        waiting = self.waiting_durable
        while waiting and waiting[0].offset < durable_end_offset:
            waiting.popleft().done(ErrorCode.NONE)
        self.moved(now)

    def moved(self, now: Moment) -> None:
        """Advances the high watermark after the log's or a follower's end moved, and wakes acks and readers."""
        replica = self._replica
        if replica is not None and replica.advance():
            self._watermark_moved(replica, now)

    def _watermark_moved(self, replica: LeaderReplica, now: Moment) -> None:
        waiting = self.waiting_committed
        high_watermark = replica.high_watermark
        while waiting and waiting[0].offset < high_watermark:
            waiting.popleft().done(ErrorCode.NONE)
        if self.waiting_readers:
            self.wake_readers(now)

    def wake_readers(self, now: Moment) -> None:
        for reader in list(self.waiting_readers):
            reader.woken_by(self, now)

    def expire_acks(self, now: Moment) -> bool:
        """Answers acks past their deadline with REQUEST_TIMED_OUT. True if other acks still wait."""
        for waiting in (self.waiting_durable, self.waiting_committed):
            if any(ack.deadline_ms <= now.boot_ms for ack in waiting):
                kept = [ack for ack in waiting if ack.deadline_ms > now.boot_ms]
                expired = [ack for ack in waiting if ack.deadline_ms <= now.boot_ms]
                waiting.clear()
                waiting.extend(kept)
                for ack in expired:
                    ack.done(ErrorCode.REQUEST_TIMED_OUT)
        return bool(self.waiting_durable or self.waiting_committed)

    def take_acks(self) -> list[WaitingAck]:
        """Takes all waiting acks away, for a caller that ends them."""
        taken = [*self.waiting_durable, *self.waiting_committed]
        self.waiting_durable.clear()
        self.waiting_committed.clear()
        return taken


def no_such_partition(name: str, index: int) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic {name!r}.")


def not_led_here(name: str, index: int) -> ProtocolError:
    return ProtocolError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {index} of topic {name!r} is not led by this broker."
    )
