"""Sending quarantined records through again, each once, as one numbered batch of its own.

What is to be sent is written down first, then it goes through the function into the outputs under the requeue's number,
then it is written down as sent. A requeue that was interrupted anywhere is gone on with as it was planned. Records that
fail again go back to quarantine, as new records there.

A requeued record comes after everything that was read before it. In a table with a key it could therefore put an old
row in the place of a newer one: records of whose key a later one was read are superseded, and left where they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.batches import Batches, BatchReport
from cordwood.pipelines.checkpoint import committed_position
from cordwood.pipelines.definition import Budget, Pipeline
from cordwood.pipelines.editions import Edition, PipelineState
from cordwood.pipelines.errors import DamagedState, WrongState
from cordwood.pipelines.isolation import Origin
from cordwood.pipelines.offset_sets import OffsetSet
from cordwood.pipelines.outputs import Outputs
from cordwood.pipelines.quarantine import PREFIX, told
from cordwood.pipelines.running import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_RECORDS: Final = 10_000
"""Of one requeue: they are listed in the driver. More take another one."""
_FORMAT: Final = 1


@dataclass(frozen=True)
class Requeued:
    sent: int
    failed_again: int
    superseded: Sequence[Origin]
    left: bool
    """Whether there are more."""
    rows_out: Mapping[str, int]


@dataclass(frozen=True)
class _Plan:
    number: int
    done: OffsetSet
    pending: OffsetSet | None


class _Candidate(NamedTuple):
    partition: int
    offset: int
    origin: Origin


class Requeue:
    """The requeues of one edition. The caller holds the edition's lock."""

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, state: PipelineState, edition: Edition, bootstrap_servers: str
    ) -> None:
        if pipeline.settings.stateful:
            raise WrongState(
                f"{pipeline.name} is stateful: a record cannot go through its state later than it came",
                f"`cordwood pipeline replay {pipeline.name}` builds the outputs anew",
            )
        if edition.query_id is None:
            raise WrongState(f"edition {edition.name} of {pipeline.name} has not run yet")
        self._spark = spark
        self._pipeline = pipeline
        self._state = state
        self._edition = edition
        self._query_id = edition.query_id
        self._servers = bootstrap_servers
        self._path: Path = state.edition_directory(edition.name) / "requeue.json"

    def run(self, *, superseded: bool) -> Requeued:
        """With `superseded`, records that are superseded are sent too."""
        plan = self._read()
        passed_over: list[Origin] = []
        left = False
        if plan.pending is None:
            candidates, passed_over, left = self._choose(plan.done, superseded=superseded)
            if not candidates:
                return Requeued(0, 0, passed_over, left, {})
            chosen = OffsetSet().with_offsets((each.partition, each.offset) for each in candidates)
            plan = _Plan(plan.number + 1, plan.done, chosen)
            self._write(plan)
        assert plan.pending is not None
        report = self._send(plan.number, plan.pending)
        self._write(_Plan(plan.number, plan.done.union(plan.pending), None))
        assert report.rows_in is not None
        return Requeued(report.rows_in, report.quarantined, passed_over, left, report.rows_out)

    def _choose(self, done: OffsetSet, *, superseded: bool) -> tuple[list[_Candidate], list[Origin], bool]:
        """What is to be sent, what is superseded, and whether there is more. Those that are superseded stay where they
        are, however many there are: they must not stand in the way of the others."""
        by_key = not superseded and any(table.key for table in self._pipeline.tables.values())
        passed_over: set[Origin] = set()
        while True:
            found = self._candidates(done)
            left, found = len(found) > MAX_RECORDS, found[:MAX_RECORDS]
            older = self._superseded(found) if by_key else set()
            passed_over |= older
            chosen = [each for each in found if each.origin not in older]
            if chosen or not left:
                return chosen, sorted(passed_over), left
            done = done.with_offsets((each.partition, each.offset) for each in found)

    def _candidates(self, done: OffsetSet) -> list[_Candidate]:
        from pyspark.sql import functions as F

        rows = _among(self._quarantined(), done, "left_anti").where(F.col("_query") == self._query_id)
        addresses = rows.select("partition", "offset", "_topic", "_partition", "_offset")
        found = addresses.orderBy("partition", "offset").limit(MAX_RECORDS + 1).collect()
        return [
            _Candidate(row["partition"], row["offset"], Origin(row["_topic"], row["_partition"], row["_offset"]))
            for row in found
        ]

    def _superseded(self, candidates: Sequence[_Candidate]) -> set[Origin]:
        """Those of whose key a later record was read, from the same partition."""
        from pyspark.sql import functions as F

        position = committed_position(self._state.checkpoint(self._edition.name))
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for topic, partition, offset in (each.origin for each in candidates):
            end = position.get(topic, {}).get(partition, 0)
            if offset + 1 < end:
                known = starts.setdefault(topic, {})
                known[str(partition)] = min(known.get(str(partition), offset + 1), offset + 1)
                ends.setdefault(topic, {})[str(partition)] = end
        if not starts:
            return set()
        later = (
            self._reader()
            .option("assign", json.dumps({topic: sorted(map(int, each)) for topic, each in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "false")
            .load()
            .select("topic", "partition", F.col("offset").alias("later"), "key")
        )
        chosen = OffsetSet().with_offsets((each.partition, each.offset) for each in candidates)
        asked = (
            _among(self._quarantined(), chosen, "left_semi")
            .where(F.col("key").isNotNull())
            .selectExpr("_topic as topic", "_partition as partition", "_offset as asked", "key")
        )
        found = later.join(F.broadcast(asked), ["topic", "partition", "key"]).where(F.col("later") > F.col("asked"))
        return {Origin(*row) for row in found.select("topic", "partition", "asked").distinct().collect()}

    def _send(self, number: int, chosen: OffsetSet) -> BatchReport:
        """The records as they came from the source, through the function and into the outputs."""
        from pyspark.sql import functions as F

        rows = _among(self._quarantined(), chosen, "left_semi")
        # One that failed, was requeued and failed again may be among them twice: it is one record.
        newest = rows.groupBy("_topic", "_partition", "_offset").agg(
            F.max_by(F.struct("key", "value", "headers", "_timestamp"), F.struct("partition", "offset")).alias("r")
        )
        source = newest.select(
            F.col("r.key").alias("key"),
            F.col("r.value").alias("value"),
            F.col("_topic").alias("topic"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.timestamp_millis(F.col("r._timestamp")).alias("timestamp"),
            F.filter(F.col("r.headers"), lambda header: ~header["key"].startswith(PREFIX)).alias("headers"),
        )
        lenient = replace(self._pipeline, budget=Budget(rows=len(chosen)))
        place = place_of(self._state, self._edition, self._servers)
        outputs = Outputs(lenient, place, self._query_id, replaying=False, requeue=True)
        live = self._state.live()
        # What an edition set aside while it was built may have had its effects from the one that was live then.
        effects_from = live.effects_from if live is not None and live.edition == self._edition.name else {}
        return Batches(lenient, outputs).process(source, number, effects_from)

    def _quarantined(self) -> "DataFrame":
        from pyspark.sql import functions as F

        rows: DataFrame = (
            self._reader()
            .option("subscribe", self._pipeline.quarantine_topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        return rows.select(
            "key",
            "value",
            "partition",
            "offset",
            "headers",
            told("query").alias("_query"),
            told("topic").alias("_topic"),
            told("partition").cast("int").alias("_partition"),
            told("offset").cast("long").alias("_offset"),
            told("timestamp").cast("long").alias("_timestamp"),
        ).where(F.col("_offset").isNotNull())

    def _reader(self) -> Any:
        return (
            self._spark.read.format("cordwood")
            .option("kafka.bootstrap.servers", self._servers)
            .option("kafka.isolation.level", "read_committed")
        )

    def _read(self) -> _Plan:
        value = self._state.files.read(self._path)
        if value is None:
            return _Plan(-1, OffsetSet(), None)
        if value.get("format") != _FORMAT:
            raise DamagedState(f"{self._path} is of format {value.get('format')!r}")
        pending = None if value["pending"] is None else OffsetSet.from_json(value["pending"])
        return _Plan(value["number"], OffsetSet.from_json(value["done"]), pending)

    def _write(self, plan: _Plan) -> None:
        self._state.files.replace(
            self._path,
            {
                "format": _FORMAT,
                "number": plan.number,
                "done": plan.done.to_json(),
                "pending": None if plan.pending is None else plan.pending.to_json(),
            },
        )


def _among(rows: "DataFrame", chosen: OffsetSet, how: str) -> "DataFrame":
    """The rows at these offsets (left_semi), or all others (left_anti)."""
    from pyspark.sql import functions as F

    ranges = [(partition, *each) for partition, several in chosen.ranges.items() for each in several]
    listed = rows.sparkSession.createDataFrame(ranges, "_p int, _start long, _end long")
    inside = (F.col("offset") >= F.col("_start")) & (F.col("offset") < F.col("_end"))
    return rows.join(F.broadcast(listed), (F.col("partition") == F.col("_p")) & inside, how)
