"""Two editions of a table side by side: how many rows, which keys differ, and what a few of the differences are.

Runs on Spark over snapshots, so that it is bounded in memory and sees both tables at one moment each. With a key, rows
are matched by it; without one, rows are counted, and a row that is there twice on one side and once on the other is one
difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.encoding import JSON_OPTIONS
from cordwood.pipelines.tables.reading import rows_of
from cordwood.pipelines.tables.staged import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAX_TEXT_LENGTH: Final = 200


@dataclass(frozen=True)
class Comparison:
    """What is different. Samples are in no particular order, and are not more than were asked for of each kind."""

    table: str
    key: Sequence[str]
    live_rows: int
    fresh_rows: int
    only_live: int
    only_fresh: int
    changed: int
    """Keys that both have, with other values; without a key there is no such thing."""
    columns_only_live: Sequence[str]
    columns_only_fresh: Sequence[str]
    columns_of_other_type: Sequence[str]
    samples: Sequence[Mapping[str, Any]]
    """`kind` (only live, only fresh, changed) and the rows; a changed one has the columns that differ."""

    @property
    def is_equal(self) -> bool:
        columns = (self.columns_only_live, self.columns_only_fresh, self.columns_of_other_type)
        return not (self.only_live or self.only_fresh or self.changed or any(columns))


def compare(
    spark: "SparkSession", table: str, key: Sequence[str], live: Snapshot, fresh: Snapshot, samples: int
) -> Comparison:
    from pyspark.sql import functions as F

    types = [{each.name: each.dataType.simpleString() for each in side.schema} for side in (live, fresh)]
    only_live = [name for name in types[0] if name not in types[1]]
    only_fresh = [name for name in types[1] if name not in types[0]]
    other_type = [name for name in types[0] if name in types[1] and types[0][name] != types[1][name]]
    common = [name for name in types[0] if name in types[1] and name not in other_type]
    by = [name for name in key if name in common]
    if by:
        joined = _by_key(spark, live, fresh, by, [name for name in common if name not in by])
    else:
        joined = _by_row(spark, live, fresh, common)
    joined = joined.where(F.col("kind").isNotNull()).persist()
    try:
        counts = {row["kind"]: row["count"] for row in joined.groupBy("kind").agg(F.sum("n").alias("count")).collect()}
        shown: list[Mapping[str, Any]] = []
        for kind in ("changed", "only live", "only fresh"):
            if counts.get(kind) and samples:
                rows = joined.where(F.col("kind") == kind).limit(samples).collect()
                shown += [_sample(kind, row, by) for row in rows]
    finally:
        joined.unpersist()
    return Comparison(
        table,
        tuple(key),
        live.rows,
        fresh.rows,
        counts.get("only live", 0),
        counts.get("only fresh", 0),
        counts.get("changed", 0),
        only_live,
        only_fresh,
        other_type,
        shown,
    )


def _by_key(
    spark: "SparkSession", live: Snapshot, fresh: Snapshot, key: Sequence[str], values: Sequence[str]
) -> "DataFrame":
    """(key, l, f, kind, n): the JSON of the values on both sides."""
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
        F.lit("{}").alias("key"),
        F.when(surplus > 0, F.col("row")).alias("l"),
        F.when(surplus < 0, F.col("row")).alias("f"),
        F.when(surplus > 0, "only live").when(surplus < 0, "only fresh").alias("kind"),
        F.abs(surplus).alias("n"),
    )


def _json(columns: Sequence[str]) -> "Column":
    """The columns as text: comparable whatever their types are, maps included."""
    from pyspark.sql import functions as F

    quoted = [F.col("`" + name.replace("`", "``") + "`") for name in columns]
    return F.to_json(F.struct(*quoted), {**JSON_OPTIONS, "ignoreNullFields": "false"}) if quoted else F.lit("{}")


def _sample(kind: str, row: Any, key: Sequence[str]) -> Mapping[str, Any]:
    import json

    live: Any = None if row["l"] is None else json.loads(row["l"])
    fresh: Any = None if row["f"] is None else json.loads(row["f"])
    sample: dict[str, Any] = {"kind": kind, "key": json.loads(row["key"]) if key else None}
    if kind == "changed":
        different = [name for name in live if live[name] != fresh.get(name)]
        sample["live"] = {name: _short(live[name]) for name in different}
        sample["fresh"] = {name: _short(fresh.get(name)) for name in different}
    else:
        values = live if kind == "only live" else fresh
        sample["live" if kind == "only live" else "fresh"] = {name: _short(value) for name, value in values.items()}
    return sample


def _short(value: Any) -> Any:
    return value[:MAX_TEXT_LENGTH] + "…" if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH else value
