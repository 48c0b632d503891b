"""Directories of brokers that are not those that the cluster knows: an older copy, and those of two brokers swapped.
Three real brokers."""

import shutil
from pathlib import Path

import pytest
from tests.cluster.local_cluster import LocalCluster, is_alive
from tests.cluster.test_leader_killed import all_in_sync, consume, create, produce
from tests.deadline import eventually

pytestmark = pytest.mark.timeout(300)


def stop_all(cluster: LocalCluster) -> None:
    for node_id in cluster.pids:
        cluster.kill(node_id)


def start_all(cluster: LocalCluster) -> None:
    for node_id in cluster.pids:
        cluster.restart(node_id)
    eventually(lambda: all_in_sync(cluster), what="all replicas in sync")


def test_a_broker_on_an_older_copy_of_its_directory_leads_nothing_by_what_it_has(tmp_path: Path) -> None:
    """The copy is of an earlier life, the broker starts first, and alone: its records are all that anybody sees."""
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        values = [f"v{number}" for number in range(200)]
        produce(cluster, topic, values[:100])
        stop_all(cluster)
        shutil.copytree(cluster.directory / "node-1", tmp_path / "copy")
        start_all(cluster)
        produce(cluster, topic, values[100:])
        stop_all(cluster)
        shutil.rmtree(cluster.directory / "node-1")
        shutil.copytree(tmp_path / "copy", cluster.directory / "node-1")
        cluster.restart(1)
        eventually(lambda: "an older copy" in cluster.log_of(1), what="the broker's word")
        for node_id in (2, 3):
            cluster.restart(node_id)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, 200) == values


def test_a_snapshot_of_a_running_broker_that_stopped_cleanly_since_leads_nothing_by_what_it_has(tmp_path: Path) -> None:
    """The broker was the last to stop, so it is in sync, and it starts first, and alone."""
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        values = [f"v{number}" for number in range(200)]
        produce(cluster, topic, values[:100])
        own = cluster.directory / "node-1"
        shutil.copytree(own, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
        produce(cluster, topic, values[100:])
        for node_id in (3, 2, 1):
            cluster.terminate(node_id)
            # A broker that follows defends only records that it knows as committed, also those of the last moment.
            # The last broker leads by then, and may stop before it hears that it is alone in sync.
            checkpoint = cluster.directory / f"node-{node_id}" / "replication-offset-checkpoint"
            assert node_id == 1 or f"{topic} 0 200" in checkpoint.read_text().splitlines()
        shutil.rmtree(own)
        shutil.copytree(tmp_path / "copy", own)
        cluster.restart(1)
        eventually(lambda: "an older copy" in cluster.log_of(1), what="the broker's word")
        for node_id in (2, 3):
            cluster.restart(node_id)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, 200) == values


def test_brokers_whose_directories_were_swapped_do_not_start(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        values = [f"v{number}" for number in range(100)]
        produce(cluster, topic, values)
        one, two = cluster.directory / "node-1", cluster.directory / "node-2"
        for swaps in (True, False):
            stop_all(cluster)
            one.rename(tmp_path / "aside")
            two.rename(one)
            (tmp_path / "aside").rename(two)
            if swaps:
                for node_id, owner in ((1, 2), (2, 1)):
                    cluster.restart(node_id)
                    pid = cluster.pids[node_id]
                    eventually(lambda pid=pid: not is_alive(pid), what="its end")  # type: ignore[misc]
                    assert f"has the data of node {owner}, not of node {node_id}" in cluster.log_of(node_id)
                cluster.restart(3)
            else:
                start_all(cluster)
        assert consume(cluster, topic, 100) == values
