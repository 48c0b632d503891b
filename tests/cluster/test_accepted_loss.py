"""All replicas of a partition lose their storage: the partition waits, says why, and serves again when an operator
accepts the loss. Three real brokers."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment
from tests.cluster.test_leader_killed import (
    all_in_sync,
    consume,
    create,
    leader_of,
    produce,
    status,
)
from tests.deadline import eventually

pytestmark = pytest.mark.timeout(300)


def cordwood(cluster: LocalCluster, *arguments: object) -> "subprocess.CompletedProcess[str]":
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [*CORDWOOD, *words, "--bootstrap-server", cluster.bootstrap],
        env=clean_environment(),
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def error_of(ended: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert ended.returncode != 0, ended.stdout
    told: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])["error"]
    return told


def reason(cluster: LocalCluster, topic: str) -> str:
    """Why the partition has no leader; empty if it has one, or if no broker answers yet."""
    told = cordwood(cluster, "cluster", "status", "--json")
    troubles = [] if told.returncode else json.loads(told.stdout)["troubles"]
    found = [trouble for trouble in troubles if trouble["topic"] == topic]
    return found[0]["waits_for"] or "" if found else ""


def empty_and_restart(cluster: LocalCluster, node_id: int) -> None:
    shutil.rmtree(cluster.directory / f"node-{node_id}")
    cluster.restart(node_id)


def lost(cluster: LocalCluster, topic: str) -> bool:
    return "lost" in reason(cluster, topic)


def test_a_partition_whose_replicas_all_lost_their_storage_serves_again_when_the_loss_is_accepted(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic, lone = create(cluster, 1, 3), create(cluster, 1, 1)
        before, after = ([f"{letter}{number}" for number in range(100)] for letter in "ab")
        produce(cluster, topic, before)
        produce(cluster, lone, before)
        refused = error_of(cordwood(cluster, "cluster", "accept-loss", topic, 0, "--yes", "--json"))
        assert refused["code"] == "ELECTION_NOT_NEEDED"
        owner = leader_of(cluster, lone)
        for node_id in cluster.pids:
            cluster.kill(node_id)
        for node_id in cluster.pids:
            empty_and_restart(cluster, node_id)
        eventually(lambda: lost(cluster, topic) and lost(cluster, lone), what="the lost partitions")
        why = reason(cluster, topic)
        assert "is lost or an older copy, and no other replica has every acknowledged record. Start broker" in why
        assert why.endswith(f"`cordwood cluster accept-loss {topic} 0` lets a replica begin with what it has")
        assert f"`cordwood cluster accept-loss {lone} 0`" in cordwood(cluster, "cluster", "status").stdout
        failed = cordwood(cluster, "produce", topic, "value", "--timeout", "5", "--json")
        assert f"{topic} has no leader for partition 0" in error_of(failed)["message"], failed.stderr

        unconfirmed = error_of(cordwood(cluster, "cluster", "accept-loss", topic, 0, "--json"))
        assert (unconfirmed["code"], unconfirmed["hint"]) == ("USAGE", "add --yes")
        accepted = cordwood(cluster, "cluster", "accept-loss", topic, 0, "--yes", "--json")
        assert accepted.returncode == 0, accepted.stderr
        (told,) = json.loads(accepted.stdout)["partitions"]
        assert {(each["state"], each["end_offset"]) for each in told["replicas"]} == {("serves", 0)}
        accepted = cordwood(cluster, "cluster", "accept-loss", lone, 0, "--yes")
        assert f"{lone}-0: has a leader again" in accepted.stdout, accepted.stderr
        eventually(lambda: leader_of(cluster, lone) == owner, what="the lone replica")
        produce(cluster, topic, after)
        produce(cluster, lone, after)
        assert consume(cluster, topic, 100) == consume(cluster, lone, 100) == after
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")


def test_the_replica_that_has_most_leads_after_a_loss(tmp_path: Path) -> None:
    """A replica that fell out of sync is all that is left of the first records. It stays the leader: without
    `auto.leader.rebalance.enable=false` the preferred replica leads again a second later."""
    options = ("--metadata", "supervisor", "--set", "auto.leader.rebalance.enable=false")
    with LocalCluster(tmp_path / "data", *options) as cluster:
        topic = create(cluster, 1, 3)
        values = [f"a{number}" for number in range(100)]
        produce(cluster, topic, values)
        leader = leader_of(cluster, topic)
        last = next(node_id for node_id in cluster.pids if node_id != leader)
        cluster.kill(last)
        eventually(
            lambda: [last] == [each["id"] for trouble in status(cluster)["troubles"] for each in trouble["missing"]],
            what="the replica out of sync",
        )
        produce(cluster, topic, [f"lost{number}" for number in range(10)])
        others = [node_id for node_id in cluster.pids if node_id != last]
        for node_id in others:
            cluster.kill(node_id)
        cluster.restart(last)
        eventually(lambda: reason(cluster, topic).startswith("waits for broker"), what="the wait")
        for node_id in others:
            empty_and_restart(cluster, node_id)
        eventually(lambda: lost(cluster, topic), what="the lost partition")
        assert cordwood(cluster, "cluster", "accept-loss", topic, 0, "--yes").returncode == 0
        eventually(lambda: leader_of(cluster, topic) == last, what="the fullest replica")
        assert consume(cluster, topic, 100) == values


def test_preferred_leaders_are_elected_by_command(tmp_path: Path) -> None:
    options = ("--metadata", "supervisor", "--set", "auto.leader.rebalance.enable=false")
    with LocalCluster(tmp_path / "data", *options) as cluster:
        topic = create(cluster, 1, 3)
        preferred = leader_of(cluster, topic)
        cluster.kill(preferred)
        eventually(lambda: leader_of(cluster, topic) not in (preferred, -1), what="another leader")
        refused = error_of(cordwood(cluster, "cluster", "elect-preferred", topic, "--json"))
        assert refused["code"] == "PREFERRED_LEADER_NOT_AVAILABLE"
        cluster.restart(preferred)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        elected = json.loads(cordwood(cluster, "cluster", "elect-preferred", "--json").stdout)
        assert {"topic": topic, "partition": 0} in elected["elected"]
        assert (
            cordwood(cluster, "cluster", "elect-preferred", topic).stdout == "0 partitions got the preferred leader.\n"
        )
