"""Retention and rolling by the clock: one visit to each hosted partition.

Partitions are visited a few at a time, so that ten thousand partitions do not stall the loop.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.upkeep.retention import DROPPED_AT_ONCE
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.checkpoints import Checkpoints
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.segments.filesystem import Filesystem, remove_if_there

logger = logging.getLogger("cordwood")

PARTITIONS_PER_STEP = 32
PAUSE_MS = 5


class Maintenance:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        checkpoints: Checkpoints,
        reports: Reports,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._checkpoints = checkpoints
        self._reports = reports
        self._sweep: Iterator[Partition] | None = None
        self._dropping: set[Partition] = set()
        """Partitions with very many segments to drop."""
        self._removing: set[Partition] = set()
        """Partitions with files of dropped segments that a timer will remove."""

    def schedule(self, now: Moment) -> None:
        self._loop.timers.at(now.boot_ms + self._image.settings.log_retention_check_interval_ms, self._begin_sweep)

    def _begin_sweep(self, now: Moment) -> None:
        self.schedule(now)
        if self._sweep is None:
            self._sweep = iter(list(self._hosted))
            self._continue_sweep(now)

    def _continue_sweep(self, now: Moment) -> None:
        assert self._sweep is not None
        dropped = 0
        for _ in range(PARTITIONS_PER_STEP):
            partition = next(self._sweep, None)
            if partition is None:
                self._sweep = None
                return
            dropped += self._visit(partition, now)
            if dropped >= DROPPED_AT_ONCE:
                break
        self._loop.timers.at(now.boot_ms + PAUSE_MS, self._continue_sweep)

    def drop_soon(self, partition: Partition) -> None:
        """Drops segments of a partition that has very many to drop, some in each of the next turns."""
        if partition not in self._dropping:
            self._dropping.add(partition)
            self._loop.in_turns.add_steps(self._drop(partition))

    def _drop(self, partition: Partition) -> Iterator[None]:
        while self._visit(partition, self._loop.now) >= DROPPED_AT_ONCE:
            yield
        self._dropping.discard(partition)

    def _visit(self, partition: Partition, now: Moment) -> int:
        """Rolls and drops segments of a partition as its settings ask. Returns the number of dropped segments."""
        if not self._hosted.hosts(partition) or partition.role.being_cut:
            return 0
        if partition.opened is None and not self._logs.has_log(partition.name):
            return 0
        try:
            log = partition.log
            if log.roll_if_due(now.wall_ms):
                # Compaction takes only segments below the saved recovery point.
                self._checkpoints.soon()
            log.replayed.expire_producers(now.boot_ms, self._image.settings.producer_id_expiration_ms)
            removed = log.apply_retention(now, limit_offset=partition.high_watermark)
        except StorageFailure as failure:
            self._reports.failed_write(failure)
            return 0
        for deleted in removed:
            logger.info(
                "%s: removed offsets %d to %d (%d bytes): %s",
                partition.name,
                deleted.base_offset,
                deleted.end_offset - 1,
                deleted.size_bytes,
                deleted.reason,
            )
        self.remove_dropped(partition)
        if removed:
            self._checkpoints.soon()
            # A waiting fetch may hold slices of the removed segments.
            partition.waits.wake_everybody(now)
        if len(removed) >= DROPPED_AT_ONCE:
            self.drop_soon(partition)
        return len(removed)

    def remove_dropped(self, partition: Partition) -> None:
        """Removes the files of dropped segments, each file.delete.delay.ms after the segment was dropped: a full disk
        needs the room."""
        log, now_ms = partition.opened, self._loop.now.boot_ms
        if log is None or partition.role.being_cut or not self._hosted.hosts(partition):
            return
        if due := log.segments.take_due_deletions(now_ms):
            filesystem, save_start = log.directory.filesystem, log.offsets.on_removal()
            self._loop.effects.blocking(lambda: _remove(filesystem, due, save_start), self._removed)
        waiting = [each.due_ms for each in log.segments.deletions if each.due_ms is not None]
        if waiting and partition not in self._removing:
            self._removing.add(partition)

            def now_due(now: Moment) -> None:
                self._removing.discard(partition)
                self.remove_dropped(partition)

            self._loop.timers.at(max(min(waiting), now_ms + PAUSE_MS), now_due)

    def _removed(self, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._reports.failed_write(result)


def _remove(filesystem: Filesystem, paths: list[str], save_start: Callable[[], None]) -> None:
    """Removes the files of dropped segments once the start of their log is on disk."""
    try:
        save_start()
    except DiskFull:
        # An emptied file makes room for the save, and its name still shows that it was dropped.
        for path in paths:
            with suppress(FileNotFoundError):
                filesystem.open(path).truncate(0)
        save_start()
    for path in paths:
        remove_if_there(filesystem, path)
