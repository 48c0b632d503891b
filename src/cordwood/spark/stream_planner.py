"""The driver's side of a stream: where a query begins, how far each micro-batch goes, and what was lost.

Owns what is remembered between micro-batches of one run: the ids of the topics, the ends of the logs last seen, what
was lost, when the last batch went out. A position means the next offset to read. Rules:
- A partition or topic that appears while the query runs enters at the beginning of its log with the next batch, and its
  records come with the batch after that: so a batch's ranges follow from its two positions alone.
- A position that means nothing any more (topic deleted, or created again) is an error, or with failOnDataLoss=false is
  dropped; if the topic is there at the next batch, it enters as a new one.
- A broker that is away holds the query up and does not end it, once it was there.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from cordwood.client.cluster import Cluster
from cordwood.client.errors import BrokerUnreachable, ClientError
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.spark import notes
from cordwood.spark.data_loss import BEGIN_ANEW, Cause, Ledger, Loss, find_losses
from cordwood.spark.judging import judge
from cordwood.spark.limits import at_most_bytes, at_most_offsets, available
from cordwood.spark.offsets import Positions
from cordwood.spark.options import SourceOptions
from cordwood.spark.progress_group import ProgressGroup
from cordwood.spark.resolving import Resolver
from cordwood.spark.survey import Survey, check_all_exist, subscribed_partitions, survey
from cordwood.spark.weighing import Scales

_log = logging.getLogger(__name__)

_LOOKS: Final = 3
_BETWEEN_LOOKS_S: Final = 0.2
"""A log that ends before our position is looked at again: a leader that was just elected may not know its end yet."""


class StreamPlanner:
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.box = notes.new_box(options.group_prefix)
        self.ledger = Ledger()
        self.progress = ProgressGroup(options)
        self._cluster = Cluster(options.client)
        self._scales = Scales(options.isolation)
        self._known_ids: dict[str, TopicId] = {}
        self._last_seen: Positions = {}
        self._target: Positions | None = None
        self._last_batch_s: float | None = None
        self._was_reached = False
        self._expects_notes = False

    def close(self) -> None:
        self._cluster.close()
        self.progress.close()

    @property
    def topic_ids(self) -> dict[str, TopicId]:
        """Of the topics that positions belong to, as far as this run of the query has seen them."""
        return dict(self._known_ids)

    @property
    def last_seen(self) -> Positions:
        """Where the logs ended when last looked at."""
        return self._last_seen

    # What Spark asks for

    def initial(self) -> Positions:
        """Where a query without a checkpoint begins."""
        existing = subscribed_partitions(self._cluster, self.options.subscription)
        check_all_exist(self._cluster, self.options.subscription, existing, self.options.client.bootstrap_servers)
        found = survey(self._cluster, existing, self.options.isolation)
        start = Resolver(self._cluster, self.options, found).start()
        losses = find_losses(start, found.partitions, known_ids={}, last_seen={})
        judge(self._cluster, losses, self.ledger, fail=self.options.fail_on_data_loss)
        for loss in losses:
            # There is no earlier batch from which a position could be dropped: begin where it is possible.
            start[loss.partition] = found.partitions[loss.partition].earliest
            if loss.cause is not Cause.REMOVED:
                start[loss.partition] = found.readable[loss.partition]
        self._remember(found)
        return start

    def fix_end(self) -> None:
        """For availableNow: what is there now is all that this run of the query reads."""
        existing = subscribed_partitions(self._cluster, self.options.subscription)
        found = survey(self._cluster, existing, self.options.isolation)
        self._target = dict(found.readable)
        self._was_reached = True

    def latest(self, start: Positions, *, limited: bool) -> Positions:
        """How far the next batch goes; `start` itself if there is nothing to do. All before `start` is finished."""
        try:
            return self._latest(start, limited=limited)
        except BrokerUnreachable as failure:
            # With a fixed end, "nothing to do" would mean that all was read.
            if not self._was_reached or self._target is not None:
                raise
            _log.warning("the query waits for the brokers: %s", failure)
            return start

    # How it is found out

    def _latest(self, start: Positions, *, limited: bool) -> Positions:
        found = self._look(start)
        self._was_reached = True
        losses = self._losses(start, found)
        judge(self._cluster, losses, self.ledger, fail=self.options.fail_on_data_loss)
        dropped = {loss.partition for loss in losses if loss.cause in BEGIN_ANEW}
        for topic in {partition.topic for partition in dropped}:
            self._known_ids.pop(topic, None)
        self._read_notes(start)
        self._remember(found)
        self._report_progress(start, found)

        known = {partition: position for partition, position in start.items() if partition not in dropped}
        everything = self._ends(known, found)
        ends = self._limited(known, everything) if limited else everything
        if ends is None:
            return start
        entering = {
            partition: now.earliest
            for partition, now in found.partitions.items()
            if partition not in start and (self._target is None or partition in self._target)
        }
        # A topic that lost its position enters as a whole, with the batch after this one.
        entering = {p: position for p, position in entering.items() if p.topic not in {d.topic for d in dropped}}
        end = {**ends, **entering}
        if end != start:
            self._last_batch_s = time.monotonic()
            self._expects_notes = True
        return end

    def _look(self, start: Mapping[TopicPartition, int]) -> Survey:
        for look in range(_LOOKS):
            existing = subscribed_partitions(self._cluster, self.options.subscription)
            found = survey(self._cluster, existing, self.options.isolation)
            is_behind = any(start.get(name, 0) > now.latest for name, now in found.partitions.items())
            if not is_behind or look == _LOOKS - 1:
                break
            time.sleep(_BETWEEN_LOOKS_S)
        return found

    def _losses(self, start: Positions, found: Survey) -> list[Loss]:
        gone = {partition.topic for partition in start if partition not in found.partitions}
        existing = set(self._cluster.topics(gone)) if gone else set()
        losses = find_losses(
            start,
            found.partitions,
            known_ids=self._known_ids,
            last_seen=self._last_seen,
            existing_topics=existing,
        )
        if self._target is None:
            return losses
        return [loss for loss in losses if loss.cause is not Cause.STARTS_LATE or loss.partition in self._target]

    def _ends(self, known: Positions, found: Survey) -> Positions:
        """The end of each log for this query; never before where it stands: an open transaction may lie before that."""
        ends = {}
        for partition, position in known.items():
            end = found.readable.get(partition, position)
            if self._target is not None:
                end = min(end, self._target.get(partition, position))
            ends[partition] = max(position, end)
        return ends

    def _limited(self, start: Positions, ends: Positions) -> Positions | None:
        """Within the limits of the options; None: wait for more."""
        limits = self.options.limits
        sizes = available(start, ends)
        if limits.min_offsets is not None and self._target is None and self._last_batch_s is not None:
            waited_ms = (time.monotonic() - self._last_batch_s) * 1000
            if sum(sizes.values()) < limits.min_offsets and waited_ms < limits.max_delay_ms:
                return None
        if limits.max_offsets is not None:
            ends = at_most_offsets(start, ends, limits.max_offsets)
        if limits.max_bytes is not None:
            weights = self._scales.weigh(self._cluster, start, sizes)
            ends = at_most_bytes(start, ends, limits.max_bytes, weights)
        return ends

    def _remember(self, found: Survey) -> None:
        self._known_ids |= {topic: i for topic, i in found.topic_ids.items() if topic not in self._known_ids}
        self._last_seen = {partition: now.latest for partition, now in found.partitions.items()}

    # What others know

    def _read_notes(self, start: Positions) -> None:
        wanted = self.progress.needs_name or not self.options.fail_on_data_loss
        if not (wanted and self._expects_notes):
            return
        try:
            found = notes.collect(self._cluster, self.box, list(start))
        except ClientError as failure:
            _log.warning("notes of tasks could not be read: %s", failure)
            return
        self._expects_notes = False
        if self.progress.needs_name and found.query_id is not None:
            self.progress.name_after(found.query_name, found.query_id)
        for partition, pieces in found.lost.items():
            for piece_start, piece_end in pieces:
                self.ledger.add(partition, piece_start, piece_end)

    def _report_progress(self, start: Positions, found: Survey) -> None:
        existing = {partition: position for partition, position in start.items() if partition in found.partitions}
        self.progress.commit(existing, self.ledger.counts())
