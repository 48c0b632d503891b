"""Clients that ask the wrong broker hear in the same answer who leads, and where (KIP-951)."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, error, only
from tests.unit.node.two_brokers import ME, NOBODY, OTHER, elect, leadership, register

from cordwood.cluster.metadata.rows import Endpoint
from cordwood.wire.apis import ApiKey

TOPIC = "events"
HINTED_PRODUCE, PRODUCE_BY_ID = 10, 13
HINTED_FETCH, FETCH_BY_ID = 16, 18


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    create_topic(world, TOPIC)
    register(world, OTHER, Endpoint("PLAINTEXT", "other.example", 9093))
    yield world
    world.kill()


def begin_produce(world: World, version: int) -> Exchange:
    topic: dict[str, Any] = {"name": TOPIC, "topic_id": world.node.image.topic_id(TOPIC)}
    topic["partition_data"] = [{"index": 0, "records": bytes(batch_of(world))}]
    return world.begin(ApiKey.PRODUCE, version, acks=-1, timeout_ms=1000, topic_data=[topic])


def ask_produce(world: World, version: int = HINTED_PRODUCE) -> tuple[Any, Any]:
    answer = begin_produce(world, version).answer
    return answer, answer.responses[0].partition_responses[0]


def ask_fetch(world: World, version: int = HINTED_FETCH, epoch: int = -1) -> tuple[Any, Any]:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": epoch}
    topic = {"topic": TOPIC, "topic_id": world.node.image.topic_id(TOPIC), "partitions": [asked]}
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [topic]}
    answer = world.ask(ApiKey.FETCH, version, **values)
    return answer, only(answer)


def leader_of(part: Any) -> tuple[int, int]:
    return part.current_leader.leader_id, part.current_leader.leader_epoch


def endpoints_of(answer: Any) -> list[tuple[int, str, int]]:
    return [(each.node_id, each.host, each.port) for each in answer.node_endpoints]


ASKING = [
    (ask_produce, HINTED_PRODUCE),
    (ask_produce, PRODUCE_BY_ID),
    (ask_fetch, HINTED_FETCH),
    (ask_fetch, FETCH_BY_ID),
]


@pytest.mark.parametrize(("ask", "version"), ASKING)
def test_a_client_at_the_wrong_broker_hears_of_the_leader_and_its_address(world: World, ask: Any, version: int) -> None:
    elect(world, TOPIC, OTHER)
    answer, part = ask(world, version)
    assert error(part.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert leader_of(part) == (OTHER, leadership(world, TOPIC).epoch)
    assert endpoints_of(answer) == [(OTHER, "other.example", 9093)]


@pytest.mark.parametrize(("ask", "version"), ASKING)
def test_there_is_no_hint_without_a_leader(world: World, ask: Any, version: int) -> None:
    elect(world, TOPIC, NOBODY)
    answer, part = ask(world, version)
    assert error(part.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert leader_of(part) == (-1, -1)
    assert endpoints_of(answer) == []


@pytest.mark.parametrize(("ask", "version"), [(ask_produce, HINTED_PRODUCE - 1), (ask_fetch, HINTED_FETCH - 1)])
def test_older_versions_have_no_hint(world: World, ask: Any, version: int) -> None:
    elect(world, TOPIC, OTHER)
    answer, part = ask(world, version)
    assert error(part.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert leader_of(part) == (-1, -1)
    assert endpoints_of(answer) == []


def test_a_reader_with_an_old_epoch_hears_of_the_new_one(world: World) -> None:
    elect(world, TOPIC, ME, isr=(ME,))
    epoch = leadership(world, TOPIC).epoch
    _, part = ask_fetch(world, epoch=epoch - 1)
    assert error(part.error_code) == "FENCED_LEADER_EPOCH"
    assert leader_of(part) == (ME, epoch)


def test_a_batch_whose_leader_is_deposed_before_its_ack_tells_the_new_leader(world: World) -> None:
    elect(world, TOPIC, ME, isr=(ME, OTHER))
    waiting = begin_produce(world, HINTED_PRODUCE)
    assert not waiting.ended, "a follower in the in-sync set has not fetched"
    elect(world, TOPIC, OTHER)
    part = waiting.answer.responses[0].partition_responses[0]
    assert error(part.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert leader_of(part) == (OTHER, leadership(world, TOPIC).epoch)
    assert endpoints_of(waiting.answer) == [(OTHER, "other.example", 9093)]


def test_a_leader_that_is_not_reached_at_the_clients_listener_has_no_address(world: World) -> None:
    register(world, OTHER, Endpoint("INSIDE", "other.example", 9093))
    elect(world, TOPIC, OTHER)
    answer, part = ask_produce(world)
    assert leader_of(part) == (OTHER, leadership(world, TOPIC).epoch)
    assert endpoints_of(answer) == []
