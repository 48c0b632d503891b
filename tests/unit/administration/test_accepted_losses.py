"""Which replica leads a partition after an accepted loss, and what an operator is shown before."""

import pytest
from typer.testing import CliRunner

from cordwood.administration.cluster.losses import check, lone_replicas, loss_of
from cordwood.administration.cluster.view import NodeView, PartitionState, ReplicaLog
from cordwood.cli.app import app
from cordwood.client.settings import Address
from cordwood.model.failure import ExitCode, Failure

NODES = [NodeView(node, Address("host", node), None, fenced=node == 4, controller=False) for node in (1, 2, 3, 4)]
LOST = PartitionState("t", 0, -1, (1, 2, 3, 4, 5), ())


def logs(**ends: tuple[int, int]) -> dict[tuple[int, str, int], ReplicaLog]:
    """Last epoch and end offset of each broker: `b1=(3, 100)`."""
    return {(int(name[1:]), "t", 0): ReplicaLog(end * 10, 0, epoch, end) for name, (epoch, end) in ends.items()}


@pytest.mark.parametrize(
    ("told", "leader"),
    [
        (logs(b1=(-1, 0), b2=(3, 100), b3=(3, 90)), 2),
        (logs(b1=(2, 500), b2=(3, 100), b3=(3, 90)), 2),
        (logs(b3=(0, 1), b4=(9, 900)), 3),
        ({}, 1),
    ],
    ids=["the longest log", "the latest epoch", "only live brokers", "nobody tells"],
)
def test_the_live_replica_that_has_most_leads(told: dict[tuple[int, str, int], ReplicaLog], leader: int) -> None:
    assert loss_of(LOST, NODES, told).leader == leader


def test_the_operator_may_choose_among_live_replicas() -> None:
    told = logs(b1=(-1, 0), b2=(3, 100))
    assert loss_of(LOST, NODES, told, 1).leader == 1
    assert loss_of(LOST, NODES, told, 4).leader is None
    assert loss_of(LOST, NODES, told, 9).leader is None


def test_the_operator_is_shown_what_each_replica_has_and_which_is_complete() -> None:
    loss = loss_of(LOST._replace(isr=(5,), elr=(4,)), NODES, logs(b1=(-1, 0), b2=(3, 100)))
    assert [(each.broker, each.state, each.complete, each.has) for each in loss.replicas] == [
        (1, "serves", False, "nothing"),
        (2, "serves", False, "offsets before 100"),
        (3, "serves", False, "unknown"),
        (4, "fenced", True, "unknown"),
        (5, "absent", True, "unknown"),
    ]


AWAY = PartitionState("single", 0, -1, (7,), (7,))


def test_a_partition_whose_replicas_are_all_away_begins_anew_on_a_node_that_serves() -> None:
    with pytest.raises(Failure, match="none of its replicas is live") as refused:
        check(loss_of(AWAY, NODES, {}), None, None)
    assert "`cordwood cluster accept-loss single 0 --on NODE`" in refused.value.hint
    loss = loss_of(AWAY, NODES, {}, on=2)
    assert loss.leader == 2
    check(loss, None, 2)


@pytest.mark.parametrize("on", [4, 9])
def test_a_partition_begins_anew_only_on_a_node_that_serves(on: int) -> None:
    with pytest.raises(Failure, match=f"node {on} does not serve"):
        check(loss_of(AWAY, NODES, {}, on=on), None, on)


def test_a_partition_does_not_begin_anew_while_a_node_with_a_replica_runs() -> None:
    with pytest.raises(Failure, match="single-0: node 4 runs and has a replica"):
        check(loss_of(AWAY._replace(replicas=(7, 4)), NODES, {}, on=2), None, 2)


def test_a_partition_that_began_anew_is_shown_with_the_command_that_adds_the_replicas_that_it_had() -> None:
    pair = AWAY._replace(replicas=(7, 8))
    (sentence,) = lone_replicas([loss_of(pair, NODES, {}, on=2), loss_of(AWAY, NODES, {}, on=2)])
    assert sentence.startswith("single-0: its only replica is on node 2.")
    assert "`cordwood cluster reassign single 0 --replication-factor 2`" in sentence
    assert lone_replicas([loss_of(LOST, NODES, {})]) == []


def test_a_replica_that_leads_and_a_node_to_begin_anew_on_are_not_named_together() -> None:
    refused = CliRunner().invoke(app, ["cluster", "accept-loss", "orders", "0", "--broker", "1", "--on", "2", "--yes"])
    assert refused.exit_code == ExitCode.USAGE
    assert "hint: give one of --broker and --on" in refused.output
