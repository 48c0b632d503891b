"""`cordwood topic describe` and `consume` on a topic whose ends nobody knows: one of three brokers is back."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment
from tests.deadline import eventually

from cordwood.model.failure import ExitCode

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The only broker that came back after all three were killed."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory / "data", "--metadata", "supervisor") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [
            NewTopic("orders", 1, 3, config={"min.insync.replicas": "2"}),
            NewTopic("spread", 2, replica_assignment=[[1], [2]]),
        ]
        for created in admin.create_topics(topics).values():
            created.result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("orders", b"acknowledged")
        assert producer.flush(60) == 0
        for node_id in (3, 2, 1):  # broker 1 is in sync to the end, and may lead
            cluster.kill(node_id)
        cluster.restart(1)
        server = f"127.0.0.1:{cluster.port(1)}"
        eventually(lambda: leaders(server), to_be=[[1], [1, None]], what="broker 1 as the only leader")
        yield server


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CORDWOOD, *words], capture_output=True, text=True, env=clean_environment(), timeout=60, check=False
    )


def leaders(server: str) -> list[list[int | None]] | None:
    shown = run("topic", "describe", "orders", "spread", "-b", server, "--json")
    if shown.returncode == ExitCode.NOT_REACHABLE:
        return None  # the broker still starts
    assert shown.returncode == 0, shown.stderr
    return [[partition["leader"] for partition in topic["partitions"]] for topic in json.loads(shown.stdout)]


def described(server: str, topic: str) -> list[dict[str, Any]]:
    shown = run("topic", "describe", topic, "-b", server, "--json")
    assert shown.returncode == 0, shown.stderr
    return list(json.loads(shown.stdout)[0]["partitions"])


def test_a_topic_is_described_although_its_leader_does_not_know_its_end(lone_server: str) -> None:
    (partition,) = described(lone_server, "orders")
    assert (partition["leader"], partition["start_offset"], partition["end_offset"]) == (1, 0, None)
    shown = run("topic", "describe", "orders", "-b", lone_server)
    assert shown.returncode == 0
    assert "End unknown: partition 0." in shown.stdout
    assert "min.insync.replicas are in sync" in " ".join(shown.stdout.split())


def test_a_partition_without_a_leader_is_described_beside_those_that_have_one(lone_server: str) -> None:
    partitions = described(lone_server, "spread")
    assert [(each["leader"], each["end_offset"]) for each in partitions] == [(1, 0), (None, None)]
    assert "No leader: partition 1." in run("topic", "describe", "spread", "-b", lone_server).stdout


def test_consume_names_the_partition_whose_end_is_unknown_and_says_which_brokers_to_start(lone_server: str) -> None:
    read = run("consume", "orders", "-b", lone_server, "--timeout", "1")
    assert read.returncode == 1
    assert "the end of partition 0 of orders is not known" in read.stderr
    assert "start the other replicas' brokers: `cordwood cluster status` names them" in read.stderr


def test_consume_names_the_partition_that_has_no_leader(lone_server: str) -> None:
    read = run("consume", "spread", "-b", lone_server, "--timeout", "1", "--json")
    assert read.returncode == 1
    assert "spread has no leader for partition 1" in read.stderr
    assert "`cordwood cluster status` says what the partition waits for" in read.stderr
