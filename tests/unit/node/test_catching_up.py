"""A broker that lags behind another hears of the metadata first, and answers that broker then."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import Connection, Exchange
from simulation.world.links import STORE
from simulation.world.world import World
from tests.unit.node.speaking import error

from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.node.handlers.records.fetch_answers import PARTITIONS_PER_STEP
from cordwood.node.requests.catching_up import PATIENCE_MS
from cordwood.security.sessions import Session
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

AHEAD, BEHIND = 1, 2
TOPIC = "news"


WIDE = 1 + 2 * PARTITIONS_PER_STEP
"""So many partitions are fetched in steps."""


def create(world: World, name: str, partitions: int) -> None:
    led = [{"partition_index": each, "broker_ids": [BEHIND]} for each in range(partitions)]
    topic: dict[str, Any] = {"name": name, "assignments": led, "num_partitions": -1, "replication_factor": -1}
    answer = world.ask_at(AHEAD, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == 0
    world.settle()


@pytest.fixture
def world() -> Iterator[World]:
    """Only one of two brokers hears of a new topic, which the other leads."""
    world = World(seed=1, machines=2).start()
    world.settle()
    create(world, "known-to-both", WIDE)
    world.links.cut(STORE, BEHIND)
    create(world, TOPIC, 1)
    yield world
    world.kill()


def sender(world: World) -> Sender:
    return Sender(AHEAD, world.machine_of(AHEAD).node.serving.key)


def ask(
    world: World, revision: int, *, connection: Connection | None = None, of: Sender | None = None, wide: int = 1
) -> Exchange:
    marker: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False}
    marker |= {"coordinator_epoch": 0, "topics": [{"name": TOPIC, "partition_indexes": [0] * wide}]}
    connection = connection or world.machine_of(BEHIND).network.connect(AHEAD)
    values = {"markers": [marker]}
    exchange = connection.request(
        ApiKey.WRITE_TXN_MARKERS, 1, values, image_revision=revision, sender=of or sender(world)
    )
    world.settle()
    return exchange


def known_ahead(world: World) -> int:
    return world.machine_of(AHEAD).node.image.revision


def told(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return error(exchange.answer.markers[0].topics[0].partitions[0].error_code)


def test_a_request_waits_until_the_receiver_knows_what_the_sender_knew(world: World) -> None:
    exchange = ask(world, known_ahead(world))
    assert not exchange.ended
    world.links.heal(STORE, BEHIND)
    world.settle()
    assert told(exchange) == "NONE"


def test_a_request_of_a_sender_that_knows_no_more_is_answered_at_once(world: World) -> None:
    assert told(ask(world, world.machine_of(BEHIND).node.image.revision)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_request_waits_no_longer_than_its_patience_and_the_next_of_its_connection_does_not_wait_again(
    world: World,
) -> None:
    exchange = ask(world, known_ahead(world))
    world.advance(PATIENCE_MS - 1)
    assert not exchange.ended
    world.advance(1)
    assert told(exchange) == "UNKNOWN_TOPIC_OR_PARTITION"
    again = ask(world, known_ahead(world), connection=exchange.connection)
    assert told(again) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_revision_that_a_client_makes_up_keeps_no_broker_from_waiting(world: World) -> None:
    forged = ask(world, 2**62, of=Sender(AHEAD, 1))
    world.advance(PATIENCE_MS)
    assert forged.answered
    exchange = ask(world, known_ahead(world))
    assert not exchange.ended
    world.links.heal(STORE, BEHIND)
    world.settle()
    assert told(exchange) == "NONE"


def test_clients_that_name_revisions_take_no_room_from_brokers(world: World) -> None:
    """Requests that carry no broker's key wait only while few of them do, and not at the listener of clients."""
    strangers = [ask(world, 2**62, of=Sender(AHEAD, 1), wide=8_000) for _ in range(140)]
    assert 120 < [each.ended for each in strangers].count(False) < 140, "32 KB each, and 4 MB in all"
    at_clients = world.machine_of(BEHIND).network.connect(AHEAD)
    at_clients.session = Session(Entrance("CLIENTS", Callers.CLIENTS), "simulated")
    assert ask(world, 2**62, of=Sender(AHEAD, 1), connection=at_clients).answered
    assert not ask(world, known_ahead(world)).ended
    world.advance(PATIENCE_MS)
    assert all(each.answered for each in strangers)
    assert not len(world.machine_of(BEHIND).node.catching_up)


def test_a_request_whose_session_ended_while_it_waited_is_not_handled(world: World) -> None:
    broker = world.machine_of(BEHIND)
    connection = broker.network.connect(AHEAD)
    ends_ms = broker.node.loop.now.boot_ms + PATIENCE_MS // 2
    connection.session = connection.session._replace(mechanism="SCRAM-SHA-512", ends_ms=ends_ms)
    exchange = ask(world, known_ahead(world), connection=connection)
    assert not exchange.ended
    world.advance(PATIENCE_MS)
    assert not exchange.answered
    assert exchange.hang_up_reason == "WriteTxnMarkers came after its session has ended"


def test_later_requests_of_the_connection_wait_behind(world: World) -> None:
    first = ask(world, known_ahead(world))
    second = first.connection.request(ApiKey.LIST_GROUPS, 4, {})
    world.settle()
    assert not second.ended
    world.links.heal(STORE, BEHIND)
    world.settle()
    assert first.answered
    assert second.answered


def test_a_request_waits_on_when_an_earlier_one_of_its_connection_has_been_answered_in_steps(world: World) -> None:
    """The earlier one is a fetch of many partitions, which makes way for the next request."""
    wide = [{"partition": each, "partition_max_bytes": 1} for each in range(WIDE)]
    fetched: dict[str, Any] = {"topics": [{"topic": "known-to-both", "partitions": wide}]}
    fetched |= {"replica_id": -1, "max_wait_ms": 1000, "min_bytes": 1, "max_bytes": 1}
    connection = world.machine_of(BEHIND).network.connect(AHEAD)
    earlier = connection.request(ApiKey.FETCH, 11, fetched)
    world.settle()
    assert not earlier.ended
    first = ask(world, known_ahead(world), connection=connection)
    second = ask(world, known_ahead(world), connection=connection)
    assert (earlier.answered, first.ended, second.ended) == (True, False, False)
    world.links.heal(STORE, BEHIND)
    world.settle()
    assert (told(first), told(second)) == ("NONE", "NONE")


def test_the_request_of_a_connection_that_is_closed_is_forgotten(world: World) -> None:
    exchange = ask(world, known_ahead(world))
    node = world.machine_of(BEHIND).node
    assert len(node.catching_up) == 1
    exchange.connection.close()
    world.settle()
    assert not len(node.catching_up)
