"""Why a partition of a cluster is in trouble, from what brokers tell."""

import pytest

from cordwood.administration.asking import first_answer
from cordwood.administration.cluster.causes import Cause, by_cause
from cordwood.administration.cluster.view import (
    WITHHOLDS,
    GoneNode,
    NodeView,
    PartitionState,
    ReplicaLog,
    ReplicaState,
    Trouble,
    gone_nodes,
    lag_behind,
    passed_over,
    trouble_of,
    why_no_leader,
    with_counts,
)
from cordwood.client.settings import Address
from cordwood.model.failure import ExitCode, Failure

ONE = NodeView(1, Address("a", 1), "r1", fenced=False, controller=True)
TWO = NodeView(2, Address("b", 2), None, fenced=True, controller=False)
THREE = NodeView(3, Address("c", 3), None, fenced=False, controller=False)
NODES = (ONE, TWO, THREE)


def test_a_missing_replica_is_gone_or_fenced_or_lags() -> None:
    partition = PartitionState("t", 0, 1, (1, 2, 3, 4), (1,))
    trouble = trouble_of(partition, 2, NODES, {(3, "t", 0): 17, (3, "t", 1): 99})
    assert trouble.missing == (
        ReplicaState(2, "its node is fenced"),
        ReplicaState(3, "it lags", 17),
        ReplicaState(4, "its node is gone"),
    )
    assert [str(each) for each in trouble.missing] == [
        "2 (its node is fenced)",
        "3 (it lags, 17 behind)",
        "4 (its node is gone)",
    ]
    assert trouble.in_words == "below min.insync.replicas 2, under-replicated"


def test_a_missing_replica_whose_disk_is_full_does_not_lag() -> None:
    full = THREE._replace(disk_full=True)
    trouble = trouble_of(PartitionState("t", 0, 1, (1, 3), (1,)), 1, (ONE, full), {(3, "t", 0): 0})
    assert [str(each) for each in trouble.missing] == ["3 (its disk is full)"]


def test_a_missing_replica_that_has_caught_up_does_not_lag() -> None:
    trouble = trouble_of(PartitionState("t", 0, 1, (1, 3), (1,)), 1, NODES, {(3, "t", 0): 0})
    assert [str(each) for each in trouble.missing] == ["3 (it has caught up and is about to be in sync)"]


@pytest.mark.parametrize(
    ("replica", "leader", "lag"),
    [
        (ReplicaLog(0, 0, 4, 100), ReplicaLog(0, 0, 4, 160), 60),
        (ReplicaLog(0, 0, 4, 160), ReplicaLog(0, 0, 4, 160), 0),
        (ReplicaLog(0, 0, 3, 100), ReplicaLog(0, 0, 4, 160), 60),
        (ReplicaLog(0, 0, 3, 170), ReplicaLog(0, 0, 4, 160), None),
        (ReplicaLog(0, 0, -1, -1), ReplicaLog(0, 0, 4, 160), None),
        (ReplicaLog(0, 9, -1, -1), ReplicaLog(0, 0, 4, 160), 9),
    ],
    ids=["cut off", "caught up", "of an earlier epoch", "with records of its own", "silent", "of an earlier release"],
)
def test_a_replica_is_behind_by_the_distance_to_its_leaders_end_whatever_it_heard_of_it_last(
    replica: ReplicaLog, leader: ReplicaLog, lag: int | None
) -> None:
    assert lag_behind(replica, leader) == lag


@pytest.mark.parametrize("withheld", ["t-0", "*"])
def test_a_replica_that_keeps_records_which_the_leader_lacks_does_not_lag(withheld: str) -> None:
    keeper = THREE._replace(withheld=(withheld,))
    trouble = trouble_of(PartitionState("t", 0, 1, (1, 3), (1,)), 1, (ONE, keeper), {(3, "t", 0): 0})
    assert [str(each) for each in trouble.missing] == [f"3 ({WITHHOLDS})"]


def test_how_far_a_replica_is_behind_is_not_said_of_a_partition_without_a_leader() -> None:
    trouble = trouble_of(PartitionState("t", 0, -1, (2, 3), (2,)), 1, NODES, {(3, "t", 0): 0})
    assert [str(each) for each in trouble.missing] == ["3 (it lags)"]


