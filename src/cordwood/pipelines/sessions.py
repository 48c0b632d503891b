"""The Spark session that pipelines run in, where they make it themselves."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def pipeline_session(app_name: str, settings: Mapping[str, Any], *, warm_up: bool = False) -> "SparkSession":
    """As `cordwood.spark.session` makes it, with shuffles as wide as the machine. `warm_up`: Python workers are started
    at once, for a query that is about to be."""
    from cordwood.spark import session

    spark = session(app_name, **dict(settings))
    if _SHUFFLE_PARTITIONS not in settings:
        # Spark does not adapt shuffles in a streaming query: its default of 200 would be 200 tasks and 200 files for
        # every small batch.
        spark.conf.set(_SHUFFLE_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    if warm_up:
        threading.Thread(target=_start_workers, args=(spark,), name="cordwood-warm-up", daemon=True).start()
    return spark


def _start_workers(spark: "SparkSession") -> None:
    """A job that has every core start a Python worker which has imported what the first batch needs. The query's first
    seconds go by in one process after the other, on one core: the others have nothing to do."""

    def ready(batches: Iterator[Any]) -> Iterator[Any]:
        import cordwood.spark.sink.task
        import cordwood.spark.source.range_reading  # noqa: F401

        yield from batches

    cores = spark.sparkContext.defaultParallelism
    # Whatever is wrong, the query will say so.
    with suppress(Exception):
        spark.range(cores, numPartitions=cores).mapInArrow(ready, "id long").collect()
