"""Tells the controller the ends of logs, for partitions whose replicas may all have lost acknowledged records.

The partition's row asks (`PartitionImage.seeks_longest_log`), and the broker's row answers: the replica with the
longest log is elected (`cluster/planner/survivors.py`). The partition has no leader meanwhile, so the end stays. The
answer is removed when the partition has a leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cordwood.cluster.metadata.rows import LogEnd, damaged_name
from cordwood.model.errors import StorageFailure

if TYPE_CHECKING:
    from cordwood.model.moment import Moment
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition

MOST_TOLD: Final = 1_000
"""The most ends in the broker's row. When these partitions have leaders, the next are told."""
AGAIN_MS: Final = 1_000
"""The pause before another look at logs that could not be opened, or that a thread has."""
UNKNOWN_EPOCH: Final = -1


class LogEnds:
    def __init__(self, loop: Loop, hosted: HostedReplicas, reports: Reports) -> None:
        self._loop = loop
        self._hosted = hosted
        self._reports = reports
        self._asked: dict[Partition, None] = {}
        self._told: tuple[LogEnd, ...] = ()
        self._busy = False
        """True if logs are looked at, or the broker's row is written."""
        self._again = False
        """True if partitions were asked for, or got leaders, since the present look began."""

    def role_changed(self, partition: Partition) -> None:
        """Looks whether the partition's row asks for the end of its log."""
        if partition.image.seeks_longest_log and self._hosted.hosts(partition):
            self._asked[partition] = None
        elif self._asked.pop(partition, partition) is partition:
            return
        self._look_soon()

    def _look_soon(self) -> None:
        self._again = True
        if not self._busy:
            self._busy = True
            # The look comes later: one change of the image asks for many partitions.
            self._loop.after(0, self._look)

    def _look(self, now: Moment) -> None:
        self._again = False
        self._loop.in_turns.begin_steps(self._in_steps())

    def _in_steps(self) -> Iterator[None]:
        """Looks at one log in each turn: the first use of a log reads its files."""
        ends = []
        for partition in list(self._asked):
            if partition in self._asked and (end := self._end_of(partition)) is not None:
                ends.append(end)
            yield
        if len(ends) < len(self._asked):
            self._loop.after(AGAIN_MS, lambda now: self._look_soon())
        self._tell(tuple(sorted(ends)[:MOST_TOLD]))

    def _end_of(self, partition: Partition) -> LogEnd | None:
        """The end of a log; None: it is not known now."""
        if partition.role.being_cut or partition.role.offline:
            return None
        name, leader_epoch = damaged_name(partition.topic_id, partition.name.partition), partition.image.leader_epoch
        try:
            log = partition.log
            # The first use of a log may find that it ends earlier.
            epochs, offsets = log.replayed.leader_epochs, log.offsets
            if log.lost:
                return LogEnd(name, leader_epoch, UNKNOWN_EPOCH, 0, 0)
            last_epoch = epochs.epoch_at(offsets.end - 1) if offsets.start < offsets.end else UNKNOWN_EPOCH
            return LogEnd(name, leader_epoch, last_epoch, offsets.end, offsets.told_start)
        except StorageFailure as failure:
            self._reports.failure(failure)
            return None

    def _tell(self, ends: tuple[LogEnd, ...]) -> None:
        if ends == self._told:
            self._over()
            return
        self._told = ends

        def done(result: Exception | None) -> None:
            # The registration keeps the ends, and a later renewal says them: they count as told.
            if isinstance(result, Exception):
                self._reports.failure(result)
            self._over()

        self._loop.effects.metadata(lambda writer: writer.registration.say_log_ends(ends), done)

    def _over(self) -> None:
        self._busy = False
        if self._again:
            self._look_soon()
