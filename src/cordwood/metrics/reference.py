"""Generates docs/metrics.md from the lists of metrics."""

from collections.abc import Sequence

from cordwood.metrics.names import METRICS, Metric
from cordwood.metrics.pipeline_names import PIPELINE_METRICS

_INTRODUCTION = """\
# Metrics

<!-- Generated: python -m cordwood.metrics.reference > docs/metrics.md -->

With `metrics.listener = "127.0.0.1:9404"` (or `--set metrics.listener=127.0.0.1:9404`) the broker answers
`GET http://127.0.0.1:9404/metrics` in Prometheus's text format. The endpoint is off by default, has neither encryption
nor passwords, and belongs on an address that only the monitoring can reach. Counters begin at zero when the broker
starts.
[monitoring.md](operations/monitoring.md) has a configuration for Prometheus that scrapes a cluster, and alarms.

Values of partitions and groups are updated every `lag.check.interval.ms` (5 s), not on each scrape: a scrape costs
the event loop nothing but copying a few numbers, and its text is made in a thread. Only partitions whose logs are open
(used since the start, or with a position in them) have values of their own.

## Lag before loss

Every position of a group is watched by one broker, the leader of its partition: that broker has the metrics and the
lines in the log, whichever broker is the group's coordinator ([how](decisions/watching-lag.md)). Scrape all brokers,
and all workers of a machine.

`cordwood_group_time_to_data_loss_seconds` is the metric to alert on. Its inputs are the log's segments, the
topic's `retention.ms`, `retention.bytes`, `segment.bytes` and `segment.ms`, how fast the log grows and how fast the
group's position moves. The metric says when removal becomes due; the records go at the next retention check after that
(`log.retention.check.interval.ms`). Topics that are only compacted and topics without limits lose nothing by retention:
`+Inf`.

The broker also warns in its log, once for each event: when the time falls below `lag.warning.ms` (an hour, or half
of the topic's `retention.ms` if that is less), and when a position was overtaken, with the number of records lost.
One line describes the worst loss of a group and counts its other partitions; further groups are counted after ten.

Rates need two samples: for the first `lag.check.interval.ms` after a start there is no drain rate. A group that never
committed has no position, and where its clients would begin (`auto.offset.reset`) is not known to a broker:
`cordwood_group_never_committed` shows the group, and the lag metrics leave it out.

```yaml
- alert: GroupAboutToLoseRecords
  expr: cordwood_group_time_to_data_loss_seconds < 3600 and cordwood_group_lag_records > 0
- alert: GroupLostRecords
  expr: cordwood_group_lost_records > 0
- alert: HotPartition
  expr: |
    cordwood_topic_traffic_skew > 3
    and on (job, topic) sum by (job, topic) (cordwood_partition_append_bytes_per_second) > 100000
  for: 10m
- alert: DiskNearlyFull
  expr: cordwood_disk_free_bytes < 0.1 * cordwood_disk_size_bytes
- alert: AppendsRefused
  expr: rate(cordwood_refused_appends_total{error!~"NOT_LEADER_OR_FOLLOWER|EARLY_BATCH"}[5m]) > 0
```

A hot partition matters where there is traffic: of a few records a minute any one partition may have most.

## What is not measured

Records are opaque to the broker: it does not open batches on the way in. With `metrics.hot.keys = true` it opens the
newest batch of each hot partition now and then, in a thread, and names the most frequent keys in them by a sketch of
fixed size: a sample, not a count. Bytes by key and keys of partitions that are not hot are not measured.

`lag_seconds` is as exact as the time index of the segment (about 4 KiB of records) while that is in memory; else it is
by proportion between the ends of segments.

## All of them
"""

_PIPELINES = """
## Pipelines

`cordwood pipeline run orders.py --metrics 127.0.0.1:9405` answers `GET http://127.0.0.1:9405/metrics` as long as it
runs, from the process that supervises the pipeline ([how](pipelines.md#metrics)). Counters begin at zero with that
process. What is said of inputs is asked of the brokers every 15 s, by a thread of its own.

`cordwood.spark.QueryMetrics` has the same metrics for [plain queries](spark.md#prometheus), without quarantine and
rules. There `pipeline` is the query's name, `edition` is `query`, `version` is empty and `output` is `sink`; rows out
are absent where Spark does not count them (`foreachBatch`). A batch's time has Spark's part in it, and a start after a
failure counts as a new try.
"""


def reference_markdown() -> str:
    return "\n".join([_INTRODUCTION, *_table(METRICS), _PIPELINES, *_table(PIPELINE_METRICS)]) + "\n"


def _table(metrics: Sequence[Metric]) -> list[str]:
    return [
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | {metric.meaning} |"
            for metric in metrics
        ),
    ]


if __name__ == "__main__":
    print(reference_markdown(), end="")
