"""A producer on librdkafka that stays with a broker that does not lead is told once of no leader, and so goes over."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, error, produce_values
from tests.unit.node.two_brokers import ME, OTHER, elect, register

from cordwood.node.requests.astray_producers import ANSWERS_IN_VAIN, MOST_PARTITIONS
from cordwood.wire.apis import ApiKey

BY_ID = 13


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    create_topic(world, "orders", 2)
    register(world)
    elect(world, "orders", OTHER)
    yield world
    world.kill()


class Client:
    """Produces and asks for Metadata on one connection."""

    def __init__(self, world: World, software: str = "librdkafka") -> None:
        self._world = world
        self.connection = world.connect()
        self._ask(ApiKey.API_VERSIONS, 3, client_software_name=software, client_software_version="1")

    def _ask(self, key: Any, version: int, **values: Any) -> Any:
        exchange = self.connection.request(key, version, values)
        self._world.settle()
        return exchange.answer

    def produce(self, version: int = BY_ID, index: int = 0) -> str:
        topic = self._world.node.image.topics["orders"]
        values = produce_values(topic if version >= BY_ID else "orders", batch_of(self._world), index=index)
        answer = self._ask(ApiKey.PRODUCE, version, **values)
        return error(answer.responses[0].partition_responses[0].error_code)

    def leaders(self) -> list[int]:
        answer = self._ask(ApiKey.METADATA, 12, topics=[{"name": "orders"}])
        told = [(each.leader_id, error(each.error_code)) for each in answer.topics[0].partitions]
        assert all((leader < 0) == (why == "LEADER_NOT_AVAILABLE") for leader, why in told)
        return [leader for leader, _ in told]


@pytest.mark.parametrize("version", [BY_ID - 1, BY_ID])
def test_a_producer_that_comes_back_after_each_answer_is_told_of_no_leader_once(world: World, version: int) -> None:
    client, other = Client(world), Client(world)
    for _ in range(2):
        for _ in range(ANSWERS_IN_VAIN):
            assert client.produce(version) == "NOT_LEADER_OR_FOLLOWER"
            assert client.leaders() == [OTHER, ME]
        assert client.produce(version) == "NOT_LEADER_OR_FOLLOWER"
        assert other.leaders() == [OTHER, ME]
        assert client.leaders() == [-1, ME]
        assert client.leaders() == [OTHER, ME]


def test_a_producer_that_was_refused_before_it_was_told_is_told_the_leader_however_often_it_asks(world: World) -> None:
    client = Client(world)
    for _ in range(2 * ANSWERS_IN_VAIN):
        client.produce()
    for _ in range(2 * ANSWERS_IN_VAIN):
        assert client.leaders() == [OTHER, ME]


def test_refusals_under_another_leader_epoch_are_counted_anew(world: World) -> None:
    client = Client(world)
    for _ in range(2 * ANSWERS_IN_VAIN):
        client.produce()
        assert client.leaders() == [OTHER, ME]
        elect(world, "orders", OTHER)


def test_other_clients_are_always_told_the_leader(world: World) -> None:
    client = Client(world, "apache-kafka-java")
    for _ in range(2 * ANSWERS_IN_VAIN):
        client.produce()
        assert client.leaders() == [OTHER, ME]


def test_a_connection_is_watched_in_so_many_partitions_and_forgotten_with_its_end(world: World) -> None:
    client, room, topic = Client(world), world.node.astray_producers, world.node.image.topics["orders"]
    (connection_id,) = world.node.librdkafka_clients._connections

    def refuse_all() -> None:
        for index in range(2 * MOST_PARTITIONS):
            room.refused(connection_id, "orders", index, (OTHER, 1))

    for _ in range(ANSWERS_IN_VAIN):
        refuse_all()
        assert not room.to_free(connection_id, topic)
    refuse_all()
    assert room.to_free(connection_id, topic) == set(range(MOST_PARTITIONS))
    refuse_all()
    world.network.drop(client.connection)
    assert not room.to_free(connection_id, topic)


def test_partitions_to_which_a_connection_went_over_make_room_for_others(world: World) -> None:
    Client(world)
    room, topic = world.node.astray_producers, world.node.image.topics["orders"]
    create_topic(world, "left")
    (connection_id,) = world.node.librdkafka_clients._connections
    for index in range(MOST_PARTITIONS):
        room.refused(connection_id, "left", index, (OTHER, 1))
    room.to_free(connection_id, world.node.image.topics["left"])
    for _ in range(ANSWERS_IN_VAIN):
        room.refused(connection_id, "orders", 0, (OTHER, 1))
        assert not room.to_free(connection_id, topic)
    room.refused(connection_id, "orders", 0, (OTHER, 1))
    assert room.to_free(connection_id, topic) == {0}
