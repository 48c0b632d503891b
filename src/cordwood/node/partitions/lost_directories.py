"""Data directories whose disks fail while the broker runs: only their partitions go offline.

A failed sync of a directory, or a failed write and then a failed probe, ends the use of the directory until the next
start. A directory that was renamed or unmounted counts as failed, too: a partition that began anew at its path would
lose its acknowledged records as soon as the directory is back. This broker no longer leads the partitions of such a
directory: clients are told KAFKA_STORAGE_ERROR, and in a cluster the broker takes itself out of their in-sync sets, so
that other replicas lead. A partition that no other replica has stays with this broker: its records may be there again
after a restart. Without the home, which has the metadata, the broker cannot go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.planner.failover import plan_leaving
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.model.errors import DamagedLog, DiskFull, StorageFailure, SyncFailure
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.hosted import Deposed, HostedReplicas
from cordwood.node.partitions.partition import Partition

logger = logging.getLogger("cordwood")

AGAIN_MS = 1_000
"""The pause between two probes of the disks, and between two attempts to leave in-sync sets."""


class LostDirectories:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        flushes: FlushBook,
        on_lost: Callable[[DataDirectory], None],
        deposed: Callable[[list[Deposed]], None],
        *,
        shared: bool,
    ) -> None:
        """`on_lost` is called when a directory is lost, before its partitions go offline; `deposed` with the partitions
        that went offline. `shared`: other brokers share the metadata."""
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._flushes = flushes
        self._shared = shared
        self._on_lost = on_lost
        self._deposed = deposed
        self._offline: dict[Partition, None] = {}
        self._probing = False
        self._leaving = False

    # Failures

    def survived(self, failure: StorageFailure, path: str | None = None) -> bool:
        """True if the broker can go on after a failed sync, without the directory that failed."""
        root = failure.root if path is None and isinstance(failure, SyncFailure) else path
        directory = None if root is None else self._logs.directory_at(root)
        if directory is None or directory is self._logs.home:
            return False
        self._lose(directory, failure)
        return True

    def suspect(self, failure: Exception) -> None:
        """Probes the disks after a failure that may affect a whole disk."""
        if self._probing or not isinstance(failure, StorageFailure) or isinstance(failure, DiskFull | DamagedLog):
            return
        self._probing = True

        def probed(found: list[tuple[DataDirectory, StorageFailure]] | Exception) -> None:
            self._loop.after(AGAIN_MS, self._may_probe)
            self._fail([] if isinstance(found, Exception) else found)

        self._loop.effects.blocking(self._logs.probe, probed)

    def look(self) -> None:
        """Checks, waiting for the disks, that all directories are at their paths: before a stop checkpoints them."""
        self._fail(self._logs.gone())

    def _fail(self, failed: list[tuple[DataDirectory, StorageFailure]]) -> None:
        """Goes on without these directories. Raises the failure of the home."""
        for directory, why in failed:
            if directory is self._logs.home:
                raise why
            self._lose(directory, why)

    def _may_probe(self, now: Moment) -> None:
        self._probing = False

    def _lose(self, directory: DataDirectory, failure: StorageFailure) -> None:
        logs = self._logs
        known = directory in logs.lost
        if not known:
            logger.critical(
                "the data directory %s failed, and its partitions are offline until the next start: %s",
                directory.path,
                failure,
            )
            self._on_lost(directory)
        here = [each for each in self._hosted if not each.role.offline and logs.directory_of(each.name) is directory]
        gone = [partition for partition in here if not partition.role.being_cut]
        for partition in gone:
            self._flushes.forget(partition)
            self._offline[partition] = None
        if not known:
            logs.lose(directory)
        self._deposed([self._hosted.take_offline(partition) for partition in gone])
        if len(gone) < len(here):
            # A thread has the logs of the other partitions. Their cuts fail or end.
            self._loop.after(AGAIN_MS, lambda now: self._lose(directory, failure))
        self.leave()

    # In a cluster

    def leave(self) -> None:
        """Takes this broker out of the in-sync sets of partitions that are offline here, if it is in any."""
        own = self._image.node_id
        if not self._shared or not self._offline or self._leaving:
            return
        for partition in [each for each in self._offline if not self._hosted.hosts(each)]:
            del self._offline[partition]
        names: list[tuple[str, int]] = []
        for partition in self._offline:
            members = {*partition.image.isr, *partition.image.elr}
            if own in members and len(members) > 1:
                names.append(partition.name)
        if not names:
            return
        self._leaving = True

        def left(result: object) -> None:
            if isinstance(result, Exception):
                logger.error("partitions of a failed data directory keep this broker in sync: %s", result)
            self._loop.after(AGAIN_MS, self._left)

        self._loop.effects.metadata(
            lambda writer: writer.partitions.change(names, lambda name: plan_leaving(writer.image, *name, own)), left
        )

    def _left(self, now: Moment) -> None:
        self._leaving = False
        self.leave()
