"""The audit itself: Spark reads all of a topic's history and counts.

The first of two reads takes the committed records, for keys, times, duplicates and skew. The second counts every
offset, also of control records and aborted transactions, since only then is a missing offset a gap. Only counts and a
few samples are collected, so a topic may be as large as Spark can shuffle.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from cordwood.client.answers import EARLIEST, LATEST, Isolation
from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.audit.report import BadQuestion, Check, EventId, Finding, PartitionShare, Questions, Report
from cordwood.spark.options.security import connection_options

STRIDE = 4096
"""Offsets are counted in strides; only strides with missing offsets are examined one by one."""

Spans = dict[int, tuple[int, int]]
"""Partition → (first offset, offset after the last) of the audited records."""


def audit(spark: SparkSession, questions: Questions) -> Report:
    with Cluster(questions.bootstrap.settings()) as cluster:
        spans, compacted = _look_at(cluster, questions.topic)
    records = _committed(spark, questions, spans).cache()
    try:
        per_partition = {row["partition"]: row["records"] for row in _count(records, "partition").collect()}
        keys, split, inversions, hot_keys = _by_key(records, questions)
        duplicates = _duplicates(records, questions)
    finally:
        records.unpersist()
    total = sum(per_partition.values())
    shares = tuple(
        PartitionShare(partition, start, end, count := per_partition.get(partition, 0), count / total if total else 0.0)
        for partition, (start, end) in sorted(spans.items())
    )
    gaps = _gaps(_all_offsets(spark, questions, spans), questions, spans, compacted=compacted)
    skew = _skew(shares, hot_keys, questions)
    findings = (split, inversions, duplicates, gaps, skew)
    return Report(questions.topic, total, keys, shares, findings, hot_keys, questions.fail_on)


def _look_at(cluster: Cluster, topic: str) -> tuple[Spans, bool]:
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise BadQuestion(f"there is no topic {topic!r}")
    partitions = [TopicPartition(topic, each.index) for each in found.partitions]
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), Isolation.READ_COMMITTED)
    last = cluster.list_offsets(dict.fromkeys(partitions, LATEST), Isolation.READ_COMMITTED)
    compacted = "compact" in cluster.describe_configs(topic).get("cleanup.policy", "")
    return {each.partition: (first[each].offset, last[each].offset) for each in partitions}, compacted


# Reading


def _read(spark: SparkSession, questions: Questions, spans: Spans, schema: str, isolation: str) -> DataFrame:
    return (
        spark.read.format("cordwood")
        .schema(schema)
        .options(**connection_options(questions.bootstrap))
        .option("assign", _json({questions.topic: sorted(spans)}))
        .option("startingOffsets", _json({questions.topic: {str(each): spans[each][0] for each in spans}}))
        .option("endingOffsets", _json({questions.topic: {str(each): spans[each][1] for each in spans}}))
        .option("kafka.isolation.level", isolation)
        .option("includeOrigin", "true")
        .option("includeHeaders", "true" if "headers" in schema else "false")
        .load()
    )


def _committed(spark: SparkSession, questions: Questions, spans: Spans) -> DataFrame:
    event_id = questions.event_id
    schema = "key binary, partition int, offset long, timestamp timestamp"
    schema += ", producerId long, producerEpoch int, sequence int, control boolean"
    if event_id is not None:
        schema += ", value binary" if event_id.kind == "json" else ", headers array<struct<key:string,value:binary>>"
    records = _read(spark, questions, spans, schema, "read_committed").where(~f.col("control"))
    if event_id is not None:
        records = records.withColumn("event", _event(event_id)).drop("value", "headers")
    return records.drop("control")


def _all_offsets(spark: SparkSession, questions: Questions, spans: Spans) -> DataFrame:
    return _read(spark, questions, spans, "partition int, offset long", "read_uncommitted")


def _event(event_id: EventId) -> Column:
    if event_id.kind == "json":
        return f.get_json_object(f.col("value").cast("string"), f"$.{event_id.name}")
    named = f.filter("headers", lambda header: header["key"] == event_id.name)
    return f.get(named, f.lit(0))["value"].cast("string")


# Checks


def _count(records: DataFrame, *by: str) -> DataFrame:
    return records.groupBy(*by).agg(f.count(f.lit(1)).alias("records"))


def _by_key(records: DataFrame, questions: Questions) -> tuple[int, Finding, Finding, tuple[dict[str, Any], ...]]:
    """Finds keys in several partitions, times that go back, and the keys with the most records."""
    in_order = Window.partitionBy("key", "partition").orderBy("offset")
    back = f.lag("timestamp").over(in_order).cast("double") - f.col("timestamp").cast("double")
    keyed = records.where(f.col("key").isNotNull()).withColumn("back_s", back)
    of_partition = keyed.groupBy("key", "partition").agg(
        f.count(f.lit(1)).alias("records"),
        f.count(f.when(f.col("back_s") > 0, 1)).alias("inversions"),
        f.max("back_s").alias("worst_s"),
        f.min(f.when(f.col("back_s") > 0, f.col("offset"))).alias("first_offset"),
    )
    of_key = (
        of_partition.groupBy("key")
        .agg(
            f.sum("records").alias("records"),
            f.sort_array(f.collect_list("partition")).alias("partitions"),
            f.sum("inversions").alias("inversions"),
            f.max("worst_s").alias("worst_s"),
            f.max_by("partition", "worst_s").alias("worst_partition"),
            f.max_by("first_offset", "worst_s").alias("worst_offset"),
        )
        .cache()
    )
    try:
        split = f.size("partitions") > 1
        row = of_key.agg(
            f.count(f.lit(1)).alias("keys"),
            f.count(f.when(split, 1)).alias("split"),
            f.count(f.when(f.col("inversions") > 0, 1)).alias("inverted_keys"),
            f.coalesce(f.sum("inversions"), f.lit(0)).alias("inversions"),
        ).first()
        assert row is not None
        split_rows = _top(of_key.where(split), questions, "records")
        inverted_rows = _top(of_key.where(f.col("inversions") > 0), questions, "worst_s")
        hot_rows = _top(of_key, questions, "records")
    finally:
        of_key.unpersist()
    split_keys = Finding(
        Check.SPLIT_KEYS,
        "key",
        row["split"],
        "keys are in more than one partition: nothing orders their records across partitions",
        samples=tuple(
            {"key": _shown(each["key"]), "partitions": each["partitions"], "records": each["records"]}
            for each in split_rows
        ),
    )
    inversions = Finding(
        Check.INVERSIONS,
        "key, within a partition",
        row["inversions"],
        f"records are older than the one before them with the same key ({row['inverted_keys']} keys)",
        samples=tuple(
            {
                "key": _shown(each["key"]),
                "partition": each["worst_partition"],
                "first_offset": each["worst_offset"],
                "records": each["inversions"],
                "worst_ms": round(each["worst_s"] * 1000),
            }
            for each in inverted_rows
        ),
    )
    hot = tuple({"key": _shown(each["key"]), "records": each["records"]} for each in hot_rows)
    return row["keys"], split_keys, inversions, hot


def _duplicates(records: DataFrame, questions: Questions) -> Finding:
    if questions.event_id is not None:
        told = records.where(f.col("event").isNotNull())
        by, scope = ["event"], "topic"
        what = f"records repeat an event ({questions.event_id})"
        silent = f"records without {questions.event_id} cannot be judged"
    else:
        told = records.where(f.col("sequence") >= 0)
        by, scope = ["partition", "producerId", "producerEpoch", "sequence"], "partition"
        what = "records repeat a producer's sequence number"
        silent = "records of producers without idempotence cannot be judged: name their event id"
    repeated = _count(told, *by).where(f.col("records") > 1)
    row = repeated.agg(f.coalesce(f.sum(f.col("records") - 1), f.lit(0)).alias("extra")).first()
    assert row is not None
    unjudged = records.count() - told.count()
    shown = _top(repeated, questions, "records") if row["extra"] else []
    places = _first_places(told, by, shown, questions.samples)
    samples = tuple(
        {**{name: each[name] for name in by if name != "partition"}, "places": places[_values(each, by)]}
        for each in shown
    )
    remarks = (f"{unjudged:,} {silent}",) if unjudged else ()
    return Finding(Check.DUPLICATES, scope, row["extra"], what, remarks, samples)


def _first_places(
    records: DataFrame, by: Sequence[str], groups: Sequence[Any], limit: int
) -> dict[tuple[Any, ...], list[str]]:
    """The places of the first records of each group. A group may be as large as the topic, so no list holds it
    whole."""
    places: dict[tuple[Any, ...], list[str]] = {_values(each, by): [] for each in groups}
    if places:
        listed = records.sparkSession.createDataFrame(list(places), records.select(*by).schema)
        nth = f.row_number().over(Window.partitionBy(*by).orderBy("partition", "offset"))
        first = records.join(f.broadcast(listed), list(by)).withColumn("nth", nth).where(f.col("nth") <= limit)
        for row in first.orderBy("partition", "offset").collect():
            places[_values(row, by)].append(f"{row['partition']}:{row['offset']}")
    return places


def _values(row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _gaps(offsets: DataFrame, questions: Questions, spans: Spans, *, compacted: bool) -> Finding:
    stride = f.floor(f.col("offset") / STRIDE).alias("stride")
    counted = {
        (row["partition"], row["stride"]): row["records"]
        for row in offsets.groupBy("partition", stride).agg(f.count(f.lit(1)).alias("records")).collect()
    }
    missing, suspects = 0, []
    for partition, (start, end) in sorted(spans.items()):
        for number in range(start // STRIDE, -(-end // STRIDE)):
            first, last = max(start, number * STRIDE), min(end, (number + 1) * STRIDE)
            lacking = last - first - counted.get((partition, number), 0)
            if lacking:
                missing += lacking
                suspects.append((partition, first, last))
    samples = tuple(
        {"partition": partition, "first_offset": first, "end_offset": end}
        for partition, first, end in _exactly(offsets, suspects[: questions.samples])[: questions.samples]
    )
    remarks = ("the topic is compacted: it keeps the last record of each key",) if compacted and missing else ()
    what = "offsets have no record"
    return Finding(Check.GAPS, "partition", missing, what, remarks, samples, explained=compacted)


def _exactly(offsets: DataFrame, suspects: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The missing offsets of these strides, as ranges."""
    found = []
    for partition, first, last in suspects:
        within = (f.col("partition") == partition) & (f.col("offset") >= first) & (f.col("offset") < last)
        there = {row["offset"] for row in offsets.where(within).collect()}
        at = first
        for offset in [*sorted(there), last]:
            if offset > at:
                found.append((partition, at, offset))
            at = offset + 1
    return found


def _skew(shares: Sequence[PartitionShare], hot_keys: Sequence[dict[str, Any]], questions: Questions) -> Finding:
    total = sum(each.records for each in shares)
    fair = total / len(shares) if shares else 0.0
    heavy = [each for each in shares if fair and each.records > questions.skew_ratio * fair]
    remarks = []
    if hot_keys and fair and hot_keys[0]["records"] * questions.skew_ratio > fair:
        remarks.append(f"key {hot_keys[0]['key']} alone has {hot_keys[0]['records'] / total:.0%} of all records")
    return Finding(
        Check.SKEW,
        "partition",
        len(heavy),
        f"partitions have more than {questions.skew_ratio:g} times their fair share",
        tuple(remarks),
        tuple({"partition": each.partition, "records": each.records, "share": round(each.share, 4)} for each in heavy),
    )


def _top(rows: DataFrame, questions: Questions, by: str) -> list[Any]:
    return rows.orderBy(f.desc(by)).limit(questions.samples).collect()


def _shown(key: bytes | bytearray) -> str:
    """A key as text where it is text, else in base64."""
    try:
        return bytes(key).decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(bytes(key)).decode()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)
