"""The plan of a batch read: offset ranges, found and checked on the driver before any task runs."""

import logging
import os
from dataclasses import replace
from typing import NamedTuple

from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicId
from cordwood.spark.options import names as names
from cordwood.spark.source.data_loss import Cause, DataLoss, Ledger, Loss, find_losses, judge
from cordwood.spark.source.offsets import Positions
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.pushed_filters import PushedFilters
from cordwood.spark.source.survey import NothingToRead, Resolver, Survey, check_all_exist, subscribed_partitions, survey

_log = logging.getLogger(__name__)


def cores() -> int:
    """The cores of this machine: Spark does not tell a source those of the executors; minPartitions can."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BatchPlan(NamedTuple):
    ranges: list[OffsetRange]
    topic_ids: dict[str, TopicId]


def plan_batch(options: SourceOptions, pushed: PushedFilters) -> BatchPlan:
    with Cluster(options.client) as cluster:
        existing = subscribed_partitions(cluster, options.subscription)
        check_all_exist(cluster, options.subscription, existing, options.client.bootstrap_servers)
        found = survey(cluster, existing, options.isolation)
        resolver = Resolver(cluster, options, found)
        start, end = resolver.start(), resolver.end()
        end = _not_beyond(options, end, found)
        start = _inside(cluster, options, start, end, found)
        ranges = []
        for partition in sorted(start):
            if start[partition] > end[partition]:
                raise NothingToRead(
                    f"{partition} would be read from {start[partition]} to {end[partition]}: the beginning"
                    f" ({names.STARTING_OFFSETS} or a time) lies after the end ({names.ENDING_OFFSETS} or a time)."
                )
            if pushed.allows(partition):
                ranges.append(OffsetRange(partition, *pushed.clamp(start[partition], end[partition])))
        return BatchPlan(_late_enough(cluster, options, ranges, pushed), found.topic_ids)


def _inside(cluster: Cluster, options: SourceOptions, start: Positions, end: Positions, found: Survey) -> Positions:
    losses = []
    # A position behind an open transaction is within the log, with nothing to read yet.
    kept = {partition: min(offset, found.readable[partition]) for partition, offset in start.items()}
    for loss in find_losses(start, found.partitions, known_ids={}, last_seen={}):
        if loss.cause is not Cause.REMOVED:
            kept[loss.partition] = found.readable[loss.partition]
        elif loss.start >= end[loss.partition]:
            continue  # nothing is asked for, so nothing is missing
        else:
            # Records beyond the end were not asked for.
            kept[loss.partition] = min(found.partitions[loss.partition].earliest, end[loss.partition])
            loss = replace(loss, end=kept[loss.partition])
        losses.append(loss)
    judge(cluster, losses, Ledger(), fail=options.fail_on_data_loss)
    return kept


def _not_beyond(options: SourceOptions, end: Positions, found: Survey) -> Positions:
    beyond = {partition: offset for partition, offset in end.items() if offset > found.readable[partition]}
    if not beyond:
        return end
    problems = [
        str(Loss(partition, found.readable[partition], offset, Cause.ENDS_EARLIER, None, found.readable[partition]))
        for partition, offset in sorted(beyond.items())
    ]
    text = f"{names.ENDING_OFFSETS} lies beyond what can be read.\n" + "\n".join(problems)
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{text}\nUse -1 for the latest offset, or set {names.FAIL_ON_DATA_LOSS}=false to read what is there."
        )
    _log.warning("data loss (failOnDataLoss=false): %s", text)
    return {partition: min(offset, found.readable[partition]) for partition, offset in end.items()}


def _late_enough(
    cluster: Cluster, options: SourceOptions, ranges: list[OffsetRange], pushed: PushedFilters
) -> list[OffsetRange]:
    """Cuts from each range the records before the first one that is late enough for a filter."""
    ranges = [wanted for wanted in ranges if wanted.size > 0]
    time_ms = pushed.min_timestamp_ms
    if time_ms is None:
        return ranges
    found = cluster.list_offsets({wanted.partition: time_ms for wanted in ranges}, options.isolation)
    late = []
    for wanted in ranges:
        first = found.get(wanted.partition)
        if first is None:
            late.append(wanted)
        elif first.offset >= 0:
            late.append(wanted._replace(start=max(wanted.start, first.offset)))
    return [wanted for wanted in late if wanted.size > 0]
