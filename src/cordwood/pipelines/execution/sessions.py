"""The Spark session in which the worker runs a pipeline, and reports of what it does before its first batch is done."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import Refusal
from cordwood.pipelines.editions.events import Tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cordwood.pipelines.execution.running import Running

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_READING: Final = "cordwood.spark.source.range_reading"
_TOPICS: Final = "cordwood.spark.sink.task"
_TABLES: Final = ("pyarrow.parquet", "cordwood.pipelines.tables.data_files")
"""Modules that workers import to read, or to write topics or tables."""


def pipeline_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """A session of `cordwood.spark.session` with shuffles as wide as the machine."""
    from cordwood.spark import session
    from cordwood.spark.releases.capabilities import NotInThisSpark, running

    try:
        running().require_streams("A pipeline")
    except NotInThisSpark as lacking:
        raise Refusal(str(lacking)) from lacking
    spark = session(app_name, **dict(settings))
    widen_shuffles(spark, settings)
    return spark


def widen_shuffles(spark: "SparkSession", settings: Mapping[str, Any]) -> None:
    """Makes the shuffles of a session as wide as the machine, unless its settings say how wide they are."""
    if _SHUFFLE_PARTITIONS not in settings:
        # Spark does not adapt shuffles in a streaming query: its default would be 200 tasks and 200 files for every
        # small batch.
        spark.conf.set(_SHUFFLE_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))


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


_LOOK_S: Final = 0.5
_IN_WORDS: Final = {
    "Initializing sources": "starting the source",
    "Getting offsets": "asking the broker how far the log goes",
    "Processing new data": "the first batch is under way",
    "Waiting for data": "waiting for records",
}
"""Beginnings of the messages of `StreamingQuery.status`, and their meaning for a waiting user."""


def doing_in_words(message: str) -> str | None:
    """The meaning of Spark's message; None for one that says nothing new."""
    return next((text for beginning, text in _IN_WORDS.items() if message.startswith(beginning)), None)


def tell_what_is_done(running: "Running", tell: Tell) -> None:
    """Reports in a thread of its own what the query does, until its first batch is done or it ends."""

    def watch() -> None:
        said = None
        try:
            while running.query.isActive and not running.has_done_a_batch:
                text = doing_in_words(running.query.status["message"])
                if text is not None and text != said:
                    said = text
                    tell({**running.who, "event": "doing", "text": text})
                time.sleep(_LOOK_S)
        except Exception:
            return  # Spark is gone; the thread that waits for the query reports it

    threading.Thread(target=watch, name="cordwood-telling", daemon=True).start()
