"""Followers that keep committed records which their leader lacks, until an operator accepts the loss.

Such a follower takes nothing and is not in sync. The broker says so in its log, again and again, and in its row: there
`cordwood cluster accept-loss` finds the partition, although it has a leader.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cordwood.cluster.metadata.rows import ALL_DAMAGED, damaged_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.node.replication.setting_aside import SettingAside
    from cordwood.replication.follower import FollowerReplica

logger = logging.getLogger("cordwood")

MOST_TOLD: Final = 100
"""The most partitions that the broker's row names."""


class Withheld:
    def __init__(self, loop: Loop, hosted: HostedReplicas, aside: SettingAside, reports: Reports) -> None:
        self._loop = loop
        self._hosted = hosted
        self._aside = aside
        self._reports = reports
        self._partitions = hosted.withheld
        self._told: tuple[str, ...] = ()

    def keep(self, partition: Partition, following: FollowerReplica, offset: int) -> None:
        """Keeps the log: the leader's history leaves this replica's at the offset, below its high watermark."""
        offsets = following.log.offsets
        self._reports.report(
            logging.ERROR,
            f"{partition.name}: broker {following.leader}, which leads, lacks committed records that are here: "
            f"offsets {offset} to {following.high_watermark - 1} (this log ends at {offsets.end}). Nothing is cut, and "
            "this replica is not in sync. Was the metadata store or a disk put back from an older copy? Put the right "
            f"one back, or give the records up: `cordwood cluster accept-loss {partition.name.topic} "
            f"{partition.name.partition}` sets them aside here; with --broker it lets this broker lead",
        )
        self._partitions[partition] = None
        self._tell()

    def give_up(
        self, partition: Partition, following: FollowerReplica, offset: int, ended: Callable[[bool], None]
    ) -> None:
        """Sets the log aside: it has committed records from this offset on that an operator has given up."""
        self.let_go(partition)
        logger.warning(
            "%s: an operator has accepted that the records from offset %d on are lost: the log is set aside, and a new "
            "one is filled from broker %d",
            partition.name,
            offset,
            following.leader,
        )
        reason = (
            f"its records from offset {offset} on were committed, the leader of epoch {following.leader_epoch} lacked "
            "them, and an operator accepted the loss"
        )
        self._aside.take(partition)
        self._aside.begin(partition, following, reason, ended)

    def let_go(self, partition: Partition) -> None:
        """Ends the keeping: the leader goes on from this log, or the log is set aside."""
        if self._partitions.pop(partition, partition) is None:
            self._tell()

    def _tell(self) -> None:
        for partition in [each for each in self._partitions if each.role.leads or not self._hosted.hosts(each)]:
            del self._partitions[partition]
        names = sorted(damaged_name(each.topic_id, each.name.partition) for each in self._partitions)
        withheld = tuple(names) if len(names) <= MOST_TOLD else (ALL_DAMAGED,)
        if withheld == self._told:
            return
        self._told = withheld

        def done(result: Exception | None) -> None:
            # The registration keeps the names, and a later renewal says them: they count as told.
            if isinstance(result, Exception):
                self._reports.failure(result)

        self._loop.effects.metadata(lambda writer: writer.registration.say_withheld(withheld), done)
