"""Acks and coordinators that wait until a record is as safe as they ask for, each with a deadline."""

from collections.abc import Iterable, Iterator

from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.waits import Done, WaitingAck

ALL_REPLICAS = -1
ACK_EXPIRY_INTERVAL_MS = 500

ENDED_PER_STEP = 64
"""The most partitions whose waiting requests end in one turn: the topic was deleted, or the requests took too long."""

Ended = tuple[Partition, list[WaitingAck]]
"""A partition whose waits end, and the acks that were taken from it."""


class Acks:
    """The partitions with acks that wait; the acks themselves wait in their partitions."""

    def __init__(self, loop: Loop, flushes: FlushBook, hosted: HostedReplicas) -> None:
        self._loop = loop
        self._flushes = flushes
        self._hosted = hosted
        self._partitions: dict[Partition, None] = {}
        self._expiring = False

    def schedule(self, now: Moment) -> None:
        self._loop.timers.at(now.boot_ms + ACK_EXPIRY_INTERVAL_MS, self._expire)

    def when_safe(self, partition: Partition, offset: int, acks: int, deadline_ms: int, done: Done) -> None:
        """Calls back when a record is as safe as its acks ask for."""
        if partition.replica.high_watermark > offset or acks != ALL_REPLICAS:
            partition.waits.when_durable(offset, deadline_ms, done)
        else:
            partition.waits.when_committed(offset, deadline_ms, done, needs_enough=True)
        self._partitions[partition] = None

    def when_committed(
        self, partition: Partition, offset: int, deadline_ms: int, done: Done, *, needs_enough: bool = False
    ) -> None:
        """Calls back when a record is committed. `needs_enough`: the wait ends if the in-sync set gets too small."""
        if not partition.role.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        partition.waits.when_committed(offset, deadline_ms, done, needs_enough=needs_enough)
        self._partitions[partition] = None

    def when_durable(self, partition: Partition, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls back when a record is on this node's disk, whatever the acks of its topic mean."""
        if not partition.role.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition.replica.log.offsets.durable_end > offset:
            done(ErrorCode.NONE)
            return
        self._flushes.sync(partition)
        partition.waits.when_durable(offset, deadline_ms, done)
        self._partitions[partition] = None

    def when_starts_reach(self, partition: Partition, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls back when every replica that may be elected has saved a log start of at least this offset."""
        if not self._hosted.still_leads(partition):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition.replica.saved_by_successors >= offset:
            done(ErrorCode.NONE)
            return
        partition.waits.when_starts_reach(offset, deadline_ms, done)
        self._partitions[partition] = None

    def forget(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)

    def end(self, ended: Iterable[Ended], error: ErrorCode) -> None:
        """Ends all waits for these partitions: acks get the error, readers look again. Some now, others in turns."""
        waited = [each for each in ended if each[1] or each[0].waits.readers or each[0].waits.followers]
        self._loop.in_turns.begin_steps(self._end_in_steps(waited, error))

    def _end_in_steps(self, ended: list[Ended], error: ErrorCode) -> Iterator[None]:
        for number, (partition, acks) in enumerate(ended, 1):
            for ack in acks:
                ack.done(error)
            partition.waits.wake_everybody(self._loop.now)
            if number % ENDED_PER_STEP == 0:
                yield

    def _expire(self, now: Moment) -> None:
        self.schedule(now)
        if self._partitions and not self._expiring:
            self._expiring = True
            self._loop.in_turns.begin_steps(self._expire_in_steps())

    def _expire_in_steps(self) -> Iterator[None]:
        """Expires acks in steps: a disk that hangs lets the acks of all partitions expire at the same time.

        A leader that is cut off from the others hears of no successor. Its producers are told to look for one, instead
        of waiting here until their requests time out.
        """
        for number, partition in enumerate(list(self._partitions), 1):
            if partition.waits.committed and self._hosted.may_be_replaced(partition):
                partition.waits.end_producers(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not partition.waits.expire(self._loop.now):
                self._partitions.pop(partition, None)
            if number % ENDED_PER_STEP == 0:
                yield
        self._expiring = False
