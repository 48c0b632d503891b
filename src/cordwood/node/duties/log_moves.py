"""Moves logs between the data directories of this broker, one at a time, in the order in which clients asked.

A thread copies the log in pieces (log/directory/moving.py), no faster than replica.alter.log.dirs.io.max.bytes.per
.second. Before the switch a checkpoint of the log is saved, and no other work replaces segments. A move that fails is
reported and forgotten, and the log stays where it was; a restart takes up moves that were under way.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple, Protocol

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import in_all
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.moving import LogMove
from cordwood.log.log import Log
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.duties.waiting_moves import WaitingMoves
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.checkpoints import Checkpoints
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.replication.throttle import Throttle

logger = logging.getLogger("cordwood")

PAUSE_MS = 100
"""The wait of a move for a compaction, a repair or a cut of its log."""

MAX_WISHES = 10_000
"""The most partitions without a log here whose wished directory is remembered."""


class Directories(Protocol):
    """The part of the broker's data directories that moves need."""

    @property
    def directories(self) -> tuple[DataDirectory, ...]: ...

    @property
    def lost(self) -> AbstractSet[DataDirectory]: ...

    def directory_of(self, partition: TopicPartition) -> DataDirectory | None: ...

    def prefer(self, partition: TopicPartition, directory: DataDirectory) -> None: ...

    def moved(self, partition: TopicPartition, target: DataDirectory) -> None: ...


class FutureLog(NamedTuple):
    """The progress of a move, as in the answer to DescribeLogDirs."""

    directory: DataDirectory
    size_bytes: int
    lag: int
    """Offsets that the copy lacks."""


class _Running:
    __slots__ = ("cancelled", "move", "partition", "path", "target")

    def __init__(self, partition: Partition, target: DataDirectory, path: str) -> None:
        self.partition = partition
        self.target = target
        self.path = path
        self.move: LogMove | None = None
        self.cancelled = ""
        """The reason why the move is given up; empty: it goes on."""


