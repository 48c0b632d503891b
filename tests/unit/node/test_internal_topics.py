"""Internal topics of a cluster that grows, and topics that need more replicas than they have."""

import logging
from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic

from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey

SETTINGS = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
GROUP, TRANSACTION = 0, 1


@pytest.fixture
def world() -> Iterator[World]:
    """One of three brokers runs, and needs the internal topics."""
    world = World(seed=1, settings=SETTINGS, machines=3)
    world.machines[0].start()
    world.settle()
    for key_type in (GROUP, TRANSACTION):
        assert world.ask_at(1, ApiKey.FIND_COORDINATOR, 2, key="me", key_type=key_type).error_code == 0
    yield world
    world.kill()


def test_the_controller_adds_replicas_when_brokers_come(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topics = world.machines[0].node.image.topics
    names = (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
    assert {each.replicas for name in names for each in topics[name].partitions} == {(1,)}
    with caplog.at_level(logging.WARNING):
        world.start()
        world.settle()
    for machine in world.machines:
        topics = machine.node.image.topics
        for name in names:
            assert {tuple(sorted(each.replicas)) for each in topics[name].partitions} == {(1, 2, 3)}
            assert {frozenset(each.isr) for each in topics[name].partitions} == {frozenset({1, 2, 3})}, "they caught up"
    assert "__consumer_offsets has 1 replicas, and offsets.topic.replication.factor asks for 3" in caplog.text


def test_a_topic_that_needs_more_replicas_than_it_has_is_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World(seed=1).start()
    with caplog.at_level(logging.WARNING):
        create_topic(world, "orders", min_insync_replicas="2")
    assert "topic orders takes no records with acks=all: its min.insync.replicas=2 is above" in caplog.text
    world.kill()
