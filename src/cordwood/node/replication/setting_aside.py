"""Sets a follower's whole log aside, in a thread and as soon as no checkpoint is under way: a new log is filled from
the leader."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.checkpoints import Checkpoints
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.flushes import FlushBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.log_opening import LogOpening
    from cordwood.node.partitions.partition import Partition
    from cordwood.replication.follower import FollowerReplica


class SettingAside:
    def __init__(
        self,
        loop: Loop,
        logs: DataDirectories,
        hosted: HostedReplicas,
        flushes: FlushBook,
        checkpoints: Checkpoints,
        damage: DamageBook,
        opening: LogOpening,
        reports: Reports,
        after: Callable[[], None],
    ) -> None:
        """`after` is called when a log was set aside, or could not be: the partition may have another role then."""
        self._loop = loop
        self._logs = logs
        self._hosted = hosted
        self._flushes = flushes
        self._checkpoints = checkpoints
        self._damage = damage
        self._opening = opening
        self._reports = reports
        self._after = after

    def take(self, partition: Partition) -> None:
        """Takes the log from all other users until `give_back`, or the end of `begin`. Clients that read here go to the
        leader."""
        partition.begin_cut()
        partition.waits.wake_readers(self._loop.now)

    def give_back(self, partition: Partition) -> None:
        partition.end_cut()
        if self._hosted.hosts(partition):
            self._hosted.follow_again(partition, self._loop.now)
            self._after()

    def begin(
        self,
        partition: Partition,
        following: FollowerReplica,
        reason: str,
        ended: Callable[[bool], None],
        *,
        until_in_sync: bool = False,
    ) -> None:
        """Sets a log aside that was taken; `ended` gets True if that succeeded. `until_in_sync`: its files are removed
        when the replica is in sync again."""
        self._checkpoints.when_idle(partial(self._begin, partition, following, reason, ended, until_in_sync))

    def _begin(
        self,
        partition: Partition,
        following: FollowerReplica,
        reason: str,
        ended: Callable[[bool], None],
        until_in_sync: bool,
    ) -> None:
        if not self._hosted.hosts(partition):
            partition.end_cut()
            return
        # From here on the log is forgotten: the next use opens the new one, or fails until the old name is free.
        self._flushes.forget(partition)
        partition.lose_log()
        aside = self._logs.set_logs_aside(
            [(partition.topic_id, partition.name)], reason, self._loop.now.wall_ms, until_in_sync=until_in_sync
        )

        def renamed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._reports.failed_write(result)
            else:
                self._damage.emptied(following.log, following.leader)
                self._opening.report_set_aside()
            self.give_back(partition)
            ended(result is None)

        self._loop.effects.blocking(aside.run, renamed)
