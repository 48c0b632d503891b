"""Poison records: counted against the budget, then written to the quarantine topic as they came, with their errors.

A quarantined record has the key, the value and the headers of the original, and more headers: `cordwood.error`,
`cordwood.rule` if a row of it breaks a rule that sets records aside, its origin (`cordwood.topic`, `.partition`,
`.offset`, `.timestamp`), and the batch that gave up on it (`cordwood.pipeline`, `.version`, `.edition`, `.query`,
`.batch`). Its bytes are whole, so it can be sent through again. A forgotten edition's name may be given to another
edition, so the query's id tells which edition a record belongs to. If there are outputs that are not replayable and the
edition was live, `cordwood.effects` says whether the record had its effects by then, from another edition. A replay
does not know: records that it sets aside have no such header.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.pipelines.definition.definition import ERROR, POISON, RECORD, RULE, Pipeline
from cordwood.pipelines.definition.errors import InvalidRows, OverBudget, Unrepeatable
from cordwood.pipelines.rows.isolation import Origin
from cordwood.pipelines.rows.watching import behind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PREFIX: Final = "cordwood."
MAX_ISOLATED: Final = 10_000
"""The most poison records of one batch that are told apart by address, in the driver's memory."""
MAX_SEARCHED: Final = 200
"""The most poison records of one batch that are found by trying the function, which takes some jobs for each."""
EFFECTS_DUE: Final = "due"
EFFECTS_HAD: Final = "had"
SHOWN: Final = 3
"""The number of poison records that the error shows when the budget is spent."""


class Why(NamedTuple):
    """Why a record is set aside."""

    error: str
    rule: str | None = None
    """The rule that one of its rows breaks."""

    def __str__(self) -> str:
        return self.error


def check_budget(
    pipeline: Pipeline,
    batch_id: int,
    rows_in: int | None,
    count: int,
    samples: Sequence[tuple[Origin, object]],
    *,
    is_all: bool = True,
) -> None:
    """Raises OverBudget, before anything of the batch is written. `is_all`: the search did not end early."""
    allowed = pipeline.budget.allowed(rows_in or 0)
    if count <= allowed:
        return
    shown = "; ".join(f"{origin}: {error}" for origin, error in samples[:SHOWN])
    poison = f"{'' if is_all else 'at least '}{count} poison {'record' if count == 1 else 'records'}"
    among = "in " if rows_in is None else f"among the {rows_in} of "
    raise OverBudget(
        f"{pipeline.name}: {poison} {among}batch {batch_id}, the budget is {pipeline.budget}; nothing "
        f"of the batch was written. {shown}",
        "mend the data or the function, or allow more with quarantine=budget(…), and run it again",
    )


def check_isolated(pipeline: Pipeline, batch_id: int, count: int) -> None:
    """Raises OverBudget for more records than can be told apart, whatever the budget: the rest would vanish."""
    if count > MAX_ISOLATED:
        raise OverBudget(
            f"{pipeline.name}: the function fails on more than {MAX_ISOLATED:,} records of batch {batch_id}, and so "
            "many are not told apart; nothing of the batch was written",
            "mend the function, or make batches smaller with max_rows_per_batch=, and run it again",
        )


def check_searched(pipeline: Pipeline, batch_id: int, count: int) -> None:
    """Raises OverBudget for more records than can be found by trying the function, whatever the budget."""
    if count > MAX_SEARCHED:
        raise OverBudget(
            f"{pipeline.name}: the function fails on more than {MAX_SEARCHED} records of batch {batch_id}, and each is "
            "found only by trying again and again; nothing of the batch was written",
            "let the expression give null where it fails (try_cast, try_divide), or guard the Python function with "
            "@guarded: then any number is set aside at once",
        )


def samples(rows: "DataFrame") -> list[tuple[Origin, str]]:
    """A few of the records that could not be decoded."""
    from pyspark.sql import functions as F

    found = rows.where(F.col(ERROR).isNotNull()).select(f"{RECORD}.*", ERROR).limit(SHOWN).collect()
    return [(Origin(row["topic"], row["partition"], row["offset"]), row[ERROR]) for row in found]


def origins_of(failures: "Sequence[DataFrame]", limit: int) -> dict[Origin, Why]:
    """The records of rows that failed (`_record`, `error`, and `rule` of those that break one), not many more than
    `limit`."""
    from pyspark.sql import functions as F

    found: dict[Origin, Why] = {}
    for rows in failures:
        rule = F.col("rule") if "rule" in rows.columns else F.lit(None).cast("string").alias("rule")
        addresses = rows.select(f"{RECORD}.topic", f"{RECORD}.partition", f"{RECORD}.offset", "error", rule)
        failed = addresses.limit(limit).collect()
        if len(failed) == limit:
            # A record may have many failed rows. Records are counted, so that none hides behind another.
            failed = addresses.dropDuplicates(["topic", "partition", "offset"]).limit(limit).collect()
        for row in failed:
            if row["topic"] is None:
                raise InvalidRows(
                    f"a row that came from no record fails, and there is nothing to set aside: {row['error']}",
                    "its _record is null, as outer joins make it: filter such rows out, or mend them",
                )
            origin = Origin(row["topic"], row["partition"], row["offset"])
            found.setdefault(origin, Why(row["error"], row["rule"]))
    return found


