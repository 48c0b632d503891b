"""Watches the lag of every group in every partition, and warns in the log before retention removes unread records.

Each position is watched by the leader of its partition. The coordinator of a group reports the positions in partitions
that other brokers lead to these brokers (`watch_reports.py`).

Sweeps run by the clock, a few positions at a time. Each sweep samples the ends of logs and the committed positions,
evaluates both with the pure functions of `lag/`, and keeps the results for metrics. No request waits for a sweep. The
results are bounded: positions beyond MAX_WATCHED are counted and left out.
"""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, Protocol

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.groups.shard import GroupShard
from cordwood.lag.arrival import Mark
from cordwood.lag.data_loss import Growth, LogSpan, RetentionRules, SegmentSpan
from cordwood.lag.position import PositionLag, Standing, evaluate
from cordwood.lag.rates import Sample, rate_per_s, with_sample
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.identifiers import NO_TIMESTAMP_MS, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.node.duties.hot_keys import HotKeys, PartitionTraffic
from cordwood.node.duties.loss_lines import LossLines
from cordwood.node.duties.topic_traffic import TopicTraffic
from cordwood.node.duties.watch_reports import WatchReports
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition

MAX_WATCHED = 20_000
"""The most positions of all groups together, at about 1 KB each."""
STEPS_PER_TURN = 32
PAUSE_MS = 5
REARM_FACTOR = 2
"""A warning is repeated only after the time to loss was this many times the warning time: estimates fluctuate."""


class LedGroups(Protocol):
    """The groups that this broker coordinates."""

    def visit_shards(self, visit: Callable[[GroupShard], None], finished: Callable[[ErrorCode], None]) -> None: ...


class WatchedPosition(NamedTuple):
    lag: PositionLag
    samples: tuple[Sample, ...]
    warned: bool
    """True if a warning of an impending loss was given."""
    mourned: bool
    """True if the loss was logged: retention has overtaken the position."""


Watched = dict[tuple[str, TopicPartition], WatchedPosition]


class _Sweep:
    """The observations of a sweep so far."""

    def __init__(self) -> None:
        self.spans: dict[TopicPartition, LogSpan] = {}
        self.watched: Watched = {}
        self.groups = 0
        self.reported = 0
        self.left_out = 0


