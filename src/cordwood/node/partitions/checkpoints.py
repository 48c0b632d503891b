"""Checkpoints: index entries, snapshots and recovery points of changed logs are saved, which keeps recovery short."""

from collections.abc import Callable, Iterator
from functools import partial

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import CheckpointOfAll, DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.log import Log
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.flushes import FlushBook

SOON_MS = 1000


class Checkpoints:
    """One checkpoint at a time, by the clock and soon after a segment was rolled, dropped or compacted."""

    def __init__(
        self, loop: Loop, image: ClusterImage, logs: DataDirectories, flushes: FlushBook, reports: Reports
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._flushes = flushes
        self._reports = reports
        self._due = False
        self._under_way = False
        self._when_idle: list[Callable[[], None]] = []

    def schedule(self, now: Moment) -> None:
        interval_ms = self._image.settings.log_flush_offset_checkpoint_interval_ms
        self._loop.timers.at(now.boot_ms + interval_ms, self._again)

    def soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.after(SOON_MS, self._once)

    def when_idle(self, work: Callable[[], None]) -> None:
        """Calls back when no checkpoint is under way: now, or after the present one."""
        if self._under_way:
            self._when_idle.append(work)
        else:
            work()

    def of_one(self, directory: DataDirectory, log: Log, then: Callable[[Exception | None], None]) -> None:
        """Checkpoints one log, as soon as no checkpoint is under way. None begins before `then` has returned."""
        if self._under_way:
            self._when_idle.append(partial(self.of_one, directory, log, then))
            return
        self._under_way = True

        def over(result: Exception | None) -> None:
            try:
                then(result if isinstance(result, Exception) else None)
            finally:
                self._over(None)

        def book() -> Iterator[None]:
            save = yield from directory.checkpoints.finish_in_steps(
                checkpoint, lambda each: self._flushes.became_durable(each.offsets, self._loop.now)
            )
            self._loop.effects.blocking(save, over)

        def written(result: Exception | None) -> None:
            if isinstance(result, Exception):
                over(result)
            else:
                self._loop.in_turns.begin_steps(book())

        checkpoint = directory.checkpoints.begin([log])
        self._loop.effects.blocking(checkpoint.write, written)

    def _once(self, now: Moment) -> None:
        self._due = False
        self._begin()

    def _again(self, now: Moment) -> None:
        self.schedule(now)
        self._begin()

    def _begin(self) -> None:
        if self._under_way:
            self.soon()
            return
        self._under_way = True
        self._loop.in_turns.begin_steps(self._in_steps())

    def _in_steps(self) -> Iterator[None]:
        checkpoint = yield from self._logs.begin_checkpoint_in_steps()

        def written(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._over(result)
                return
            # A failed directory does not keep the recovery points of other directories from moving.
            self._loop.in_turns.begin_steps(self._book(checkpoint))
            for failure in checkpoint.failures.values():
                self._reports.failed_write(failure)

        self._loop.effects.blocking(checkpoint.write, written)

    def _book(self, checkpoint: CheckpointOfAll) -> Iterator[None]:
        save = yield from self._logs.finish_checkpoint_in_steps(
            checkpoint, lambda log: self._flushes.became_durable(log.offsets, self._loop.now)
        )
        self._loop.effects.blocking(save, self._over)

    def _over(self, result: Exception | None) -> None:
        self._under_way = False
        while self._when_idle and not self._under_way:
            self._when_idle.pop(0)()
        if isinstance(result, Exception):
            self._reports.failed_write(result)
