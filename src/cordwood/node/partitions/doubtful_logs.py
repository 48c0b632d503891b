"""Logs that may lack records at their ends, or at their beginnings: this broker leaves their in-sync sets, so that
other replicas lead.

The saved offsets say that a log had records which its files do not have: its directory or its last files were removed.
The former end of the log is unknown. Followers of such a leader would cut off acknowledged records that only they have,
and the leader would give the lost offsets out again. So the replica does not lead (`HostedReplicas`), takes no records
while it counts as in sync, and leaves ISR and ELR: after a start before the broker's fence is lifted, else as soon as
the loss is found. Then it follows another replica. Without a replica to follow, a log that is wholly gone waits for an
operator; a log that has records goes on with them, as no replica can have more.

A log whose first file lies behind its start for no recorded reason may lack files at its beginning. As a leader it
would make followers delete records that only they have. So the replica gives way, too, and neither tells nor saves its
start. A leader with the same or a later start ends the doubt; behind a leader with an earlier start the log is filled
anew. Without others in sync the log leads on in doubt: replicas that come back keep their records, and the first of
them that is in sync leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.partition_writer import PartitionName
from cordwood.cluster.planner.failover import plan_leaving, plan_resignation
from cordwood.cluster.planner.isr import GuardedPut
from cordwood.log.log import Log
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.hosted import Deposed, HostedReplicas
from cordwood.node.partitions.partition import Partition

AGAIN_MS = 1_000
"""The pause between two attempts to leave in-sync sets."""


class DoubtfulLogs:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        hosted: HostedReplicas,
        reports: Reports,
        deposed: Callable[[list[Deposed]], None],
        *,
        shared: bool,
    ) -> None:
        """`deposed` is called with the partitions that this broker no longer leads. `shared`: other brokers share the
        metadata."""
        self._loop = loop
        self._image = image
        self._hosted = hosted
        self._reports = reports
        self._shared = shared
        self._deposed = deposed
        self._found: dict[Partition, None] = {}
        self._leaving = False

    def found(self, partition: Partition, log: Log) -> None:
        """Takes in an opened log that may lack records."""
        if not partition.replicated:
            log.start_is_known()
            return
        where = "are missing at the end of its log"
        if not log.offsets.end_in_doubt:
            where = f"may be missing at the beginning of its log, before offset {log.offsets.start}"
        self._reports.report(logging.ERROR, f"{partition.name}: records {where}: another replica has to lead")
        self._found[partition] = None
        self._loop.after(0, lambda now: self._give_way(partition, now))

    def _give_way(self, partition: Partition, now: Moment) -> None:
        if not partition.role.being_cut and (deposed := self._hosted.follow_again(partition, now)) is not None:
            self._deposed([deposed])
        self.leave()

    @property
    def names(self) -> list[PartitionName]:
        """The partitions with a doubtful log."""
        for partition in list(self._found):
            log = partition.opened
            if not self._hosted.hosts(partition) or log is None or not log.in_doubt:
                del self._found[partition]
        return [partition.name for partition in self._found]

    def leave(self) -> None:
        """Takes this broker out of the in-sync sets of these partitions, if it is in any."""
        if not self._found or not self._shared or self._leaving:
            return
        own = self._image.node_id
        names = [name for name in self.names if self._plan(name, own) is not None]
        if not names:
            return
        self._leaving = True

        def left(result: object) -> None:
            if isinstance(result, Exception):
                self._reports.failure(result)
            self._loop.after(AGAIN_MS, self._left)

        self._loop.effects.metadata(
            lambda writer: writer.partitions.change(names, lambda name: self._plan(name, own)), left
        )

    def _plan(self, name: PartitionName, own: int) -> GuardedPut | None:
        """Lets other replicas lead. Without others a log that has records leads on with them; a partition whose log is
        gone has no leader until an operator accepts the loss."""
        leaving = plan_leaving(self._image, *name, own)
        partition = self._hosted.get(*name)
        if leaving is not None or partition is None or partition.opened is None or not partition.opened.lost:
            return leaving
        return plan_resignation(self._image, *name, own)

    def _left(self, now: Moment) -> None:
        self._leaving = False
        self.leave()