def undecoded(
    inputs: "Iterable[DataFrame]", who: "Mapping[str, str]", effects: "Column | None" = None
) -> "list[DataFrame]":
    """The records that could not be decoded, as records of the quarantine topic."""
    from pyspark.sql import functions as F

    found = []
    for rows in inputs:
        bad = rows.where(F.col(ERROR).isNotNull())
        origin = {name: F.col(f"{RECORD}.{name}") for name in ("topic", "partition", "offset", "timestamp", "key")}
        told = {"error": F.col(ERROR), **({} if effects is None else {"effects": effects})}
        if RULE in rows.columns:
            told["rule"] = F.col(RULE)
        found.append(_quarantined(bad, origin, F.col(f"{POISON}.value"), F.col(f"{POISON}.headers"), told, who))
    return found


def failed(
    source: "DataFrame", poison: Mapping[Origin, Why], who: "Mapping[str, str]", effects: "Column | None" = None
) -> "DataFrame":
    """The records that the function failed on, with their bytes from the source."""
    from pyspark.sql import functions as F

    rows = source.join(F.broadcast(origins(source.sparkSession, poison)), ["topic", "partition", "offset"])
    origin = {name: F.col(name) for name in ("topic", "partition", "offset", "timestamp", "key")}
    told = {"error": F.col("error"), "rule": F.col("rule"), **({} if effects is None else {"effects": effects})}
    return _quarantined(rows, origin, F.col("value"), F.col("headers"), told, who)


def without(rows: "DataFrame", poison: Mapping[Origin, Why]) -> "DataFrame":
    """The rows of all records that are not poison."""
    return without_those(rows, origins(rows.sparkSession, poison)) if poison else rows


def without_those(rows: "DataFrame", addresses: "DataFrame") -> "DataFrame":
    """The rows of all records except these (`topic`, `partition`, `offset`)."""
    from pyspark.sql import functions as F

    listed = addresses.select(F.col("topic").alias("_t"), F.col("partition").alias("_p"), F.col("offset").alias("_o"))
    same = (
        (F.col(f"{RECORD}.topic") == F.col("_t"))
        & (F.col(f"{RECORD}.partition") == F.col("_p"))
        & (F.col(f"{RECORD}.offset") == F.col("_o"))
    )
    return behind(rows.join(F.broadcast(listed), same, "left_anti"), "the good records")


def told(name: str) -> "Column":
    """The value of one of the quarantine's headers."""
    from pyspark.sql import functions as F

    found = F.filter(F.col("headers"), lambda header: header["key"] == F.lit(PREFIX + name))
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def addresses_of(written: "DataFrame", who: Mapping[str, str]) -> "DataFrame":
    """The records that a batch has set aside: `topic`, `partition`, `offset`."""
    return written.where((told("query") == who["query"]) & (told("batch") == who["batch"])).select(*_address())


def by_input(pipeline: Pipeline, topics: Mapping[str, int]) -> dict[str, int]:
    """Counts by topic as counts by input. An input that went over from one topic to another has several."""
    if len(pipeline.inputs) == 1:
        found = {name: sum(topics.values()) for name in pipeline.inputs}
    else:
        found = {
            name: sum(topics.get(each, 0) for each in (topic.name, *topic.left))
            for name, topic in pipeline.inputs.items()
        }
    return {name: count for name, count in found.items() if count}


def check_repeated(rows: "DataFrame", written: "DataFrame", who: Mapping[str, str]) -> None:
    """Checks a batch whose quarantine was written before it was interrupted. Raises Unrepeatable if records that fail
    now are not in quarantine: they would be neither there nor in any output."""
    before = addresses_of(written, who)
    others = rows.select(*_address(), told("error").alias("error")).join(before, before.columns, "left_anti")
    found = [f"{row['topic']}/{row['partition']}@{row['offset']}: {row['error']}" for row in others.take(SHOWN)]
    if found:
        raise Unrepeatable(
            f"batch {who['batch']} was interrupted after its poison records were set aside, and now it fails on others "
            f"({'; '.join(found)}): it can be finished only as it was begun"
        )


def _address() -> "list[Column]":
    """The origin of a quarantined record."""
    kinds = {"topic": "string", "partition": "int", "offset": "long"}
    return [told(name).cast(kind).alias(name) for name, kind in kinds.items()]


def origins(spark: "SparkSession", poison: Mapping[Origin, Why]) -> "DataFrame":
    import pyarrow as pa

    kinds = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "error": pa.string()}
    rows = [{**origin._asdict(), **why._asdict()} for origin, why in poison.items()]
    # Rows from Python would go through a Python process of Spark.
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema({**kinds, "rule": pa.string()})))


def _quarantined(
    rows: "DataFrame",
    origin: "Mapping[str, Column]",
    value: "Column",
    headers: "Column",
    why: "Mapping[str, Column]",
    who: Mapping[str, str],
) -> "DataFrame":
    from pyspark.sql import functions as F

    told = {**{name: F.lit(text) for name, text in who.items()}, **why}
    for name in ("topic", "partition", "offset"):
        told[name] = origin[name].cast("string")
    told["timestamp"] = F.unix_millis(origin["timestamp"]).cast("string")
    added = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in told.items()
        )
    )
    if "rule" in why:
        added = F.filter(added, lambda header: header["value"].isNotNull())
    # A record that was quarantined before has such headers already: the last one counts.
    kept = F.filter(headers, lambda header: ~header["key"].startswith(PREFIX))
    return rows.select(
        origin["key"].cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.concat(kept, added).alias("headers"),
    )