class LogMoves:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: Directories,
        hosted: HostedReplicas,
        flushes: FlushBook,
        checkpoints: Checkpoints,
        reports: Reports,
        new_id: Callable[[], str],
    ) -> None:
        """`new_id` returns 32 hexadecimal digits, different ones each time."""
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._flushes = flushes
        self._checkpoints = checkpoints
        self._reports = reports
        self._waiting = WaitingMoves(loop, reports, new_id, self._begin_next, self._could_not_wait)
        self._running: _Running | None = None
        self._wishes: dict[TopicPartition, DataDirectory] = {}
        """The directories of partitions that are not here yet."""
        self._old: list[tuple[int, DataDirectory, str]] = []
        """Condemned directories of logs that have moved, and the times of their removal."""
        self._throttle = Throttle()

    @property
    def under_way(self) -> list[TopicPartition]:
        """The partitions that move, or wait for their turn."""
        return [*([] if self._running is None else [self._running.partition.name]), *self._waiting]

    # Requests

    def wish(self, name: TopicPartition, directory: DataDirectory) -> None:
        """Remembers the directory in which a partition that is not here yet is to be made."""
        if len(self._wishes) < MAX_WISHES:
            self._wishes[name] = directory

    def arrived(self, names: Iterable[TopicPartition]) -> None:
        """Moves partitions that have arrived to the directories that clients wished."""
        if self._wishes:
            for name in names:
                if (directory := self._wishes.pop(name, None)) is not None:
                    self._logs.prefer(name, directory)

    def move(self, partition: Partition, target: DataDirectory) -> None:
        """Moves the log of a partition to a directory. Its present directory as the target ends a move under way."""
        name = partition.name
        running = self._running
        if (waiting := self._waiting.get(name)) is not None:
            if waiting.target is target:
                return
            self._waiting.forget(name)
        if running is not None and running.partition is partition and not running.cancelled:
            if running.target is target:
                return
            running.cancelled = f"it is to go to {target.path}"
        source = self._logs.directory_of(name)
        if source is None:
            self._logs.prefer(name, target)
        elif source is not target:
            self._waiting.add(name, target)

    def resume(self, undone: Mapping[TopicPartition, DataDirectory]) -> None:
        """Begins again the moves that the end of the last process interrupted."""
        for name, target in undone.items():
            if (partition := self._hosted.get(*name)) is not None:
                self.move(partition, target)

    def future_of(self, name: TopicPartition) -> FutureLog | None:
        """The move of a partition that is under way or waits; None: it is not moved."""
        waiting = self._waiting.get(name)
        running = self._running
        partition = self._hosted.get(*name)
        if partition is None:
            return None
        log = partition.opened
        if waiting is not None:
            return FutureLog(waiting.target, 0, 0 if log is None else log.offsets.end - log.offsets.start)
        if running is None or running.partition is not partition or running.cancelled:
            return None
        move = running.move
        if move is None or log is None:
            return FutureLog(running.target, 0, 0 if log is None else log.offsets.end - log.offsets.start)
        return FutureLog(running.target, move.copied_bytes, log.offsets.end - move.copied_to)

    def directory_lost(self, directory: DataDirectory) -> None:
        """Gives up the moves from and to a directory that failed."""
        running = self._running
        if running is not None and (running.target is directory or self._is_at(running, directory)):
            running.cancelled = f"{directory.path} failed"
        for name in self._waiting.to(directory):
            self._waiting.forget(name)
        self._wishes = {name: target for name, target in self._wishes.items() if target is not directory}

    @staticmethod
    def _is_at(running: _Running, directory: DataDirectory) -> bool:
        return running.move is not None and running.move.source is directory

    # One move

    def _begin_next(self) -> None:
        while self._running is None:
            name = self._waiting.next_to_begin()
            waiting = None if name is None else self._waiting.get(name)
            if name is None or waiting is None:
                return
            partition, source = self._hosted.get(*name), self._logs.directory_of(name)
            target, path = waiting.target, waiting.path
            if partition is None or source is None or source is target:
                self._waiting.forget(name)
                continue
            try:
                log = partition.log
                move = LogMove(source, target, log, path)
            except StorageFailure as failure:
                self._waiting.forget(name)
                self._failed(name, target, failure)
                continue
            self._waiting.take(name)
            running = self._running = _Running(partition, target, path)
            running.move = move
            logger.info("%s moves from %s to %s: %d bytes", name, source.path, target.path, log.segments.size_bytes)
            kept = {path, *self._waiting.paths()}
            online = [each for each in self._logs.directories if each not in self._logs.lost]
            self._blocking(running, move.begin(online, kept), self._copy)

    def _blocking(self, running: _Running, work: Callable[[], None], then: Callable[[_Running, LogMove], None]) -> None:
        """Does a part of the move in a thread, and goes on with `then` unless the part failed."""

        def done(result: Exception | None) -> None:
            move = running.move
            assert move is not None
            if not isinstance(result, Exception):
                self._go_on(running, then)
            elif move.can_go_on(result) and not self._reason_to_give_up(running):
                self._copy_again(running, move)
            else:
                self._give_up(running, result)

        self._loop.effects.blocking(work, done)

    def _reason_to_give_up(self, running: _Running) -> str:
        if running.cancelled:
            return running.cancelled
        partition, move = running.partition, running.move
        if not self._hosted.hosts(partition) or move is None or partition.opened is not move.log:
            return "the partition is here no longer"
        return ""

    def _go_on(self, running: _Running, then: Callable[[_Running, LogMove], None]) -> None:
        if self._reason_to_give_up(running):
            self._give_up(running, None)
        else:
            assert running.move is not None
            then(running, running.move)

    def _copy_again(self, running: _Running, move: LogMove) -> None:
        if running.partition.release(running):
            move.go_back()
        self._copy(running, move)

    def _copy(self, running: _Running, move: LogMove) -> None:
        now = self._loop.now
        wait_ms = self._throttle.wait_ms(now.boot_ms)
        if running.partition.role.being_cut:
            wait_ms = PAUSE_MS
        if wait_ms:
            self._loop.after(wait_ms, lambda _: self._go_on(running, self._copy))
            return
        piece = move.next_piece()
        if piece is None:
            self._prepare_to_settle(running, move)
            return
        limit = self._image.settings.replica_alter_log_dirs_io_max_bytes_per_second
        self._throttle.fetched(piece.length, limit, now.boot_ms)
        self._blocking(running, piece.run, self._copy)

    def _prepare_to_settle(self, running: _Running, move: LogMove) -> None:
        partition = running.partition
        if not partition.claim(running):
            self._loop.after(PAUSE_MS, lambda _: self._go_on(running, self._copy))
            return
        if move.log.segments.replacing:
            # Only a start finishes the replacement: until then the files would not fit the log.
            self._give_up(running, StorageFailure(f"{partition.name} waits for a restart to replace segments"))
            return
        self._checkpoints.of_one(move.source, move.log, partial(self._checkpointed, running))

    def _checkpointed(self, running: _Running, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._give_up(running, result)
        else:
            self._go_on(running, self._settle)

    def _settle(self, running: _Running, move: LogMove) -> None:
        if running.partition.role.being_cut:
            running.partition.release(running)
            self._copy(running, move)
            return
        try:
            work = move.settle(self._loop.now.wall_ms)
        except StorageFailure as failure:
            self._give_up(running, failure)
        else:
            self._blocking(running, work, self._switch)

    def _switch(self, running: _Running, move: LogMove) -> None:
        partition, log = running.partition, move.log
        if partition.role.being_cut:
            self._copy_again(running, move)
            return
        try:
            finish = move.switch(partition.high_watermark if partition.replicated else 0)
        except StorageFailure as failure:
            if move.decided:
                self._reports.failed_write(SyncFailure(str(failure)))
            self._give_up(running, failure)
            return
        if finish is None:
            running.partition.release(running)
            # Too much has changed: the next try comes in another turn.
            self._loop.after(1, lambda _: self._go_on(running, self._copy))
            return
        now = self._loop.now
        self._logs.moved(partition.name, move.target)
        running.partition.release(running)
        self._running = None
        self._flushes.became_durable(log.offsets, now)
        # A waiting fetch may hold slices of the old files.
        partition.waits.wake_everybody(now)
        logger.info("%s is in %s now: it moved from %s", partition.name, move.target.path, move.source.path)

        def finished(condemned: str | Exception | None) -> None:
            if isinstance(condemned, Exception):
                self._reports.failed_write(condemned)
            elif condemned is not None:
                self._remove_later(move.source, condemned, log)
            self._begin_next()

        self._loop.effects.blocking(finish, finished)

    def _remove_later(self, source: DataDirectory, path: str, log: Log) -> None:
        """Removes the old files when answers that had slices of them are sent."""
        due_ms = self._loop.now.boot_ms + log.settings.file_delete_delay_ms
        self._old.append((due_ms, source, path))
        if len(self._old) == 1:
            self._loop.after(log.settings.file_delete_delay_ms, self._remove_old)

    def _remove_old(self, now: Moment) -> None:
        due = [each for each in self._old if each[0] <= now.boot_ms]
        self._old = [each for each in self._old if each[0] > now.boot_ms]
        if self._old:
            self._loop.after(min(each[0] for each in self._old) - now.boot_ms, self._remove_old)

        # A directory that cannot be removed does not keep the others from being removed.
        remove = partial(in_all, [partial(source.filesystem.remove_tree, path) for _, source, path in due])

        def removed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                # The next start removes them.
                self._reports.failure(result)

        self._loop.effects.blocking(remove, removed)

    def _give_up(self, running: _Running, failure: Exception | None) -> None:
        move, name = running.move, running.partition.name
        assert move is not None
        reason = self._reason_to_give_up(running)
        running.partition.release(running)
        self._running = None
        if failure is not None and not reason:
            self._failed(name, running.target, failure)
        else:
            logger.info("%s does not move to %s: %s", name, running.target.path, reason)
        remove = move.give_up()

        def removed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                # The next move of the partition, or the next start, removes the copy.
                self._reports.failure(result)
            self._begin_next()

        self._loop.effects.blocking(remove, removed)
        if isinstance(failure, SyncFailure):
            self._reports.failed_write(failure)

    def _could_not_wait(self, name: TopicPartition, target: DataDirectory, failure: Exception) -> None:
        self._failed(name, target, failure)
        if isinstance(failure, SyncFailure):
            self._reports.failed_write(failure)

    def _failed(self, name: TopicPartition, target: DataDirectory, failure: Exception) -> None:
        if not isinstance(failure, StorageFailure | FileNotFoundError):
            self._reports.failure(failure)
        self._reports.report(logging.ERROR, f"{name} could not move to {target.path}, and stays where it is: {failure}")
