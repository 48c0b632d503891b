"""A pipeline's function with rows as lists of dicts, without a broker."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cordwood.pipelines.definition.definition import Budget, Pipeline
from cordwood.pipelines.execution.trial import SetAside, Trial, tried
from cordwood.pipelines.rows.rules import RuleCounts
from cordwood.pipelines.testing.given import GivenRow, bypassing, encoded, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Results(dict[str, list[Mapping[str, Any]]]):
    """The rows of each output, by the output's name, without `_record`. Their order is no promise of a pipeline."""

    def __init__(self, found: Trial) -> None:
        super().__init__({name: list(rows) for name, rows in found.rows.items()})
        self.tombstones: Mapping[str, Sequence[bytes | None]] = found.tombstones
        """The keys of the tombstones in each output."""
        self.quarantined: Sequence[SetAside] = found.quarantined
        self.rules: RuleCounts = found.rules
        """By rule: {"quarantined": records} or {"dropped": rows}."""


def run_function(pipeline: Pipeline, spark: "SparkSession", /, **inputs: Sequence[GivenRow]) -> Results:
    """Runs a pipeline's function on these rows, as a batch would: with decoding, guarded functions and rules, and
    nothing is written.

    A row is a dict of the input's columns; an input with a `key=` takes the key as the column `key`. `record` and
    `tombstone` make records with keys, partitions and times of their own, and bytes are a record's value as it comes.
    `_record` is filled in. An input that is not given has no rows. The budget is not asked: all records that would go
    to quarantine are in `quarantined`. A rule that fails the batch raises RuleBroken. A stateful function gets ordinary
    DataFrames.
    """
    unknown = sorted(set(inputs) - set(pipeline.inputs))
    if unknown:
        raise TypeError(f"{pipeline.name} has no input {', '.join(unknown)}: it has {', '.join(pipeline.inputs)}")
    made = bypassing(pipeline, inputs)
    records = [each for name, topic in made.inputs.items() for each in encoded(topic, inputs.get(name, ()))]
    within_budget = replace(made, budget=Budget(rows=len(records)))
    return Results(tried(within_budget, source_of(spark, records)))
