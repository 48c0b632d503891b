"""The daemon that Spark's Python workers are forked from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


def test_workers_are_forked_from_a_daemon_that_has_imported_what_takes_long(spark: SparkSession) -> None:
    def daemons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            yield pa.RecordBatch.from_arrays([pa.array([command])], names=["command"])

    (found,) = spark.range(1).mapInArrow(daemons, "command string").collect()
    assert "cordwood.spark.worker_daemon pyspark.worker" in found["command"]


def test_what_reads_and_what_writes_share_one_daemon(spark: SparkSession) -> None:
    class Daemon(DataSource):
        """One row: the process from which the worker that reads was forked."""

        def schema(self) -> str:
            return "reader int"

        def reader(self, schema: object) -> DataSourceReader:
            class Reader(DataSourceReader):
                def read(self, partition: "InputPartition") -> "Iterator[tuple[int]]":
                    yield (os.getppid(),)

            return Reader()

    def with_writer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column("writer", pa.array([os.getppid()] * batch.num_rows, pa.int32()))

    spark.dataSource.register(Daemon)
    (row,) = spark.read.format("Daemon").load().mapInArrow(with_writer, "reader int, writer int").collect()
    assert row["reader"] == row["writer"]


def test_python_hashes_text_alike_in_all_workers(spark: SparkSession) -> None:
    hashes = spark.sparkContext.parallelize(range(4), 4).map(lambda _: (hash("text"), os.environ["PYTHONHASHSEED"]))
    assert len(set(hashes.collect())) == 1
