"""ElectLeaders: preferred leaders, and losses that an operator accepts."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error
from tests.unit.node.two_brokers import ME, NOBODY, OTHER, elect, leadership, register, write

from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.stores.interface import Delete
from cordwood.wire.apis import ApiKey

PREFERRED, UNCLEAN = 0, 1


def asked(world: World, kind: int, *partitions: int, version: int = 2, topic: str = "orders", **more: Any) -> Any:
    """The outcomes by topic and partition; without partitions of all topics."""
    topics = [{"topic": topic, "partitions": list(partitions)}] if partitions else None
    answer = world.ask(ApiKey.ELECT_LEADERS, version, election_type=kind, topic_partitions=topics, **more)
    assert answer.error_code == 0
    return {
        (result.topic, each.partition_id): error(each.error_code)
        for result in answer.replica_election_results
        for each in result.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_first_replica_leads_again(world: World, version: int) -> None:
    create_topic(world, "orders", partitions=3)
    elect(world, "orders", OTHER, index=0)
    elect(world, "orders", OTHER, index=1, isr=(OTHER,))
    assert asked(world, PREFERRED, 0, 1, 2, 3, version=version) == {
        ("orders", 0): "NONE",
        ("orders", 1): "PREFERRED_LEADER_NOT_AVAILABLE",
        ("orders", 2): "ELECTION_NOT_NEEDED",
        ("orders", 3): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert leadership(world, "orders") == (ME, 2)
    assert asked(world, PREFERRED, 0, topic="none") == {("none", 0): "UNKNOWN_TOPIC_OR_PARTITION"}


def test_who_asks_for_all_partitions_is_told_of_those_that_had_an_election_to_make(world: World) -> None:
    create_topic(world, "orders", partitions=3)
    elect(world, "orders", OTHER, index=1)
    elect(world, "orders", OTHER, index=2, isr=(OTHER,))
    assert asked(world, PREFERRED) == {("orders", 1): "NONE", ("orders", 2): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert asked(world, UNCLEAN) == {}


def test_a_loss_is_accepted_only_where_nobody_leads(world: World) -> None:
    create_topic(world, "orders", partitions=2)
    elect(world, "orders", NOBODY, isr=(OTHER,))
    write(world, Delete(broker_key(OTHER)))
    assert asked(world, UNCLEAN, 0, 1) == {("orders", 0): "NONE", ("orders", 1): "ELECTION_NOT_NEEDED"}
    partition = world.node.image.topics["orders"].partitions[0]
    assert (partition.leader, partition.isr, partition.recovering) == (ME, (ME,), True)


def test_a_loss_is_not_accepted_with_a_replica_that_is_not_live(world: World) -> None:
    create_topic(world, "orders")
    elect(world, "orders", NOBODY, isr=(OTHER,))
    write(world, Delete(broker_key(OTHER)))
    assert asked(world, UNCLEAN, 0, leader=OTHER) == {("orders", 0): "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    assert asked(world, UNCLEAN, 0, leader=ME) == {("orders", 0): "NONE"}


def test_a_live_replica_in_sync_is_elected_before_any_loss(world: World) -> None:
    create_topic(world, "orders")
    register(world)
    elect(world, "orders", NOBODY, isr=(OTHER,))
    assert asked(world, UNCLEAN, 0) == {("orders", 0): "NONE"}
    partition = world.node.image.topics["orders"].partitions[0]
    assert (partition.leader, partition.recovering) == (OTHER, False)


def test_an_unknown_kind_of_election_is_refused(world: World) -> None:
    answer = world.ask(ApiKey.ELECT_LEADERS, 2, election_type=7, topic_partitions=None)
    assert error(answer.error_code) == "INVALID_REQUEST"
