"""Reading a table as Spark rows: the files of one moment, however long it takes and whatever is written meanwhile."""

from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.pipelines.definition import TableFormat
from cordwood.pipelines.tables.delta import delta_snapshot
from cordwood.pipelines.tables.parquet import parquet_snapshot
from cordwood.pipelines.tables.staged import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def snapshot(directory: Path, format_: TableFormat) -> Snapshot | None:
    return delta_snapshot(directory) if format_ is TableFormat.DELTA else parquet_snapshot(directory)


def rows_of(spark: "SparkSession", found: Snapshot) -> "DataFrame":
    if not found.files:
        return spark.createDataFrame([], found.schema)
    return spark.read.schema(found.schema).parquet(*(str(path) for path in found.files))