class LagWatch:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        groups: LedGroups,
        hot_keys: HotKeys,
        reports: Reports,
        elsewhere: WatchReports,
        topic_traffic: TopicTraffic,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._groups = groups
        self._hot_keys = hot_keys
        self._reports = reports
        self._elsewhere = elsewhere
        self._topic_traffic = topic_traffic
        self.positions: Watched = {}
        """Results of the last whole sweep, by group and partition. The dict is replaced whole, never changed."""
        self.traffic: dict[TopicPartition, PartitionTraffic] = {}
        """Traffic of the partitions whose logs are open. The dict is replaced whole, never changed."""
        self.topics: dict[str, float] = {}
        """Bytes per second that come into whole topics, of topics with partitions here; unknown rates are absent. The
        dict is replaced whole, never changed."""
        self.groups = 0
        """Groups with this broker as their coordinator that have positions or read topics."""
        self.left_out = 0
        """Positions beyond MAX_WATCHED in the last sweep, and positions that their leaders did not take."""
        self.overtaken_total = 0
        """The number of times that a position was overtaken since the broker started."""
        self._near_losses, self._losses = LossLines(), LossLines()
        self._steps: Iterator[None] | None = None
        self._newest: dict[TopicPartition, dict[int, tuple[int, int]]] = {}

    @property
    def skews(self) -> dict[str, float]:
        """The traffic of the busiest partition as a multiple of the average of the others, of the topics whose traffic
        this broker collects."""
        return self._topic_traffic.skews

    def schedule(self, now: Moment) -> None:
        self._loop.timers.at(now.boot_ms + self._image.settings.lag_check_interval_ms, self._begin)

    def _begin(self, now: Moment) -> None:
        self.schedule(now)
        if self._steps is not None:
            return
        shards: list[GroupShard] = []

        def loaded(worst_error: ErrorCode) -> None:
            self._steps = self._sweep(shards)
            self._continue(self._loop.now)

        self._steps = iter(())
        self._groups.visit_shards(shards.append, loaded)

    def _continue(self, now: Moment) -> None:
        assert self._steps is not None
        for _ in range(STEPS_PER_TURN):
            if next(self._steps, self) is self:
                self._steps = None
                return
        self._loop.timers.at(now.boot_ms + PAUSE_MS, self._continue)
        self._loop.effects.wake()

    def _sweep(self, shards: list[GroupShard]) -> Iterator[None]:
        """Samples all partitions and evaluates all positions, in small steps."""
        self._elsewhere.begin(self._loop.now.boot_ms)
        yield from self._sample_traffic()
        seen = _Sweep()
        for shard in shards:
            for group_id in shard.group_ids():
                has_any = False
                for found in shard.watched_positions(group_id, self._partition_count):
                    # Each position is a step, also if it is left out: a group may have any number of positions.
                    yield
                    if found is not None:
                        has_any = True
                        self._place(group_id, *found, seen)
                seen.groups += has_any
                # Groups whose positions are all left out are steps, too: there may be any number of such groups.
                yield
        for (group_id, name), reported in list(self._elsewhere.received.items()):
            yield
            if (group_id, name) not in seen.watched:
                self._watch(group_id, name, reported.position, seen)
        yield from self._elsewhere.send()
        for lines in (self._near_losses, self._losses):
            lines.say(self._loop.now.boot_ms)
        self.positions, self.groups = seen.watched, seen.groups
        self.left_out = seen.left_out + self._elsewhere.without_room + self._elsewhere.not_taken
        self._newest = {name: known for name, known in self._newest.items() if name in seen.spans}

    def _place(self, group_id: str, name: TopicPartition, position: int | None, seen: "_Sweep") -> None:
        """Watches a position if its partition is led here, and reports it to the partition's leader otherwise."""
        if self._watch(group_id, name, position, seen):
            return
        topic = self._image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return
        leader = self._image.leadership(topic.partitions[name.partition]).leader
        if leader in self._image.brokers and leader != self._image.node_id:
            if seen.reported >= MAX_WATCHED:
                seen.left_out += 1
                return
            seen.reported += 1
            self._elsewhere.report_position(leader, group_id, topic.topic_id, name.partition, position)

    def _watch(self, group_id: str, name: TopicPartition, position: int | None, seen: "_Sweep") -> bool:
        """Watches a position. False: the partition is not led here."""
        partition = self._hosted.get(*name)
        if partition is None or not partition.role.leads:
            return False
        if len(seen.watched) >= MAX_WATCHED:
            seen.left_out += 1
            return True
        try:
            seen.watched[group_id, name] = self._look(group_id, partition, position, seen.spans)
        except StorageFailure as failure:
            self._reports.failure(failure)
        return True

    def _sample_traffic(self) -> Iterator[None]:
        traffic: dict[TopicPartition, PartitionTraffic] = {}
        before = self.traffic
        for partition in list(self._hosted):
            replica = partition.role.leading
            if replica is None:
                continue
            now = self._loop.now
            known = before.get(partition.name)
            end = Sample(now.boot_ms, replica.high_watermark)
            traffic[partition.name] = PartitionTraffic(
                with_sample(() if known is None else known.ends, end),
                known.reached if known is not None and known.reached.value == end.value else end,
                with_sample(() if known is None else known.bytes, Sample(now.boot_ms, partition.appended_bytes)),
                partition.fetched_bytes,
                replica.log.segments.size_bytes,
                replica.log.offsets.start,
                self._partition_count(partition.name.topic),
                _oldest_transaction(replica.log, None if known is None else known.oldest_transaction, now.boot_ms),
            )
            yield
        topics = yield from self._report_traffic(traffic)
        self.traffic, self.topics = traffic, topics
        self._hot_keys.sample(traffic, topics)

    def _report_traffic(
        self, traffic: dict[TopicPartition, PartitionTraffic]
    ) -> Generator[None, None, dict[str, float]]:
        """Reports the traffic of partitions to the brokers that collect it. Returns the traffic of whole topics."""
        now_ms = self._loop.now.boot_ms
        until_ms = now_ms + self._elsewhere.holds_for_ms
        by_topic: dict[str, list[tuple[int, float]]] = {}
        for partition in list(self._hosted):
            if partition.role.leads:
                seen = traffic.get(partition.name)
                rate = (partition.name.partition, 0.0 if seen is None else seen.bytes_per_s)
                by_topic.setdefault(partition.name.topic, []).append(rate)
        for topic_name, rates in by_topic.items():
            topic = self._image.topics.get(topic_name)
            collector = None if topic is None else self._topic_traffic.collector(topic)
            if topic is None or collector is None:
                continue
            if collector == self._image.node_id:
                self._topic_traffic.report(topic.topic_id, rates, until_ms)
                yield
                continue
            for index, bytes_per_s in rates:
                self._elsewhere.report_traffic(collector, topic.topic_id, index, bytes_per_s)
                yield
        yield from self._topic_traffic.collect(now_ms, until_ms)
        topics = {}
        for topic_name in by_topic:
            found = self._topic_traffic.sum_of(self._image.topic_id(topic_name), now_ms)
            if found is not None:
                topics[topic_name] = found
        return topics

    def _partition_count(self, topic: str) -> int:
        found = self._image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def _look(
        self, group_id: str, partition: Partition, position: int | None, spans: dict[TopicPartition, LogSpan]
    ) -> WatchedPosition:
        now = self._loop.now
        name = partition.name
        span = spans.get(name)
        if span is None:
            span = spans[name] = self._span(partition)
        before = self.positions.get((group_id, name))
        samples: tuple[Sample, ...] = ()
        if position is not None:
            samples = with_sample(() if before is None else before.samples, Sample(now.boot_ms, position))
        traffic = self.traffic.get(name)
        growth = Growth()
        ends: list[Mark] = []
        if traffic is not None:
            growth = Growth(traffic.records_per_s / 1000, traffic.bytes_per_s / 1000)
            ends = [Mark(value, now.wall_ms_at(at_ms)) for at_ms, value in (traffic.reached, *traffic.ends)]
        lag = evaluate(
            span,
            position,
            marks=self._marks(partition, span, position, ends),
            growth=growth,
            drain_per_s=rate_per_s(samples),
            wall_ms=now.wall_ms,
        )
        warned = self._warn_of_loss(group_id, partition, lag, before is not None and before.warned)
        mourned = self._say_lost(group_id, name, lag, before is not None and before.mourned)
        return WatchedPosition(lag, samples, warned, mourned)

    # Facts from the log

    def _span(self, partition: Partition) -> LogSpan:
        rules = RetentionRules.of(partition.settings)
        if partition.opened is None and not self._logs.has_log(partition.name):
            return LogSpan(0, 0, (), rules)
        replica = partition.replica
        log = replica.log
        known = self._newest.get(partition.name, {})
        newest: dict[int, tuple[int, int]] = {}
        segments = []
        for place, segment in enumerate(log.segments):
            end_offset = log.segments.end_of(place)
            found = known.get(segment.base_offset)
            if segment.indexes is not None:
                found = (segment.size, segment.indexes.max_timestamp_ms)
            elif found is None or found[0] != segment.size:
                latest_ms = segment.max_timestamp_ms(end_offset, log.settings.index_interval_bytes)
                found = (segment.size, latest_ms)
            newest[segment.base_offset] = found
            segments.append(SegmentSpan(segment.base_offset, end_offset, *found))
        self._newest[partition.name] = newest
        roll_at_ms = None if log.segments.active is None else log.segments.active.roll_at_ms
        end_offset = max(replica.high_watermark, log.offsets.start)
        return LogSpan(log.offsets.start, end_offset, tuple(segments), rules, roll_at_ms)

    @staticmethod
    def _marks(partition: Partition, span: LogSpan, position: int | None, ends: list[Mark]) -> list[Mark]:
        """Offsets with known times around the first unread record: sampled ends, segment ends, time index entries."""
        if position is None or position >= span.end_offset or partition.opened is None:
            return []
        first_unread = max(position, span.start_offset)
        segment_ends = [
            Mark(segment.end_offset, segment.newest_ms)
            for segment in span.segments
            if segment.newest_ms != NO_TIMESTAMP_MS
        ]
        return ends + segment_ends + _time_index_marks(partition.opened, first_unread)

    # Warnings: once for each event

    def _warn_of_loss(self, group_id: str, partition: Partition, lag: PositionLag, warned: bool) -> bool:
        """Warns once of a loss that is near. True if the warning for the present loss was given."""
        limit_ms = warning_time_ms(self._image.settings.lag_warning_ms, partition.settings)
        loss_ms = lag.time_to_data_loss_ms
        if not limit_ms or loss_ms is None or not lag.lag_records or loss_ms > limit_ms * REARM_FACTOR:
            return False
        # The first sample after a start says nothing about how fast the group reads.
        if warned or loss_ms > limit_ms or lag.drain_per_s is None:
            return warned
        self._near_losses.add(
            group_id,
            partition.name,
            -loss_ms,
            f"group {group_id} may lose records of {partition.name} in {duration_in_words(loss_ms)}: its position is "
            f"{lag.position}, {lag.lag_records} records are unread, it reads {lag.drain_per_s:.1f} a second, and "
            "retention is about to remove unread records",
        )
        return True

    def _say_lost(self, group_id: str, name: TopicPartition, lag: PositionLag, mourned: bool) -> bool:
        if lag.standing is not Standing.OVERTAKEN:
            return False
        if not mourned:
            self.overtaken_total += 1
            self._losses.add(
                group_id,
                name,
                lag.lost_records,
                f"group {group_id} has lost up to {lag.lost_records} records of {name}: its position is "
                f"{lag.position}, and the log begins at {(lag.position or 0) + lag.lost_records}",
            )
        return True


def _oldest_transaction(log: Log, known: Sample | None, now_ms: int) -> Sample | None:
    first_offset = log.replayed.first_open_offset
    if first_offset is None:
        return None
    return known if known is not None and known.value == first_offset else Sample(now_ms, first_offset)


def warning_time_ms(setting_ms: int, settings: TopicSettings) -> int:
    """The warning time, at most half of a topic's retention: records may live for minutes only."""
    return setting_ms if settings.retention_ms < 0 else min(setting_ms, settings.retention_ms // 2)


def duration_in_words(duration_ms: float) -> str:
    """A duration as text: `less than a second`, `40 s`, `12 min`, `3.5 h`, `2.0 d`."""
    seconds = duration_ms / 1000
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"


def _time_index_marks(log: Log, offset: int) -> list[Mark]:
    """Time index entries around the offset, if the segment's time index is in memory."""
    if not log.segments:
        return []
    segment = log.segments[log.segments.place_of(offset)]
    if segment.indexes is None:
        return []
    around = segment.indexes.times.around(offset - segment.base_offset)
    return [Mark(segment.base_offset + entry.relative_offset + 1, entry.timestamp_ms) for entry in around]
