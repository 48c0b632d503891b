"""`cordwood cluster up`: a whole cluster as processes of this machine, which start, end and die together."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment, is_alive
from tests.deadline import eventually

OWN_METADATA = ("--metadata", "supervisor")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster") / "data", *OWN_METADATA) as started:
        yield started


def cordwood(*arguments: object) -> "subprocess.CompletedProcess[str]":
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [*CORDWOOD, *words], env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.landing
def test_all_brokers_serve_and_know_each_other_when_the_line_is_printed(cluster: LocalCluster) -> None:
    assert sorted(cluster.pids) == [1, 2, 3]
    assert len(set(cluster.bootstrap.split(","))) == 3
    assert "the metadata is NOT replicated" in cluster.said
    for server in cluster.bootstrap.split(","):
        told = cordwood("cluster", "status", "--bootstrap-server", server, "--json")
        assert told.returncode == 0, told.stderr
        nodes = json.loads(told.stdout)["nodes"]
        assert [(node["id"], node["fenced"]) for node in nodes] == [(1, False), (2, False), (3, False)]
        assert sum(node["controller"] for node in nodes) == 1


def test_a_second_supervisor_of_the_directory_is_refused(cluster: LocalCluster) -> None:
    ended = subprocess.run(
        cluster.command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert json.loads(ended.stderr.splitlines()[-1])["error"]["code"] == "IN_USE"
    assert all(map(is_alive, cluster.pids.values()))


def test_a_dead_broker_is_reported_and_the_others_go_on_until_all_are_told_to_end(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", *OWN_METADATA) as cluster:
        cluster.kill(2)
        eventually(lambda: "(SIGKILL)" in cluster.said, what="the report of broker 2")
        assert f"broker 2 (pid {cluster.pids[2]}) ended: killed by signal 9 (SIGKILL)" in cluster.said
        assert is_alive(cluster.pids[1])
        assert is_alive(cluster.pids[3])
        assert cluster.stop(signal.SIGINT) == 0
        assert not any(map(is_alive, cluster.pids.values()))


@pytest.mark.landing
def test_brokers_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", *OWN_METADATA) as cluster:
        os.kill(cluster.supervisor.pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, cluster.pids.values())), what="the end of all brokers")


def test_a_broker_that_cannot_start_ends_the_cluster_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=2\n")
    ended = cordwood("cluster", "up", "--data-dir", tmp_path, "--base-port", 0, *OWN_METADATA)
    assert ended.returncode == 1
    assert "broker 2 ended: exit code 1" in ended.stderr
    assert "another" in ended.stderr


def test_a_directory_keeps_to_the_metadata_that_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "etcd-1").mkdir()
    ended = cordwood("cluster", "up", "--data-dir", tmp_path, *OWN_METADATA)
    assert ended.returncode == 2
    assert "has its metadata in etcd" in ended.stderr
