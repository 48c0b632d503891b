"""The Spark session in which the worker runs a pipeline."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_READING: Final = "cordwood.spark.source.range_reading"
_TOPICS: Final = "cordwood.spark.sink.task"
_TABLES: Final = ("pyarrow.parquet", "cordwood.pipelines.tables.data_files")
"""Modules that workers import to read, or to write topics or tables."""


def pipeline_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """A session of `cordwood.spark.session` with shuffles as wide as the machine."""
    from cordwood.spark import session

    spark = session(app_name, **dict(settings))
    if _SHUFFLE_PARTITIONS not in settings:
        # Spark does not adapt shuffles in a streaming query: its default would be 200 tasks and 200 files for every
        # small batch.
        spark.conf.set(_SHUFFLE_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    return spark


def warm_up(spark: "SparkSession", pipeline: Pipeline) -> None:
    """Starts Python workers in a thread before a query starts. The query's first seconds use one core: the others are
    idle."""
    threading.Thread(target=_start_workers, args=(spark, pipeline), name="cordwood-warm-up", daemon=True).start()


def _start_workers(spark: "SparkSession", pipeline: Pipeline) -> None:
    """Runs a job without effect in which two Python workers for each core, a reader and a writer, import what the first
    batch needs."""
    needed = [_READING, *([_TOPICS] if pipeline.topics else []), *(_TABLES if pipeline.tables else [])]

    def ready(batches: Iterator[Any]) -> Iterator[Any]:
        from importlib import import_module

        for name in needed:
            import_module(name)
        yield from batches

    cores = spark.sparkContext.defaultParallelism
    # The query reports the same failure itself.
    with suppress(Exception):
        numbers = spark.range(cores, numPartitions=cores)
        numbers.mapInArrow(ready, "id long").mapInArrow(ready, "id long").collect()
