"""Cuts of followers' logs: in a thread, as soon as no checkpoint is under way, with a defined end if the disk fails.

While a log is cut it belongs to the thread, and the partition keeps its role. A cut that fails before its first change
leaves the log as it was. A cut that fails halfway leaves files as a crash in the middle of the cut does, and a log in
memory that no longer fits them: the log is forgotten, and the partition is offline until a use opens it, which recovers
it as a start does. A failed sync stops the broker.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from cordwood.model.errors import StorageFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.checkpoints import Checkpoints
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.flushes import FlushBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.replication.follower import FollowerReplica

logger = logging.getLogger("cordwood")


class Cuts:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        flushes: FlushBook,
        checkpoints: Checkpoints,
        damage: DamageBook,
        reports: Reports,
        after: Callable[[], None],
    ) -> None:
        """`after` is called when a cut is over: the partition may have another role then."""
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._flushes = flushes
        self._checkpoints = checkpoints
        self._damage = damage
        self._reports = reports
        self._after = after

    def begin(
        self,
        partition: Partition,
        following: FollowerReplica,
        offset: int,
        *,
        anew: bool,
        ended: Callable[[bool], None],
    ) -> None:
        """Cuts the log at this offset; `anew`: the log is emptied and goes on there. `ended` gets True if the cut
        succeeded, after the partition got its role from the image again."""
        offsets = following.log.offsets
        if offset < following.high_watermark and not anew:
            logger.error(
                "%s is cut at offset %d, below its high watermark %d: the leader %d lacks committed records",
                partition.name,
                offset,
                following.high_watermark,
                following.leader,
            )
        elif following.follows_accepted_loss and offset < offsets.end and not anew:
            logger.warning(
                "%s: an operator accepted a loss of records: those at offsets %d to %d, which the leader %d lacks, are "
                "cut, and may have been acknowledged since this broker last saved its high watermark, %d",
                partition.name,
                offset,
                offsets.end - 1,
                following.leader,
                following.high_watermark,
            )
        logger.info(
            "%s: %s offset %d (it ended at %d), as the leader %d of epoch %d has it",
            partition.name,
            "begins anew at" if anew else "is cut at",
            offset,
            offsets.end,
            following.leader,
            following.leader_epoch,
        )
        partition.begin_cut()
        # Clients that read here go to the leader: the log belongs to the thread.
        partition.waits.wake_readers(self._loop.now)
        self._checkpoints.when_idle(partial(self._cut, partition, following, offset, anew, ended))

    def _cut(
        self,
        partition: Partition,
        following: FollowerReplica,
        offset: int,
        anew: bool,
        ended: Callable[[bool], None],
    ) -> None:
        if not self._hosted.hosts(partition):
            partition.end_cut()
            return
        done = partial(self._done, partition, following, offset, anew, ended)
        try:
            cut = self._logs.begin_cut(following.log, offset, anew=anew)
        except StorageFailure as failure:
            done(failure)
        else:
            self._loop.effects.blocking(cut, done)

    def _done(
        self,
        partition: Partition,
        following: FollowerReplica,
        offset: int,
        anew: bool,
        ended: Callable[[bool], None],
        result: Exception | None,
    ) -> None:
        log = following.log
        usable = self._logs.end_cut(log)
        partition.end_cut()
        if usable:
            following.was_cut()
        if isinstance(result, Exception):
            self._failed(partition, offset, result, usable=usable)
        elif anew:
            self._damage.emptied(log, following.leader)
        if self._hosted.hosts(partition):
            if usable and log.offsets.end > log.offsets.durable_end:
                self._flushes.sync(partition)
            self._checkpoints.soon()
            self._hosted.follow_again(partition, self._loop.now)
            self._after()
        ended(result is None)

    def _failed(self, partition: Partition, offset: int, failure: Exception, *, usable: bool) -> None:
        self._reports.failed_write(failure)
        pause_ms = self._image.settings.replica_fetch_backoff_ms
        if usable:
            outcome = "nothing of it was changed"
        else:
            outcome = "it is offline here until its files are recovered"
            self._flushes.forget(partition)
            partition.lose_log()
        self._reports.report(
            logging.ERROR,
            f"{partition.name}: the cut at offset {offset} failed, {outcome}; tried again in {pause_ms} ms: {failure}",
        )