def test_the_worst_causes_are_shown_first_and_the_clusters_own_topics_last() -> None:
    def trouble(topic: str, leader: int, min_in_sync: int) -> Trouble:
        return trouble_of(PartitionState(topic, 0, leader, (1, 4), (1,)), min_in_sync, NODES, {})

    own, refused = trouble("__consumer_offsets", 1, 1), trouble("orders", 1, 2)
    behind, leaderless = trouble("prices", 1, 1), trouble("zoo", -1, 1)
    topics = [each.topic for each in by_cause((own, refused, behind, leaderless))]
    assert topics == ["zoo", "orders", "prices", "__consumer_offsets"]


def test_partitions_that_lack_the_same_replica_for_the_same_reason_are_one_cause() -> None:
    lags = {(3, "t", 1): 20, (3, "t", 3): 7}
    lagging = (1, 3, 5)
    troubles = [
        trouble_of(PartitionState("t", index, 1, (1, 3 if index in lagging else 4), (1,)), 1, NODES, lags)
        for index in range(6)
    ]
    assert by_cause(troubles) == [
        Cause("t", (0, 2, 4), "under-replicated", "4 (its node is gone)"),
        Cause("t", (1, 3, 5), "under-replicated", "3 (it lags, up to 20 behind)"),
    ]


def test_partitions_that_wait_for_an_accepted_loss_are_one_cause_with_one_command() -> None:
    troubles = [trouble_of(PartitionState("t", index, -1, (7, 8), ()), 1, NODES, {}) for index in (0, 1)]
    (cause,) = by_cause(troubles)
    assert cause.partitions == (0, 1)
    assert "`cordwood cluster accept-loss t PARTITION...`" in cause.trouble
    (alone,) = by_cause(troubles[1:])
    assert "`cordwood cluster accept-loss t 1`" in alone.trouble


@pytest.mark.parametrize(
    ("three", "partitions", "found"),
    [
        (THREE, [(1, 3)] * 3, (3,)),
        (THREE._replace(cordoned=True), [(1, 3)] * 3, ()),
        (THREE._replace(fenced=True), [(1, 3)] * 3, ()),
        (THREE, [(1, 3), (1, 3), (3, 1)], ()),
        (THREE, [(1, 3)], ()),
    ],
    ids=["second everywhere", "cordoned", "fenced", "to be elected", "fewer partitions than brokers"],
)
def test_a_broker_that_no_election_will_let_lead_is_passed_over(
    three: NodeView, partitions: list[tuple[int, ...]], found: tuple[int, ...]
) -> None:
    states = [PartitionState("t", index, 1, replicas, (1,)) for index, replicas in enumerate(partitions)]
    assert passed_over((ONE, three), states) == found


def test_a_partition_without_leader_says_so_first() -> None:
    trouble = trouble_of(PartitionState("t", 0, -1, (4,), (4,)), 1, NODES, {})
    assert trouble.in_words == "no leader: waits for broker 4: it has the only replica"
    assert trouble.offline
    assert not trouble.below_min_in_sync


STARTING = NodeView(5, Address("e", 5), None, fenced=True, controller=False, starting=True)
DRAINING = NodeView(6, Address("f", 6), None, fenced=False, controller=False, draining=True)


def test_a_broker_serves_or_is_fenced_or_starts_or_stops() -> None:
    assert [node.state for node in (*NODES, STARTING, DRAINING)] == [
        "serves",
        "fenced",
        "serves",
        "starting",
        "draining",
    ]
    missing = trouble_of(PartitionState("t", 0, 1, (1, 5, 6), (1,)), 1, (ONE, STARTING, DRAINING), {}).missing
    assert [each.reason for each in missing] == ["its node is starting", "its node is stopping"]


