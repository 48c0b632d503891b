"""Spark on brokers that an operator drains, fills, upgrades, imports, and starts with another number of workers."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.broker_process import BrokerProcess
from tests.cluster import test_workers as workers_of
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.rolling import rolling_restart
from tests.cluster.test_import import cordwood as on_etcd
from tests.cluster.test_import import told, where
from tests.cluster.test_leader_killed import create
from tests.cluster.test_moves import cordwood, replicas
from tests.cluster.test_upgrade import ONE_IN_FLIGHT, Release, older_commit, versions
from tests.cluster.test_workers import LocalWorkers, free_range
from tests.deadline import eventually
from tests.etcd.finding import Etcd
from tests.etcd.members import EtcdCluster
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
            cordwood(cluster, "cluster", "uncordon", "2")
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
            eventually(lambda: "serves again" in running.said, what="the second life of worker 2")
            for number in (3, 1):
                running.__exit__(None, None, None)
                running = LocalWorkers(data, number, *listens).__enter__()

        copied = copies(servers, spark, tmp_path / "checkpoint", ("orders", "copies"), PARTITIONS, change)
        assert set(copied.values()) == {1}
    finally:
        running.__exit__(None, None, None)


@pytest.mark.timeout(600)
def test_a_stream_goes_on_while_a_cluster_is_upgraded(
    spark: SparkSession, tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(etcd.path).parent), prepend=":")
    old = Release(environment={"PYTHONPATH": str(older_commit(tmp_path))})
    with LocalCluster(tmp_path / "data", "--metadata", "etcd", environment=old.environment) as cluster:
        assert not any(node.updates_features for node in versions(cluster).nodes), "the older release runs"
        topics = create(cluster, PARTITIONS, 3), create(cluster, PARTITIONS, 3)

        def upgrade() -> None:
            rolling_restart(cluster, restart=Release().start(cluster))
            assert cordwood(cluster, "cluster", "upgrade", "--yes")["finalised"]
            rolling_restart(cluster, kill=True)

        copied = copies(
            cluster.bootstrap,
            spark,
            tmp_path / "checkpoint",
            topics,
            PARTITIONS,
            upgrade,
            of_producer=ONE_IN_FLIGHT,
        )
        assert set(copied.values()) == {1}


@pytest.mark.timeout(600)
def test_a_stream_goes_on_while_a_directory_is_imported_into_a_cluster(
    spark: SparkSession, tmp_path: Path, one_etcd: EtcdCluster
) -> None:
    place = where(one_etcd, "spark")
    alone = BrokerProcess(tmp_path / "node-1", keep_port=True)
    nodes = [
        BrokerProcess(tmp_path / f"node-{number}", options=(*place, "--node-id", str(number)), keep_port=number > 1)
        for number in (1, 2, 3)
    ]
    nodes[0].settings["listeners"] = alone.address
    servers = ",".join(each.address for each in (alone, *nodes[1:]))
    with ExitStack() as ending:
        for each in (alone, *nodes):
            ending.callback(each.end)
        alone.start()
        for topic in ("orders", "copies"):
            workers_of.create(alone.bootstrap, topic, PARTITIONS)

        def grow() -> None:
            assert alone.stop() == 0
            assert told("cluster", "import", str(alone.data_dir), *place, "--yes")["state"] == "imported"
            for node in nodes:
                node.start()
            raised = on_etcd("cluster", "import", str(alone.data_dir), *place, "--raise", "3", "--yes", cwd=tmp_path)
            assert raised.returncode == 0, raised.stderr
            # All partitions of the first broker are on the others.
            nodes[0].kill()

        copied = copies(servers, spark, tmp_path / "checkpoint", ("orders", "copies"), PARTITIONS, grow)
        assert set(copied.values()) == {1}
