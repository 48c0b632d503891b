"""The node's duties by the clock: retention, rolling, checkpoints, expiry of idle producers and old positions.

Partitions are visited a few at a time, so that ten thousand partitions do not stall the loop.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cordwood.log.checkpoint import Checkpoint
from cordwood.log.log import Log
from cordwood.log.retention import DROPPED_AT_ONCE
from cordwood.log.set_aside import read_note
from cordwood.log.strays import Fate, Known, Verdict
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.partition import Partition
from cordwood.segments.filesystem import remove_if_there

if TYPE_CHECKING:
    from cordwood.node.node import Node

logger = logging.getLogger("cordwood")

PARTITIONS_PER_STEP = 32
PAUSE_MS = 5
REPEAT_AFTER_MS = 30_000
MAX_REMEMBERED_REPORTS = 256


class Maintenance:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._sweep: Iterator[Partition] | None = None
        self._checkpoint_is_due = False
        self._checkpoint_under_way = False
        self._dropping: set[Partition] = set()
        """Partitions with very many segments to drop."""
        self._reported: dict[str, int] = {}
        self._reported_set_aside = 0

    def schedule(self, now: Moment) -> None:
        settings = self._node.settings
        timers = self._node.timers
        timers.at(now.boot_ms + settings.log_retention_check_interval_ms, self._begin_sweep)
        timers.at(now.boot_ms + settings.log_flush_offset_checkpoint_interval_ms, self._checkpoint_again)
        timers.at(now.boot_ms + settings.offsets_retention_check_interval_ms, self._expire_positions)

    # Retention, rolling, idle producers: one visit to each partition

    def _begin_sweep(self, now: Moment) -> None:
        settings = self._node.settings
        self._node.timers.at(now.boot_ms + settings.log_retention_check_interval_ms, self._begin_sweep)
        if self._sweep is None:
            self._sweep = iter(list(self._node.hosted))
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
        self._node.timers.at(now.boot_ms + PAUSE_MS, self._continue_sweep)

    def drop_soon(self, partition: Partition) -> None:
        """Drops segments of a partition that has very many to drop, some in each of the next turns."""
        if partition not in self._dropping:
            self._dropping.add(partition)
            self._node.in_turns.add_steps(self._drop(partition))

    def _drop(self, partition: Partition) -> Iterator[None]:
        while self._visit(partition, self._node.now) >= DROPPED_AT_ONCE:
            yield
        self._dropping.discard(partition)

    def _visit(self, partition: Partition, now: Moment) -> int:
        """Rolls and drops segments of a partition as its settings ask. Returns the number of dropped segments."""
        if not self._node.hosted.hosts(partition):
            return 0
        if partition.opened is None and not self._node.logs.has_log(partition.name):
            return 0
        try:
            log = partition.log
            if log.roll_if_due(now.wall_ms):
                # Compaction takes only segments below the saved recovery point.
                self.checkpoint_soon()
            removed = log.apply_retention(now, limit_offset=partition.high_watermark)
        except StorageFailure as failure:
            self._node.storage_failed(failure)
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
        if due := log.segments.take_due_deletions(now.boot_ms):
            self._node.effects.blocking(lambda: self._remove(due), self._removed)
        if removed:
            self.checkpoint_soon()
            # A waiting fetch may hold slices of the removed segments.
            partition.wake_readers(now)
        if len(removed) >= DROPPED_AT_ONCE:
            self.drop_soon(partition)
        return len(removed)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            remove_if_there(self._node.logs.filesystem, path)

    def _removed(self, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._node.storage_failed(result)

    def _expire_positions(self, now: Moment) -> None:
        self._node.timers.at(
            now.boot_ms + self._node.settings.offsets_retention_check_interval_ms, self._expire_positions
        )
        self._node.groups.positions.expire()

    # Checkpoints

    def checkpoint_soon(self) -> None:
        if not self._checkpoint_is_due:
            self._checkpoint_is_due = True
            self._node.timers.at(self._node.now.boot_ms + 1000, self._checkpoint_once)
            self._node.effects.wake()

    def _checkpoint_once(self, now: Moment) -> None:
        self._checkpoint_is_due = False
        self._checkpoint(now)

    def _checkpoint_again(self, now: Moment) -> None:
        settings = self._node.settings
        self._node.timers.at(now.boot_ms + settings.log_flush_offset_checkpoint_interval_ms, self._checkpoint_again)
        self._checkpoint(now)

    def _checkpoint(self, now: Moment) -> None:
        """Saves index entries, snapshots and recovery points of changed logs, which keeps recovery short."""
        if self._checkpoint_under_way:
            self.checkpoint_soon()
            return
        self._checkpoint_under_way = True
        self._node.in_turns.begin_steps(self._checkpoint_in_steps())

    def _checkpoint_in_steps(self) -> Iterator[None]:
        node = self._node
        checkpoint = yield from node.logs.begin_checkpoint_in_steps()

        def written(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._checkpoint_over(result)
            else:
                node.in_turns.begin_steps(self._book(checkpoint))

        node.effects.blocking(checkpoint.write, written)

    def _book(self, checkpoint: Checkpoint) -> Iterator[None]:
        node = self._node
        save = yield from node.logs.finish_checkpoint_in_steps(
            checkpoint, lambda log: node.became_durable(log.partition, log.offsets, node.now)
        )
        node.effects.blocking(save, self._checkpoint_over)

    def _checkpoint_over(self, result: Exception | None) -> None:
        self._checkpoint_under_way = False
        if isinstance(result, Exception):
            self._node.storage_failed(result)

    # Files that go

    def delete_logs(self, deleted: dict[TopicId, list[TopicPartition]]) -> None:
        """Removes the files of deleted topics soon; then the topics' tombstones are removed."""
        node = self._node
        names = [name for partitions in deleted.values() for name in partitions]

        def freed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                node.storage_failed(result)
            else:
                self._forget_deletions(list(deleted))

        node.effects.blocking(node.logs.condemn_logs(names).run, freed)

    def _forget_deletions(self, topic_ids: list[TopicId]) -> None:
        def forgotten(result: Exception | None) -> None:
            # The next start removes the tombstones; until then they take a little space.
            if isinstance(result, Exception):
                self._node.report_storage_failure(result)

        self._node.effects.metadata(lambda writer: writer.forget_deletions(topic_ids), forgotten)

    def sort_out_strays(self) -> None:
        """At the start: deletes logs of deleted topics, sets unknown logs aside, names partitions without a
        directory."""
        node = self._node
        tombstones = dict(node.image.deleted_topics)
        remaining: set[TopicId] = set()
        for name, verdict in node.logs.strays(Known(self._topic_id_of, tombstones)).items():
            try:
                self._sort_out(name, verdict)
            except DiskFull as failure:
                logger.error("%s keeps its directory, and is not served (%s): %s", name, verdict.reason, failure)
            except SyncFailure:
                raise
            except StorageFailure as failure:
                remaining.update(tombstones)
                node.report_storage_failure(failure)
        self.report_set_aside()
        if tombstones.keys() - remaining:
            # The metadata is written later: nothing drives the node yet.
            forgotten = sorted(tombstones.keys() - remaining)
            node.timers.at(node.now.boot_ms, lambda _: self._forget_deletions(forgotten))
        for name in node.logs.on_disk.missing([partition.name for partition in node.hosted]):
            logger.error("%s had records, and its directory is missing", name)

    def _topic_id_of(self, name: TopicPartition) -> TopicId | None:
        image = self._node.image
        return None if image.partition_of(*name) is None else image.topic_id(name.topic)

    def _sort_out(self, name: TopicPartition, verdict: Verdict) -> None:
        logs = self._node.logs
        match verdict.fate:
            case Fate.DELETED:
                logger.info("%s is deleted: %s", name, verdict.reason)
                logs.delete_log(name)
            case Fate.EMPTY:
                logs.delete_log(name)
            case Fate.SET_ASIDE:
                logs.set_aside(name, verdict.reason, self._node.now.wall_ms)
            case Fate.REPAIRED:
                logger.warning(
                    "%s: %s. The directory belongs to the topic of its name; the topic id is written again",
                    name,
                    verdict.reason,
                )
            case Fate.LEFT_ALONE:
                logger.warning(
                    "%s/%s is not a log of this broker, and is left alone: keep other files elsewhere", logs.path, name
                )

    def report_set_aside(self) -> None:
        """Logs the directories that were set aside since the last call; at the start, all such directories."""
        logs = self._node.logs
        fresh = logs.on_disk.set_aside_directories[self._reported_set_aside :]
        self._reported_set_aside += len(fresh)
        for path in fresh:
            note = read_note(logs.filesystem, path)
            logger.error(
                "%s is set aside: %s. All of it is kept, none of it is served. `cordwood recover list %s` shows "
                "what is set aside, `cordwood recover put-back` puts it back",
                path,
                "there is no note of why" if note is None else note.reason,
                logs.path,
            )

    # Words

    def report_recovery(self, log: Log) -> None:
        """Logs what opening a log has cut and rebuilt. The scrub reports damage."""
        recovery = log.reports.recovery
        for cut in recovery.cuts:
            logger.warning("%s", cut)
        for path in recovery.rebuilt:
            logger.info("%s: rebuilt %s from the log", log.partition, path)

    def report(self, level: int, message: str) -> None:
        """Logs a message, and repeats it only after REPEAT_AFTER_MS: a full disk must not fill the log as well."""
        boot_ms = self._node.now.boot_ms
        last_ms = self._reported.get(message)
        if last_ms is not None and boot_ms - last_ms < REPEAT_AFTER_MS:
            return
        if len(self._reported) >= MAX_REMEMBERED_REPORTS:
            self._reported.clear()
        self._reported[message] = boot_ms
        logger.log(level, message)
