"""Takes records through a pipeline's function and writes nothing: rows and quarantined records are kept in memory.

Decoding, guarded functions, rules and the search for poison records are those of every batch (`batches.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.pipelines.definition.definition import RECORD, Output, Pipeline, Topic
from cordwood.pipelines.definition.table_output import Table, TableFormat
from cordwood.pipelines.execution.batches import Batches
from cordwood.pipelines.execution.outputs import OtherPoison, Work, unwritable_without_a_record
from cordwood.pipelines.formats.table_formats import unwritable_rows
from cordwood.pipelines.postgresql.relations import columns_for
from cordwood.pipelines.rows.encoding import records
from cordwood.pipelines.rows.isolation import Origin
from cordwood.pipelines.rows.quarantine import PREFIX
from cordwood.pipelines.rows.rules import RuleCounts
from cordwood.pipelines.rows.watching import collected
from cordwood.pipelines.tables.latest_rows import ordered_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


class SetAside(NamedTuple):
    """A record that would go to quarantine."""

    origin: Origin
    error: str
    rule: str | None
    """The rule that a row of it breaks; None for poison."""
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Trial:
    """What a batch of these records would write."""

    rows_in: int
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    """The rows of each output, without `_record`."""
    tombstones: Mapping[str, Sequence[bytes | None]]
    """The keys of the tombstones of each output: a table deletes their rows, a topic gets records without a value."""
    quarantined: Sequence[SetAside]
    rules: RuleCounts


def tried(pipeline: Pipeline, source: "DataFrame", *, sets_aside: bool = False) -> Trial:
    """Takes the source's rows through the pipeline. With `sets_aside`, rows of outputs that would fail the batch are
    set aside where they can be. Raises the refusals of a batch."""
    outputs = _Kept(pipeline)
    report = Batches(pipeline, outputs, sets_aside=sets_aside).process(source, 0, {})
    rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in pipeline.outputs}
    tombstones: dict[str, list[bytes | None]] = {name: [] for name in pipeline.outputs}
    for name, found in outputs.rows.items():
        for row in found:
            values = _plain(row.asDict(recursive=True))
            record = values.pop(RECORD, None)
            if record is not None and record["tombstone"]:
                tombstones[name].append(record["key"])
            else:
                rows[name].append(values)
    return Trial(
        report.rows_in or 0, rows, tombstones, sorted(outputs.aside, key=lambda each: each.origin), report.rules
    )


@dataclass
class _Kept:
    """The outputs of a batch, in memory."""

    pipeline: Pipeline
    skipped: Sequence[str] = ()
    rows: "dict[str, list[Row]]" = field(default_factory=dict)
    aside: list[SetAside] = field(default_factory=list)

    @property
    def wanted(self) -> Mapping[str, Output]:
        return self.pipeline.outputs

    def repeated(self, batch_id: int) -> list[str]:
        return []

    def set_aside_before(self, spark: "SparkSession", batch_id: int) -> None:
        return None

    def stage(self, outputs: "Mapping[str, DataFrame]", work: Work, batch_id: int, *, in_order: bool = False) -> None:
        for name, output in self.wanted.items():
            rows = outputs[name]
            _check_writable(rows, output)
            self.rows[name] = found = collected(rows)
            work.rows[name] = len(found)
            if not isinstance(output, Table):
                continue
            missing = [row for row in found if _lacks_key(row, output)]
            if missing and RECORD not in rows.columns:
                raise unwritable_without_a_record(output, len(missing), self.pipeline)
            if RECORD in rows.columns and (missing or output.format is TableFormat.POSTGRESQL):
                work.failures.append(unwritable_rows(rows, output))

    def discard(self, work: Work) -> None:
        for rows in work.kept:
            rows.unpersist()

    def commit(self, work: Work, batch_id: int, repeated: Sequence[str]) -> None:
        """Writes nothing."""

    def quarantine(self, rows: "DataFrame", batch_id: int, *, expected: int | None = None) -> None:
        found = rows.collect()
        if expected is not None and len(found) != expected:
            raise OtherPoison(f"{len(found)} records to set aside where {expected} were counted")
        self.aside = [set_aside_of(row) for row in found]

    def who(self, batch_id: int) -> dict[str, str]:
        return {"pipeline": self.pipeline.name}

    def tidy(self) -> tuple[str, ...]:
        return ()


def _check_writable(rows: "DataFrame", output: Output) -> None:
    """Raises InvalidRows for columns that the output could not take."""
    if isinstance(output, Topic):
        records(rows, output)
        return
    if output.key:
        ordered_rows(rows, output)
    if output.format is TableFormat.POSTGRESQL:
        columns_for(output, rows.drop(RECORD).schema)


def _lacks_key(row: "Row", table: Table) -> bool:
    record = row.asDict().get(RECORD)
    is_delete = record is not None and record["tombstone"] and record["key"] is not None
    return any(row[key] is None for key in table.key) and not (is_delete and len(table.key) == 1)


def set_aside_of(row: Any) -> SetAside:
    """A record of the quarantine topic, with `key`, `value` and `headers`."""
    told = {each["key"]: each["value"] for each in row["headers"] if each["key"].startswith(PREFIX)}
    texts = {key.removeprefix(PREFIX): bytes(value).decode() for key, value in told.items() if value is not None}
    origin = Origin(texts["topic"], int(texts["partition"]), int(texts["offset"]))
    return SetAside(origin, texts["error"], texts.get("rule"), _plain(row["key"]), _plain(row["value"]))


def _plain(value: Any) -> Any:
    """Spark has bytearrays, also within structs and lists."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
