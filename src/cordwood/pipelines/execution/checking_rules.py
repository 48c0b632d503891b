"""Checks a pipeline's rules before its first batch: conditions that do not parse, or that name columns that are not
there."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.execution.batches import good_rows, outputs_of
from cordwood.pipelines.rows.decoding import inputs_of
from cordwood.pipelines.rows.guarding import diverting
from cordwood.pipelines.rows.rules import check_conditions, check_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of the source's rows."""


def check_rules(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Raises InvalidDefinition for rules that the rows of the inputs, or of the outputs, cannot be judged by.

    The columns of the outputs are those that the function makes of no rows, a stateful one of a stream that never runs.
    If the function cannot be called without rows, the rules of its outputs are checked with the first batch, before
    anything of it is written.
    """
    if not pipeline.rules:
        return
    inputs = good_rows(inputs_of(pipeline, _no_records(pipeline, spark)))
    for name, each in pipeline.inputs.items():
        check_conditions(inputs[name], f"input {each.name}", each.expect)
    if not any(each.expect for each in pipeline.outputs.values()):
        return
    outputs: dict[str, DataFrame] = {}
    with suppress(Exception), diverting(persist=False):
        outputs = outputs_of(pipeline, inputs)
    for name, rows in outputs.items():
        check_output(rows, pipeline.outputs[name])


def _no_records(pipeline: Pipeline, spark: "SparkSession") -> "DataFrame":
    nothing = spark.createDataFrame([], SOURCE)
    if not pipeline.settings.stateful:
        return nothing
    from pyspark.sql import functions as F

    columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in nothing.schema)
    return spark.readStream.format("rate").load().select(*columns)
