"""One partition on this node: its leader replica, and the acks and fetches that wait for it.

Three kinds of waiting exist, each woken by exactly one event: acks wait for this replica's disk, acks (and
coordinators) wait for the high watermark, and fetches wait for records.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from cordwood.model.errors import ErrorCode, ProtocolError
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
    """A partition that this node leads. The first use opens its log."""

    __slots__ = (
        "_open",
        "_replica",
        "appended_bytes",
        "fetched_bytes",
        "flush_due",
        "isr",
        "leader_epoch",
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
        leader_epoch: int,
        isr: tuple[int, ...],
        open_replica: Callable[["Partition"], LeaderReplica],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.leader_epoch = leader_epoch
        self.isr = isr
        self._open = open_replica
        self._replica: LeaderReplica | None = None
        self.waiting_durable: deque[WaitingAck] = deque()
        self.waiting_committed: deque[WaitingAck] = deque()
        self.waiting_readers: dict[WaitingReader, None] = {}
        self.unsynced_messages = 0
        self.flush_due = False
        self.appended_bytes = 0
        self.fetched_bytes = 0
        """Bytes sent to readers since the broker started."""

    @property
    def replica(self) -> LeaderReplica:
        if self._replica is None:
            self._replica = self._open(self)
        return self._replica

    @property
    def opened(self) -> LeaderReplica | None:
        """The replica if its log is open, for duties that must not open a log."""
        return self._replica

    @property
    def must_sync(self) -> bool:
        """Whether the ack of the last append waits for this replica's disk."""
        settings = self.settings
        return settings.ack_durability == "disk" or self.unsynced_messages >= settings.flush_messages

    def change_settings(self, settings: TopicSettings) -> None:
        self.settings = settings
        if self._replica is not None:
            self._replica.log.settings = settings

    def when_durable(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once this replica has synced the record at `offset`."""
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
        assert replica is not None, "a partition moves only once its log is open"
        if not replica.advance():
            return
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

    @property
    def has_waiters(self) -> bool:
        return bool(self.waiting_durable or self.waiting_committed or self.waiting_readers)

    def gone(self, error: ErrorCode, now: Moment) -> None:
        """Ends all waits: the partition was deleted, or this node no longer leads it."""
        for waiting in (self.waiting_durable, self.waiting_committed):
            while waiting:
                waiting.popleft().done(error)
        self.wake_readers(now)


def no_such_partition(name: str, index: int) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic {name!r}.")
