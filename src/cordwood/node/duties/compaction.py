"""Chooses the log to compact next: the log with the largest share of bytes never compacted. One log at a time.

Compaction itself runs in another process; this module chooses the segments and swaps in the results.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.log import Log
from cordwood.log.opening.recovery import first_timestamp_ms
from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import NO_LIMIT
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.checkpoints import Checkpoints
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition

logger = logging.getLogger("cordwood.compaction")

FAILED_PAUSE_MS = 300_000
"""The time for which a log whose compaction failed is passed over: otherwise it would always be chosen first."""

PATIENCE = 30
"""The least wait of a leader for a follower that comes no nearer to its end, in multiples of
replica.lag.time.max.ms."""

PASSED_PER_STEP = 1000
EXAMINED_PER_STEP = 32
"""The most partitions that one turn passes over, and the most segments that it looks at, when it chooses a log."""


class Candidate(NamedTuple):
    dirty_ratio: float
    name: TopicPartition
    partition: Partition
    job: CompactionJob
    log: Log
    truncations: int
    """The number of cuts of the log when it was looked at."""

    @property
    def still_holds(self) -> bool:
        """True if the partition still has this log, uncut. A log that was set aside leaves its name to a new one."""
        partition, log = self.partition, self.log
        return partition.opened is log and not partition.role.being_cut and log.offsets.truncations == self.truncations


class Compaction:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        checkpoints: Checkpoints,
        reports: Reports,
        compact: Callable[[CompactionJob], CompactionResult],
        remove_dropped: Callable[[Partition], None],
    ) -> None:
        """`compact` may take minutes; it is called in a thread. `remove_dropped` removes the files of replaced segments
        when they are due."""
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._checkpoints = checkpoints
        self._reports = reports
        self._compact_log = compact
        self._remove_dropped = remove_dropped
        self._working = False
        self._paused: set[TopicPartition] = set()
        self.held_up = 0
        """Logs led here whose markers and tombstones stay for followers that catch up, as of the last look at all
        logs."""

    def schedule(self, now: Moment) -> None:
        self._loop.timers.at(now.boot_ms + self._image.settings.log_cleaner_backoff_ms, self._look)

    def _look(self, now: Moment) -> None:
        self.schedule(now)
        if not self._working and self._image.settings.log_cleaner_enable:
            self._working = True
            self._loop.in_turns.begin_steps(self._compact_one())

    def _compact_one(self) -> Iterator[None]:
        """Looks at a few logs in each step, and compacts the one with the highest dirty ratio in the end."""
        best: Candidate | None = None
        segments = held_up = 0
        for number, partition in enumerate(list(self._hosted), 1):
            if number % PASSED_PER_STEP == 0 or segments >= EXAMINED_PER_STEP:
                segments = 0
                yield
            if not partition.settings.compacted or not self._hosted.hosts(partition):
                continue
            candidate = self._candidate(partition, self._loop.now)
            opened = partition.opened
            segments += 1 if opened is None else len(opened.segments)
            held_up += partition.role.leads and not self._may_drop(partition)
            if candidate is not None and (best is None or candidate[:2] > best[:2]):
                best = candidate
        self.held_up = held_up
        # The log may have changed since it was looked at.
        chosen = best and self._candidate(best.partition, self._loop.now)
        if chosen is not None and self._hosted.hosts(chosen.partition):
            self._compact(chosen)
        else:
            self._working = False

    def _compact(self, chosen: Candidate) -> None:
        claimed = chosen.partition.claim(self)
        assert claimed, f"{chosen.name} was no candidate"

        def compacted(result: CompactionResult | Exception) -> None:
            if not self._hosted.hosts(chosen.partition):
                self._end(chosen)  # the topic was deleted with its files; a new topic may have its name
            elif isinstance(result, Exception):
                self._failed(chosen, result)
            elif result.dropped >= 0 and not self._may_drop(chosen.partition):
                self._end(chosen)  # a follower came back meanwhile; the next round drops no deletions
            else:
                self._note_dropped(chosen, result)

        write_down = self._logs.expect_compaction(chosen.name)

        def compact() -> CompactionResult:
            write_down()
            return self._compact_log(chosen.job)

        self._loop.effects.blocking(compact, compacted)

    def _note_dropped(self, chosen: Candidate, result: CompactionResult) -> None:
        """Makes durable which deletions the new segments lack, then puts them in place."""
        log = chosen.log
        if not chosen.still_holds:
            self._end(chosen)
            return
        dropped = self._logs.dropped_next(log, result.dropped, self._loop.now.wall_ms)

        def noted(outcome: Exception | None) -> None:
            if isinstance(outcome, Exception):
                self._failed(chosen, outcome)
            else:
                self._loop.in_turns.begin_steps(self._swap(chosen, result))

        if dropped == log.segments.dropped or not result.replacements:
            noted(None)
        else:
            self._loop.effects.blocking(self._logs.note_dropped(log, dropped), noted)

    def _may_drop(self, partition: Partition) -> bool:
        """True if deletions may be dropped from the log now. A replica that is being filled drops none: its note is its
        leader's. A leader drops none while a follower catches up: the follower would have to begin anew. A follower
        that came no nearer for delete.retention.ms, or the least patience, holds nothing up any more."""
        if not partition.replicated:
            return True
        if self._image.node_id not in partition.image.isr:
            return False
        within_ms = self._image.settings.replica_lag_time_max_ms
        leading = partition.role.leading
        patience_ms = max(partition.settings.delete_retention_ms, PATIENCE * within_ms)
        return leading is None or not leading.has_latecomers(self._loop.now.boot_ms, within_ms, patience_ms)

    def _failed(self, chosen: Candidate, failure: Exception) -> None:
        self._end(chosen)
        self._reports.failed_write(failure)
        self._pause(chosen.name)

    def _end(self, chosen: Candidate) -> None:
        chosen.partition.release(self)
        self._working = False

    def _pause(self, name: TopicPartition) -> None:
        self._paused.add(name)
        self._loop.timers.at(self._loop.now.boot_ms + FAILED_PAUSE_MS, lambda _: self._paused.discard(name))

    def _candidate(self, partition: Partition, now: Moment) -> Candidate | None:
        if partition.name in self._paused or not partition.log_is_free:
            return None
        if partition.opened is None and not self._logs.has_log(partition.name):
            return None
        try:
            return self._examine(partition, now)
        except StorageFailure as failure:
            self._reports.failure(failure)
            return None

    def _examine(self, partition: Partition, now: Moment) -> Candidate | None:
        log, settings = partition.log, partition.settings
        if log.segments.replacing:
            return None
        if any(damage.end_offset > log.offsets.start for damage in log.reports.damage):
            return None
        # The saved recovery point bounds compaction: above it recovery expects no gaps, and compaction leaves some.
        settled = min(log.offsets.recovery_point, self._logs.durable_recovery_point(partition.name))
        end_offset, count = self._closed_part(log, min(partition.last_stable_offset, settled), now)
        segments = log.segments[:count]
        clean_offset = max(log.offsets.start, self._logs.clean_offset(partition.name))
        dirty_bytes = sum(
            segment.size for place, segment in enumerate(segments) if log.segments.end_of(place) > clean_offset
        )
        if not dirty_bytes:
            return None
        ratio = dirty_bytes / sum(segment.size for segment in segments)
        if ratio < settings.min_cleanable_dirty_ratio and not self._overdue(log, clean_offset, now):
            return None
        log.aborts.check_indexes(count)
        job = CompactionJob(
            directory=log.directory.path,
            segments=tuple(segment.base_offset for segment in segments),
            sizes=tuple(segment.size for segment in segments),
            first_dirty_offset=clean_offset,
            end_offset=end_offset,
            wall_ms=now.wall_ms,
            delete_retention_ms=settings.delete_retention_ms,
            segment_bytes=settings.segment_bytes,
            segment_index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            key_memory_bytes=self._image.settings.log_cleaner_dedupe_buffer_size,
            last_offsets=log.replayed.producers.last_offsets(),
            aborted_later=log.aborts.later(count),
            drops_deletions=self._may_drop(partition),
        )
        return Candidate(ratio, partition.name, partition, job, log, log.offsets.truncations)

    def _closed_part(self, log: Log, limit_offset: int, now: Moment) -> tuple[int, int]:
        """(end offset, count) of the segments that may be compacted: closed, stable, old enough."""
        settings = log.settings
        end_offset, count = log.offsets.start, 0
        for place, segment in enumerate(log.segments):
            segment_end = log.segments.end_of(place)
            # Compaction reads the transaction index, which lists aborts that never happened until it is rewritten.
            if segment is log.segments.active or segment.rewrite_transactions or segment_end > limit_offset:
                break
            newest_ms = segment.max_timestamp_ms(segment_end, settings.index_interval_bytes)
            if settings.min_compaction_lag_ms and newest_ms > now.wall_ms - settings.min_compaction_lag_ms:
                break
            end_offset, count = segment_end, place + 1
        return end_offset, count

    def _overdue(self, log: Log, clean_offset: int, now: Moment) -> bool:
        """True if max.compaction.lag.ms has passed since the first record that is not compacted was written."""
        if log.settings.max_compaction_lag_ms == NO_LIMIT:
            return False
        for place, segment in enumerate(log.segments):
            end = log.segments.end_of(place)
            if end > clean_offset and segment is not log.segments.active:
                return first_timestamp_ms(segment, now.wall_ms) < now.wall_ms - log.settings.max_compaction_lag_ms
        return False

    def _swap(self, chosen: Candidate, result: CompactionResult) -> Iterator[None]:
        """Puts the new segments in the place of the old ones: one replacement, which waits for the disk four times, in
        each step. Requests are served in between, and see the log partly compacted."""
        try:
            for number, (old, new) in enumerate(result.replacements):
                if number:
                    yield
                if not self._replaced(chosen, list(old), new):
                    return
        finally:
            self._end(chosen)
        if not chosen.still_holds:
            return
        partition = chosen.partition
        self._logs.set_clean_offset(partition.name, result.clean_offset)
        self._remove_dropped(partition)
        self._checkpoints.soon()
        logger.info(
            "compacted %s up to offset %d: %d of %d records stay, %d bytes of %d",
            partition.name,
            result.clean_offset,
            result.records_kept,
            result.records_read,
            result.bytes_written,
            result.bytes_read,
        )

    def _replaced(self, chosen: Candidate, old: list[int], new: int) -> bool:
        """Replaces neighbouring segments by one. False if retention, a cut or a deletion was faster, or if the disk
        failed: the next round looks again."""
        partition = chosen.partition
        if not self._hosted.hosts(partition) or partition.role.offline or not chosen.still_holds:
            return False
        present = {segment.base_offset for segment in chosen.log.segments}
        if not present.issuperset(old):
            return False
        try:
            chosen.log.replace_segments(old, [new])
        except StorageFailure as failure:
            self._reports.failed_write(failure)
            return False
        finally:
            # A waiting fetch may hold slices of the segments that were replaced.
            partition.waits.wake_everybody(self._loop.now)
        return True
