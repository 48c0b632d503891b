"""The Spark session that pipelines run in, where they make it themselves."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_READING: Final = "cordwood.spark.source.range_reading"
_TOPICS: Final = "cordwood.spark.sink.task"
_TABLES: Final = ("pyarrow.parquet", "cordwood.pipelines.tables.data_files")
"""What workers that read, or write topics or tables, import."""


def pipeline_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """As `cordwood.spark.session` makes it, with shuffles as wide as the machine."""
    from cordwood.spark import session

    spark = session(app_name, **dict(settings))
    if _SHUFFLE_PARTITIONS not in settings:
        # Spark does not adapt shuffles in a streaming query: its default of 200 would be 200 tasks and 200 files for
        # every small batch.
        spark.conf.set(_SHUFFLE_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    return spark


def warm_up(spark: "SparkSession", pipeline: Pipeline) -> None:
    """Has a thread start Python workers, for a query that is about to be. The query's first seconds go by in one
    process after the other, on one core: the others have nothing to do."""
    threading.Thread(target=_start_workers, args=(spark, pipeline), name="cordwood-warm-up", daemon=True).start()


def _start_workers(spark: "SparkSession", pipeline: Pipeline) -> None:
    """A job of no effect, in which two Python workers for each core, one that reads and one that writes, import what
    the first batch needs."""
    needed = [_READING, *([_TOPICS] if pipeline.topics else []), *(_TABLES if pipeline.tables else [])]

    def ready(batches: Iterator[Any]) -> Iterator[Any]:
        from importlib import import_module

        for name in needed:
            import_module(name)
        yield from batches

    cores = spark.sparkContext.defaultParallelism
    # Whatever is wrong, the query will say so.
    with suppress(Exception):
        numbers = spark.range(cores, numPartitions=cores)
        numbers.mapInArrow(ready, "id long").mapInArrow(ready, "id long").collect()
