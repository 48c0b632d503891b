"""Compares two editions of an output: how many rows, which keys differ, and a few of the differences.

Rows of a table with a key are matched by key. Rows of a table without a key are counted, and a row that is there twice
on one side and once on the other is one difference. Records of a topic are matched by their key: a key with other
records, or another number of them, has changed; records without a key are counted. The order of a topic's records is
not compared.

Small outputs are compared in this process (`in_process`): 20,000 rows take 0.2 s of CPU, and 24 s on Spark, most of
them for its start. Larger ones are compared on Spark, with bounded memory. Either way each side is read as of one
moment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.formats.table_formats import rows_of
from cordwood.pipelines.rows.encoding import JSON_OPTIONS
from cordwood.pipelines.tables.staged import Snapshot
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAX_TEXT_LENGTH: Final = 200
KINDS: Final = ("changed", "only live", "only fresh")


@dataclass(frozen=True)
class Columns:
    """The columns in which two tables differ, and those that they share."""

    only_live: Sequence[str] = ()
    only_fresh: Sequence[str] = ()
    of_other_type: Sequence[str] = ()
    common: Sequence[str] = ()
    """Columns that both tables have, with the same type."""


@dataclass(frozen=True)
class Comparison:
    """The differences of two editions. Samples are unordered, and each kind has at most as many as were asked for."""

    name: str
    key: Sequence[str]
    live_rows: int
    fresh_rows: int
    only_live: int
    """Rows or records of keys that only the live edition has."""
    only_fresh: int
    changed: int
    """Keys of both editions with other values; 0 for an output without a key."""
    columns: Columns
    samples: Sequence[Mapping[str, Any]]
    """Each sample has `kind` (only live, only fresh, changed) and the rows; a changed one has the columns that
    differ."""

    @property
    def is_equal(self) -> bool:
        columns = (self.columns.only_live, self.columns.only_fresh, self.columns.of_other_type)
        return not (self.only_live or self.only_fresh or self.changed or any(columns))


def columns_of(live: Snapshot, fresh: Snapshot) -> Columns:
    types = [{each.name: each.dataType.simpleString() for each in side.schema} for side in (live, fresh)]
    other_type = [name for name in types[0] if name in types[1] and types[0][name] != types[1][name]]
    return Columns(
        only_live=[name for name in types[0] if name not in types[1]],
        only_fresh=[name for name in types[1] if name not in types[0]],
        of_other_type=other_type,
        common=[name for name in types[0] if name in types[1] and name not in other_type],
    )


def compare(
    spark: "SparkSession", table: str, key: Sequence[str], live: Snapshot, fresh: Snapshot, samples: int
) -> Comparison:
    """Compares two tables on Spark."""
    columns = columns_of(live, fresh)
    by = [name for name in key if name in columns.common]
    if by:
        joined = _by_key(spark, live, fresh, by, [name for name in columns.common if name not in by])
    else:
        joined = _by_row(spark, live, fresh, columns.common)
    counts, shown = _found(joined, samples)
    return Comparison(table, tuple(key), live.rows, fresh.rows, *counts, columns, shown)


def compare_topics(
    spark: "SparkSession", name: str, topics: tuple[str, str], bootstrap: Bootstrap, samples: int
) -> Comparison:
    """Compares two topics on Spark; the live one comes first."""
    from pyspark.sql import functions as F

    def side(topic: str, count: str) -> "DataFrame":
        reader = spark.read.format("cordwood").options(**connection_options(bootstrap))
        rows = reader.option("kafka.isolation.level", "read_committed").option("subscribe", topic).load()
        return rows.groupBy("key", "value").agg(F.count(F.lit(1)).alias(count))

    live, fresh = side(topics[0], "l"), side(topics[1], "f")
    same = live["key"].eqNullSafe(fresh["key"]) & live["value"].eqNullSafe(fresh["value"])
    both = live.join(fresh, same, "full_outer").select(
        F.coalesce(live["key"], fresh["key"]).alias("key"),
        F.coalesce(live["value"], fresh["value"]).alias("value"),
        F.coalesce("l", F.lit(0)).alias("l"),
        F.coalesce("f", F.lit(0)).alias("f"),
    )
    both = both.persist()
    try:
        sums = both.agg(F.sum("l").alias("l"), F.sum("f").alias("f")).collect()[0]
        # A record without a key is matched by its content.
        alone = F.when(F.col("key").isNull(), F.col("value"))
        by_key = both.groupBy("key", alone.alias("alone")).agg(
            F.sum("l").alias("n_l"),
            F.sum("f").alias("n_f"),
            F.max(F.col("l") != F.col("f")).alias("differs"),
            F.min(F.when(F.col("l") > F.col("f"), F.struct("value"))).alias("sample_l"),
            F.min(F.when(F.col("f") > F.col("l"), F.struct("value"))).alias("sample_f"),
        )
        has_key = F.col("key").isNotNull()
        surplus = F.col("n_l") - F.col("n_f")
        kind = (
            F.when(~F.col("differs"), None)
            .when((F.col("n_f") == 0) | (~has_key & (surplus > 0)), "only live")
            .when((F.col("n_l") == 0) | ~has_key, "only fresh")
            .otherwise("changed")
        )
        joined = by_key.select(
            F.col("key").cast("string").alias("key"),
            F.col("sample_l.value").cast("string").alias("l"),
            F.col("sample_f.value").cast("string").alias("f"),
            kind.alias("kind"),
            F.when(kind == "changed", F.lit(1)).otherwise(F.abs(surplus)).alias("n"),
        )
        counts, shown = _found(joined, samples, of_topic=True)
    finally:
        both.unpersist()
    return Comparison(name, ("key",), sums["l"] or 0, sums["f"] or 0, *counts, Columns(), shown)


def _found(
    joined: "DataFrame", samples: int, *, of_topic: bool = False
) -> tuple[tuple[int, int, int], list[Mapping[str, Any]]]:
    """Counts the differences of each kind (only live, only fresh, changed) and takes samples from (key, l, f, kind,
    n)."""
    from pyspark.sql import functions as F

    joined = joined.where(F.col("kind").isNotNull()).persist()
    try:
        counts = {row["kind"]: row["count"] for row in joined.groupBy("kind").agg(F.sum("n").alias("count")).collect()}
        shown: list[Mapping[str, Any]] = []
        for kind in KINDS:
            if counts.get(kind) and samples:
                rows = joined.where(F.col("kind") == kind).limit(samples).collect()
                show = record_sample if of_topic else row_sample
                shown += [show(kind, row["key"], row["l"], row["f"]) for row in rows]
    finally:
        joined.unpersist()
    return (counts.get("only live", 0), counts.get("only fresh", 0), counts.get("changed", 0)), shown


def _by_key(
    spark: "SparkSession", live: Snapshot, fresh: Snapshot, key: Sequence[str], values: Sequence[str]
) -> "DataFrame":
    """(key, l, f, kind, n), where l and f are the JSON of the values on both sides."""
    from pyspark.sql import functions as F

    def side(snapshot: Snapshot, name: str) -> "DataFrame":
        rows = rows_of(spark, snapshot)
        return rows.select(_json(key).alias("key"), _json(values).alias(name))

    joined = side(live, "l").join(side(fresh, "f"), "key", "full_outer")
    kind = (
        F.when(F.col("f").isNull(), "only live")
        .when(F.col("l").isNull(), "only fresh")
        .when(F.col("l") != F.col("f"), "changed")
    )
    return joined.withColumn("kind", kind).withColumn("n", F.lit(1))


def _by_row(spark: "SparkSession", live: Snapshot, fresh: Snapshot, columns: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as F

    def side(snapshot: Snapshot, name: str) -> "DataFrame":
        rows = rows_of(spark, snapshot).select(_json(columns).alias("row"))
        return rows.groupBy("row").agg(F.count(F.lit(1)).alias(name))

    joined = side(live, "l").join(side(fresh, "f"), "row", "full_outer")
    surplus = F.coalesce(F.col("l"), F.lit(0)) - F.coalesce(F.col("f"), F.lit(0))
    return joined.select(
        F.lit(None).cast("string").alias("key"),
        F.when(surplus > 0, F.col("row")).alias("l"),
        F.when(surplus < 0, F.col("row")).alias("f"),
        F.when(surplus > 0, "only live").when(surplus < 0, "only fresh").alias("kind"),
        F.abs(surplus).alias("n"),
    )


def _json(columns: Sequence[str]) -> "Column":
    """The columns as JSON text, which compares values of any type, maps included."""
    from pyspark.sql import functions as F

    quoted = [F.col("`" + name.replace("`", "``") + "`") for name in columns]
    return F.to_json(F.struct(*quoted), {**JSON_OPTIONS, "ignoreNullFields": "false"}) if quoted else F.lit("{}")


def row_sample(kind: str, key: str | None, live: str | None, fresh: str | None) -> Mapping[str, Any]:
    """A difference of two tables, made of the JSON of the key and of the row on both sides."""
    import json

    values = {side: json.loads(text) for side, text in (("live", live), ("fresh", fresh)) if text is not None}
    return _sample(kind, None if key is None else json.loads(key), values)


def record_sample(kind: str, key: str | None, live: str | None, fresh: str | None) -> Mapping[str, Any]:
    """A difference of two topics, made of the text of the record's key and of its value on both sides."""
    import json

    values: dict[str, Any] = {}
    for side, text in (("live", live), ("fresh", fresh)):
        if text is None and kind != "changed" and kind != f"only {side}":
            continue
        try:
            value = None if text is None else json.loads(text)
        except ValueError:
            value = text
        values[side] = value if isinstance(value, dict) else {"value": value}
    return _sample(kind, key, values)


def _sample(kind: str, key: Any, sides: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    names = {name: None for values in sides.values() for name in values}
    if kind == "changed" and len(sides) == 2:
        live, fresh = sides["live"], sides["fresh"]
        names = {name: None for name in names if name not in live or name not in fresh or live[name] != fresh[name]}
    sample: dict[str, Any] = {"kind": kind, "key": key}
    for side, values in sides.items():
        sample[side] = {name: _short(values.get(name)) for name in names}
    return sample


def _short(value: Any) -> Any:
    return value[:MAX_TEXT_LENGTH] + "…" if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH else value