@pytest.mark.parametrize(
    ("replicas", "isr", "elr", "words"),
    [
        ((1, 7, 3), (7,), (), "waits for broker 7: it was the last in-sync replica"),
        ((1, 7, 8), (7,), (8,), "waits for brokers 7 or 8: no other replica has every acknowledged record"),
        ((7,), (7,), (), "waits for broker 7: it has the only replica"),
        ((1, 7), (7, 1), (), "the controller is about to elect broker 1"),
        ((7, 5), (7, 5), (), "waits for broker 5, which is starting"),
        ((7, 2, 5), (7,), (5, 2), "waits for broker 2, which is about to take part"),
        ((7, 6), (6,), (), "waits for broker 6, which is stopping: start it again"),
        (
            (1, 7),
            (),
            (),
            "no replica has every acknowledged record: those that had them lost their storage, or have older copies. "
            "Start brokers 1 or 7 on the disk that it had, or `cordwood cluster accept-loss t 3` lets a replica begin "
            "with what it has",
        ),
        (
            (3,),
            (),
            (),
            "its only replica lost its storage, or has an older copy of it. Start broker 3 on the disk that it had, or "
            "`cordwood cluster accept-loss t 3` lets a replica begin with what it has",
        ),
        (
            (7, 8, 5),
            (),
            (),
            "no replica has every acknowledged record: those that had them lost their storage, or have older copies. "
            "Start brokers 7, 8 or 5; if its disk is lost, then `cordwood cluster accept-loss t 3`",
        ),
    ],
)
def test_a_partition_without_a_leader_says_what_it_waits_for(
    replicas: tuple[int, ...], isr: tuple[int, ...], elr: tuple[int, ...], words: str
) -> None:
    partition = PartitionState("t", 3, -1, replicas, isr, elr)
    assert why_no_leader(partition, (*NODES, STARTING, DRAINING)) == words


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (
            (1, 2),
            "the storage of brokers 1 and 2 is lost or an older copy, and no other replica has every acknowledged "
            "record. Start brokers 1 or 2 on the disk that it had, or `cordwood cluster accept-loss t 3` lets a "
            "replica begin with what it has",
        ),
        (
            (2,),
            "the storage of broker 2 is lost or an older copy, and no other replica has every acknowledged record. "
            "Start broker 2 on the disk that it had, or `cordwood cluster accept-loss t 3` lets a replica begin with "
            "what it has",
        ),
    ],
)
def test_a_partition_whose_last_complete_replicas_lost_their_storage_names_only_these(
    lost: tuple[int, ...], words: str
) -> None:
    partition = PartitionState("t", 3, -1, (1, 2, 3), (), (), lost)
    assert why_no_leader(partition, NODES) == words


def test_leaders_and_replicas_are_counted_for_each_node() -> None:
    partitions = [PartitionState("t", 0, 1, (1, 2), (1, 2)), PartitionState("t", 1, -1, (2, 3), ())]
    counted = with_counts(NODES, partitions)
    assert [(node.node_id, node.leads, node.replicas) for node in counted] == [(1, 1, 1), (2, 0, 2), (3, 0, 1)]


def dead_or_alive(address: tuple[str, int]) -> str:
    host, port = address
    if host == "dead":
        raise Failure("BROKER_NOT_REACHABLE", f"{host}:{port} did not answer", exit_code=ExitCode.NOT_REACHABLE)
    if host == "refuses":
        raise Failure("UNSUPPORTED_VERSION", f"{host}:{port} refuses")
    return f"cluster of {port}"


def test_nodes_that_are_away_or_have_replicas_and_no_registration_are_gone() -> None:
    partitions = [PartitionState("t", index, 1, (1, 2, 9), (1,)) for index in range(2)]
    nodes = [node for node in NODES if node.node_id in (1, 2)]
    away = [GoneNode(4, 0, Address("four", 9092), "cellar")]
    assert gone_nodes(nodes, away, partitions) == (GoneNode(4, 0, Address("four", 9092), "cellar"), GoneNode(9, 2))


def test_a_broker_that_answers_is_asked_in_the_place_of_a_dead_one_that_is_still_registered() -> None:
    asked = first_answer([Address("dead", 1), Address("alive", 2), Address("alive", 3)], dead_or_alive)
    assert asked == (("alive", 2), "cluster of 2")


def test_the_last_broker_says_why_nobody_answers() -> None:
    with pytest.raises(Failure, match="dead:2 did not answer"):
        first_answer([Address("dead", 1), Address("dead", 2)], dead_or_alive)


def test_a_broker_that_refuses_the_question_has_answered() -> None:
    with pytest.raises(Failure, match="refuses:1 refuses"):
        first_answer([Address("refuses", 1), Address("alive", 2)], dead_or_alive)


def test_a_cluster_without_brokers_is_a_failure_with_words() -> None:
    with pytest.raises(Failure, match="no broker is registered") as failed:
        first_answer([], lambda address: address)
    assert failed.value.exit_code is ExitCode.NOT_REACHABLE
