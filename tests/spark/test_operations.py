"""Spark on brokers that an operator drains, fills, and starts with another number of workers."""

from pathlib import Path

from pyspark.sql import SparkSession
from tests.cluster import test_workers as workers_of
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import create
from tests.cluster.test_moves import cordwood, replicas
from tests.cluster.test_workers import LocalWorkers, free_range
from tests.deadline import eventually
from tests.spark.copying import copies

PARTITIONS = 3
MOST_WORKERS = 3


def test_a_stream_goes_on_while_a_broker_is_drained_and_filled_again(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", nodes=4) as cluster:
        topics = create(cluster, PARTITIONS, 3), create(cluster, PARTITIONS, 3)

        def move() -> None:
            drained = cordwood(cluster, "cluster", "drain", "2", "--yes", "--undo-file", "undo.json")
            assert drained["moved"] > 0
            assert replicas(cluster)[2] == 0
            cordwood(cluster, "cluster", "reassign", "--file", "undo.json", "--yes", "--throttle", "50MiB")
            cordwood(cluster, "cluster", "reassign", topics[1], "--replication-factor", "2", "--yes")
            cordwood(cluster, "cluster", "rebalance", "--yes", "--sample", "0")

        copied = copies(cluster.bootstrap, spark, tmp_path / "checkpoint", topics, PARTITIONS, move)
        assert set(copied.values()) == {1}


def test_a_stream_goes_on_while_a_worker_dies_and_the_number_of_workers_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    base = free_range(MOST_WORKERS)
    listens = ("--set", f"listeners=127.0.0.1:{base}")
    servers = ",".join(f"127.0.0.1:{base + place}" for place in range(MOST_WORKERS))
    running = LocalWorkers(data, 2, *listens).__enter__()
    try:
        for topic in ("orders", "copies"):
            workers_of.create(running.bootstrap, topic, PARTITIONS)

        def change() -> None:
            nonlocal running
            running.kill(2)
            eventually(lambda: "serves again" in running.said, 60, what="the second life of worker 2")
            for number in (3, 1):
                running.__exit__(None, None, None)
                running = LocalWorkers(data, number, *listens).__enter__()

        copied = copies(servers, spark, tmp_path / "checkpoint", ("orders", "copies"), PARTITIONS, change)
        assert set(copied.values()) == {1}
    finally:
        running.__exit__(None, None, None)
