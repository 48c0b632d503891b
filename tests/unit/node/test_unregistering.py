"""UnregisterBroker: a broker that never comes back is forgotten, unless that could lose something."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import error
from tests.unit.node.two_brokers import OTHER, elect, register, write

from cordwood.cluster.metadata.rows import broker_key, storage_key
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.wire.apis import ApiKey

TOPIC = "orders"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    assert world.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics[0].error_code == 0
    register(world)
    write(world, Put(storage_key(OTHER), b"disk"))
    yield world
    world.kill()


def forget(world: World, broker_id: int = OTHER) -> tuple[str, str]:
    answer = world.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker_id)
    return error(answer.error_code), answer.error_message or ""


def delete_topic(world: World) -> None:
    answer = world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
    assert answer.responses[0].error_code == 0
    world.settle()


def test_a_broker_that_runs_is_not_forgotten(world: World) -> None:
    assert forget(world) == ("INVALID_REQUEST", "Broker 2 is registered: stop it before the cluster forgets it.")


def test_a_replica_is_not_forgotten(world: World) -> None:
    elect(world, TOPIC, 1)
    write(world, Delete(broker_key(OTHER)))
    code, message = forget(world)
    assert code == "INVALID_REQUEST"
    assert "is a replica of orders-0: move" in message


def test_the_tombstones_of_a_broker_that_never_comes_back_go_with_it(world: World) -> None:
    elect(world, TOPIC, 1)
    write(world, Delete(broker_key(OTHER)))
    delete_topic(world)
    world.advance(120_000)
    image = world.node.image
    assert [stone.brokers for stone in image.deleted_topics.values()] == [(OTHER,)]
    assert forget(world) == ("NONE", "")
    assert not image.deleted_topics
    assert OTHER not in image.storage_ids
    assert OTHER in image.broker_epochs, "a later broker of that id needs a higher epoch"
    assert forget(world)[0] == "BROKER_ID_NOT_REGISTERED"
    register(world)
    assert image.brokers[OTHER].epoch > 1


def test_a_broker_that_never_was_is_not_forgotten(world: World) -> None:
    assert forget(world, 77)[0] == "BROKER_ID_NOT_REGISTERED"
