"""The driver's side of a stream: plans the beginning of a query and the end of each micro-batch, and finds losses.

The planner remembers between micro-batches of one run: the ids of the topics, the ends of the logs last seen, the
losses, the time of the last batch. A position means the next offset to read. Rules:
- A partition or topic that appears while the query runs enters at the beginning of its log with the next batch, and its
  records come with the batch after that: so a batch's ranges follow from its two positions alone.
- A position that means nothing any more (topic deleted, or created again) is an error, or with failOnDataLoss=false is
  dropped; if the topic is there at the next batch, it enters as a new one.
- A broker that is away holds the query up and does not end it, once it was there.
- A query with `stopAtOffsets` reads no further in these topics. With `continueAtOffsets` it goes over when it has come
  there: one batch without records takes those positions in the place of these, and the query plans nothing more. The
  checkpoint then is that of a query that reads the other topics. A topic with the same offsets in both stays.
"""

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from cordwood.client.cluster import Cluster
from cordwood.client.errors import BrokerUnreachable, ClientError, RequestRefused
from cordwood.client.retries import PASSING
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.spark.source import notes
from cordwood.spark.source.boundaries import Topics
from cordwood.spark.source.data_loss import BEGIN_ANEW, Cause, Ledger, Loss, find_losses, judge
from cordwood.spark.source.limits import Scales, at_most_bytes, at_most_offsets, available
from cordwood.spark.source.offsets import Positions
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import OffsetRange, ranges_between
from cordwood.spark.source.progress import ProgressGroup
from cordwood.spark.source.survey import Resolver, Survey, check_all_exist, subscribed_partitions, survey

_log = logging.getLogger(__name__)

_LAST_WORDS_MS: Final = 10_000
"""How long the planner of an ended query tries to remove its notes. Spark does not wait for it."""
_LOOKS: Final = 3
_BETWEEN_LOOKS_S: Final = 0.2
"""The pause before a second look at a log that is gone or ends before our position: brokers that just started may not
know it."""


