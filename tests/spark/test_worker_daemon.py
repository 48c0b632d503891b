"""The daemon that Spark's Python workers are forked from."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Load, Produce, numbered


def test_workers_are_forked_from_a_daemon_that_has_imported_what_takes_long(spark: SparkSession) -> None:
    def daemons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            yield pa.RecordBatch.from_arrays([pa.array([command])], names=["command"])

    (found,) = spark.range(1).mapInArrow(daemons, "command string").collect()
    assert "cordwood.spark.workers.daemon pyspark.worker" in found["command"]


COUNT_DAEMONS = """
from pathlib import Path

import cordwood.spark
from cordwood.embedded import Broker

with Broker() as broker:
    broker.log.append("orders", None, b"one")
    spark = cordwood.spark.session(master="local[2]", **{"spark.ui.enabled": False})
    read = spark.read.format("cordwood").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    rows = read.option("subscribe", "orders").load().select("value")
    assert rows.mapInArrow(lambda batches: batches, rows.schema).count() == 1
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    children = Path(f"/proc/{java}/task").glob("*/children")
    pids = [pid for each in children for pid in each.read_text().split()]
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
    print(sum(b"workers.daemon\\0pyspark.worker" in command for command in commands))
    spark.stop()
"""


@pytest.mark.timeout(300)
def test_what_reads_and_what_computes_share_one_daemon() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    ran = subprocess.run(
        [sys.executable, "-c", COUNT_DAEMONS], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.stdout.split()[-1:] == ["1"], ran.stdout + ran.stderr


def test_python_hashes_text_alike_in_all_workers(spark: SparkSession) -> None:
    hashes = spark.sparkContext.parallelize(range(4), 4).map(lambda _: (hash("text"), os.environ["PYTHONHASHSEED"]))
    assert len(set(hashes.collect())) == 1


def test_the_planner_of_a_stream_comes_to_offsets_without_arrow_and_numpy(
    load_stream: Load, put: Produce, topic: str, tmp_path: Path
) -> None:
    put(topic, numbered(0, 3))
    running = load_stream(topic, startingOffsets="earliest").writeStream.format("noop")
    query = running.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        commands = {each: _command(each) for each in _children(os.getpid())}
        assert not [command for command in commands.values() if "pyspark.daemon" in command]
        planners = [each for each, command in commands.items() if "cordwood.spark.workers.planner" in command]
        assert planners
        for planner in planners:
            loaded = Path(f"/proc/{planner}/maps").read_text()
            assert [name for name in ("libarrow", "/numpy/", "/pandas/", "/numba/") if name in loaded] == []
    finally:
        query.stop()


def _command(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _children(process: int) -> list[int]:
    """The descendants of a process."""
    found = []
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, each.read_text().split()):
            found += [child, *_children(child)]
    return found
