"""The daemon that Spark's Python workers are forked from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def test_workers_are_forked_from_a_daemon_that_has_imported_what_takes_long(spark: SparkSession) -> None:
    def daemons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            yield pa.RecordBatch.from_arrays([pa.array([command])], names=["command"])

    (found,) = spark.range(1).mapInArrow(daemons, "command string").collect()
    assert "cordwood.spark.worker_daemon pyspark.worker" in found["command"]