class StreamPlanner:
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.box = notes.new_box(options.group_prefix)
        self.ledger = Ledger()
        self.progress = ProgressGroup(options)
        self.began: Positions | None = None
        """The beginning of a query without a checkpoint, which no earlier batch records."""
        self._cluster = Cluster(options.client)
        self._scales = Scales(options.isolation)
        self._known_ids: dict[str, TopicId] = {}
        self._last_seen: Positions = {}
        self._target: Positions | None = None
        self._last_batch_s: float | None = None
        self._was_reached = False
        self._expects_notes = False
        self._knows_its_run = False
        self._is_closed = False
        self._said_missing: set[str] = set()

    def close(self) -> None:
        """Ends the planner. A signal may call this in the midst of any call, also of `close` itself."""
        if self._is_closed:
            return
        if self._wants_notes:
            # A new connection: the interrupted call may wait for an answer on the others.
            client = self.options.client
            impatient = replace(client, retry_timeout_ms=_LAST_WORDS_MS, request_timeout_ms=_LAST_WORDS_MS)
            with Cluster(impatient) as cluster:
                notes.remove(cluster, self.box)
        self._is_closed = True
        self._cluster.close()
        self.progress.close()

    @property
    def _wants_notes(self) -> bool:
        return self.progress.needs_name or not self.options.fail_on_data_loss

    def box_for_tasks(self) -> tuple[str | None, bool]:
        """The group for the notes of a batch's tasks (None: no notes), and whether a task is to introduce itself."""
        if not self._wants_notes:
            return None, False
        self._expects_notes = True
        return self.box, not self._knows_its_run

    @property
    def topic_ids(self) -> dict[str, TopicId]:
        """The ids of the topics that positions belong to, as this run of the query has seen them."""
        return dict(self._known_ids)

    @property
    def last_seen(self) -> Positions:
        """The ends of the logs at the last look."""
        return self._last_seen

    # Called for Spark

    def initial(self) -> Positions:
        """The positions at which a query without a checkpoint begins."""
        existing = subscribed_partitions(self._cluster, self.options.subscription)
        check_all_exist(self._cluster, self.options.subscription, existing, self.options.client.bootstrap_servers)
        found = survey(self._cluster, existing, self.options.isolation)
        start = Resolver(self._cluster, self.options, found).start()
        losses = find_losses(start, found.partitions, known_ids={}, last_seen={})
        judge(self._cluster, losses, self.ledger, fail=self.options.fail_on_data_loss)
        for loss in losses:
            # No earlier batch has a position that could be dropped: the query begins at the first offset that exists.
            start[loss.partition] = found.partitions[loss.partition].earliest
            if loss.cause is not Cause.REMOVED:
                start[loss.partition] = found.readable[loss.partition]
        self._remember(found)
        self.began = start
        return start

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """The records of a batch. A partition that the query goes over to is read by the next query."""
        going_over = self.options.continue_at
        return [found for found in ranges_between(start, end) if not (found.is_new and found.partition in going_over)]

    def fix_end(self) -> None:
        """Fixes the end for availableNow: this run of the query reads only what is there now."""
        existing = subscribed_partitions(self._cluster, self.options.subscription)
        found = survey(self._cluster, existing, self.options.isolation)
        self._target = dict(found.readable)
        self._was_reached = True

    def latest(self, start: Positions, *, limited: bool) -> Positions:
        """The end of the next batch; `start` itself if there is nothing to do. All before `start` is finished."""
        try:
            return self._latest(start, limited=limited)
        except (BrokerUnreachable, RequestRefused) as failure:
            may_pass = isinstance(failure, BrokerUnreachable) or failure.code in PASSING
            # With a fixed end, "nothing to do" would mean that everything was read.
            if not may_pass or not self._was_reached or self._target is not None:
                raise
            _log.warning("the query waits for the brokers: %s", failure)
            return start

    # Planning

    def _latest(self, start: Positions, *, limited: bool) -> Positions:
        if self._has_gone_over(start):
            return start
        found = self._look(start)
        self._was_reached = True
        losses = self._losses(start, found)
        judge(self._cluster, losses, self.ledger, fail=self.options.fail_on_data_loss)
        dropped = {loss.partition for loss in losses if loss.cause in BEGIN_ANEW}
        known = {partition: position for partition, position in start.items() if partition not in dropped}
        self._remember(found, dropped)
        self._read_notes()
        self._report_progress(known, found)
        if self._may_go_over(known, found):
            leaving = self._leaving
            staying = {partition: position for partition, position in known.items() if partition.topic not in leaving}
            entered = {name: offset for name, offset in self.options.continue_at.items() if self._enters(name)}
            return {**staying, **entered}
        end = self._ends(known, found)
        if limited:
            if not dropped and self._waits_for_more(known, end):
                return start
            end = self._limited(known, end)
        end |= self._entering(start, dropped, found)
        if end != start:
            self._last_batch_s = time.monotonic()
        return end

    def _may_go_over(self, known: Positions, found: Survey) -> bool:
        def is_read(name: TopicPartition, stop: int) -> bool:
            is_lost = name not in found.partitions and not self.options.fail_on_data_loss
            return is_lost or known.get(name, 0) >= stop

        stop_at = self.options.stop_at
        return bool(self.options.continue_at) and all(is_read(name, stop) for name, stop in stop_at.items())

    def _has_gone_over(self, start: Positions) -> bool:
        is_there = any(partition in start for partition in self.options.continue_at if self._enters(partition))
        return is_there and not any(partition.topic in self._leaving for partition in start)

    def _enters(self, partition: TopicPartition) -> bool:
        return all(partition.topic != topic for topic, _ in self.options.stop_at)

    @property
    def _leaving(self) -> set[str]:
        """The topics that the query goes over from. A topic of `continueAtOffsets`, too, only waits for the others."""
        return {topic for topic, _ in self.options.stop_at} - {topic for topic, _ in self.options.continue_at}

    def _stop_of(self, partition: TopicPartition) -> int | None:
        """The offset at which the query stops reading this partition; None if it reads on and on."""
        if all(partition.topic != topic for topic, _ in self.options.stop_at):
            return None
        return self.options.stop_at.get(partition, 0)

    def _entering(self, start: Positions, dropped: Collection[TopicPartition], found: Survey) -> Positions:
        """Positions of new partitions. A topic that lost its position enters with the next batch."""
        leaving = {partition.topic for partition in dropped}
        return {
            partition: now.earliest
            for partition, now in found.partitions.items()
            if partition not in start
            and partition.topic not in leaving
            and (self._target is None or partition in self._target)
        }

    def _look(self, start: Mapping[TopicPartition, int]) -> Survey:
        for look in range(_LOOKS):
            existing = subscribed_partitions(self._cluster, self.options.subscription)
            self._say_who_is_missing(existing, start)
            found = survey(self._cluster, existing, self.options.isolation, start)
            is_behind = any(start.get(name, 0) > now.latest for name, now in found.partitions.items())
            is_gone = any(name not in found.partitions for name in start)
            if not (is_behind or is_gone) or look == _LOOKS - 1:
                break
            time.sleep(_BETWEEN_LOOKS_S)
        return found

    def _say_who_is_missing(self, existing: Collection[TopicPartition], start: Collection[TopicPartition]) -> None:
        """Warns of a named topic that does not exist, and waits for it: it may be a mistake in a changed query."""
        subscription = self.options.subscription
        if isinstance(subscription, Topics):
            there = {topic for topic, _ in (*existing, *start)}
            missing = set(subscription.names) - there
            for topic in sorted(missing - self._said_missing):
                _log.warning("topic %s does not exist; it is read as soon as it does", topic)
            self._said_missing = missing

    def _losses(self, start: Positions, found: Survey) -> list[Loss]:
        gone = {partition.topic for partition in start if partition not in found.partitions}
        existing = {
            TopicPartition(name, partition.index)
            for name, topic in (self._cluster.topics(gone) if gone else {}).items()
            for partition in topic.partitions
        }
        losses = find_losses(
            start,
            found.partitions,
            known_ids=self._known_ids,
            last_seen=self._last_seen,
            existing=existing,
        )
        if self._target is None:
            return losses
        return [loss for loss in losses if loss.cause is not Cause.STARTS_LATE or loss.partition in self._target]

    def _ends(self, known: Positions, found: Survey) -> Positions:
        """The end of each log for this query, never before its position: an open transaction may lie before that."""
        ends = {}
        for partition, position in known.items():
            end = found.readable.get(partition, position)
            if self._target is not None:
                end = min(end, self._target.get(partition, position))
            stop = self._stop_of(partition)
            if stop is not None:
                end = min(end, stop)
            ends[partition] = max(position, end)
        return ends

    def _waits_for_more(self, start: Positions, ends: Positions) -> bool:
        limits = self.options.limits
        if limits.min_offsets is None or self._target is not None or self._last_batch_s is None:
            return False
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return sum(available(start, ends).values()) < limits.min_offsets and waited_ms < limits.max_delay_ms

    def _limited(self, start: Positions, ends: Positions) -> Positions:
        limits = self.options.limits
        if limits.max_offsets is not None:
            ends = at_most_offsets(start, ends, limits.max_offsets)
        if limits.max_bytes is not None:
            weights = self._scales.weigh(self._cluster, start, available(start, ends), limits.max_bytes)
            ends = at_most_bytes(start, ends, limits.max_bytes, weights)
        return ends

    def _remember(self, found: Survey, dropped: Collection[TopicPartition] = ()) -> None:
        for partition in dropped:
            self._known_ids.pop(partition.topic, None)
            self.ledger.settle(partition)
        self._known_ids = {**found.topic_ids, **self._known_ids}
        self._last_seen = {partition: now.latest for partition, now in found.partitions.items()}

    # Notes and progress

    def _read_notes(self) -> None:
        if not (self._wants_notes and self._expects_notes):
            return
        try:
            found = notes.collect(self._cluster, self.box)
        except ClientError as failure:
            _log.warning("notes of tasks could not be read: %s", failure)
            return
        self._expects_notes = False
        for partition, pieces in found.lost.items():
            for piece_start, piece_end in pieces:
                self.ledger.add(partition, piece_start, piece_end)
        if found.run is not None and not self._knows_its_run:
            self._introduced(found.run)

    def _introduced(self, run: notes.Run) -> None:
        self._knows_its_run = True
        if self.progress.needs_name:
            self.progress.name_after(run.query_name, run.query_id)
        try:
            notes.remove_earlier(self._cluster, self.options.group_prefix, run)
        except ClientError as failure:
            _log.warning("groups of notes of earlier runs are left to expire: %s", failure)

    def _report_progress(self, start: Positions, found: Survey) -> None:
        existing = {partition: position for partition, position in start.items() if partition in found.partitions}
        # Only losses before the position count: a batch that fails is planned again, and its losses are found again.
        lost = {partition: self.ledger.count(partition, below=position) for partition, position in existing.items()}
        self.progress.commit(existing, lost)
