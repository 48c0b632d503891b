"""A client cannot act as a broker: requests that only brokers may send carry the key of a registration."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, error, fetch_values
from tests.unit.node.test_listeners import BROKERS, CLIENTS, ask, ask_as
from tests.unit.node.two_brokers import ME, OTHER, elect, register, write

from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.stores.interface import Delete
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.security.sessions import Session
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

KEY = 2**62 + 17
SHARED = Entrance("PLAINTEXT", Callers.BOTH)
EVERYWHERE = (CLIENTS, SHARED, BROKERS)
REFUSED = "CLUSTER_AUTHORIZATION_FAILED"
FORGED = (None, Sender(OTHER, 0), Sender(OTHER, KEY ^ 1), Sender(ME, KEY), Sender(9, KEY))


@pytest.fixture
def led(world: World) -> World:
    """This broker leads `orders`, whose record waits for broker 2, in sync and registered with a key."""
    create_topic(world)
    register(world, OTHER, key=KEY)
    elect(world, "orders", ME)
    batch = batch_of(world, b"one")
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    world.connect().request(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 60_000, "topic_data": data})
    world.settle()
    return world


def fetch(world: World, entrance: Entrance, sender: Sender | None, offset: int = 1) -> str:
    image = world.node.image
    topic = image.topics["orders"]
    asked = {"replica_state": {"replica_id": OTHER, "replica_epoch": image.broker_epochs[OTHER]}}
    epoch = image.leadership(topic.partitions[0]).epoch
    values = fetch_values((topic, 0, offset), current_leader_epoch=epoch, **asked)
    answer = ask_as(world, sender, entrance, ApiKey.FETCH, 16, **values)
    return error(answer.error_code or answer.responses[0].partitions[0].error_code)


def verify(world: World, entrance: Entrance, sender: Sender | None) -> str:
    return error(ask_as(world, sender, entrance, ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[]).error_code)


def mark(world: World, entrance: Entrance, sender: Sender | None) -> str:
    marker: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False}
    marker |= {"coordinator_epoch": 0, "topics": [{"name": "orders", "partition_indexes": [0]}]}
    connection = world.connect()
    connection.session = Session(entrance, "simulated")
    exchange = connection.request(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]}, sender=sender)
    world.settle()
    # A marker that was appended waits for the other replica.
    return error(exchange.answer.markers[0].topics[0].partitions[0].error_code) if exchange.answered else "NONE"


def high_watermark(world: World) -> int:
    return world.node.hosted.leader("orders", 0).high_watermark


@pytest.mark.parametrize("entrance", EVERYWHERE, ids=lambda entrance: entrance.callers.name)
def test_a_follower_without_the_key_of_its_registration_moves_no_high_watermark(led: World, entrance: Entrance) -> None:
    assert high_watermark(led) == 0
    for sender in FORGED:
        assert fetch(led, entrance, sender) == REFUSED
    assert high_watermark(led) == 0
    assert fetch(led, entrance, Sender(OTHER, KEY)) == "NONE"
    assert high_watermark(led) == 1


def test_the_key_of_an_earlier_registration_counts_no_more(led: World) -> None:
    register(led, OTHER, key=KEY + 1)
    elect(led, "orders", ME)
    assert fetch(led, SHARED, Sender(OTHER, KEY)) == REFUSED
    assert fetch(led, SHARED, Sender(OTHER, KEY + 1)) == "NONE"


def test_nobody_fetches_as_a_broker_whose_registration_has_ended(led: World) -> None:
    """Its row is gone and its broker epoch is still known: no key could be compared."""
    write(led, Delete(broker_key(OTHER)))
    for sender in (*FORGED, Sender(OTHER, KEY)):
        assert fetch(led, SHARED, sender) == REFUSED
    assert high_watermark(led) == 0


@pytest.mark.parametrize("entrance", EVERYWHERE, ids=lambda entrance: entrance.callers.name)
def test_only_brokers_verify_transactions(led: World, entrance: Entrance) -> None:
    assert {verify(led, entrance, sender) for sender in FORGED} == {REFUSED}
    assert verify(led, entrance, Sender(OTHER, KEY)) == "NONE"


def test_operators_write_markers_where_no_clients_come_and_brokers_everywhere(led: World) -> None:
    for sender in FORGED:
        assert mark(led, CLIENTS, sender) == REFUSED
        assert mark(led, SHARED, sender) == REFUSED
    assert mark(led, BROKERS, None) == "NONE"
    for entrance in EVERYWHERE:
        assert mark(led, entrance, Sender(OTHER, KEY)) == "NONE"


def test_a_broker_of_a_release_without_keys_is_believed_at_the_listeners_of_brokers(led: World) -> None:
    register(led, OTHER)
    elect(led, "orders", ME)
    for entrance in (SHARED, BROKERS):
        assert fetch(led, entrance, None) == "NONE"
        assert verify(led, entrance, None) == "NONE"
        assert mark(led, entrance, None) == "NONE"
    for act in (fetch, verify, mark):
        assert act(led, CLIENTS, None) == REFUSED


def test_a_lone_broker_takes_no_follower_and_takes_the_markers_of_operators(world: World) -> None:
    create_topic(world)
    asked = {"replica_state": {"replica_id": ME, "replica_epoch": world.node.serving.broker_epoch}}
    values = fetch_values((world.node.image.topics["orders"], 0, 0), **asked)
    assert error(ask(world, BROKERS, ApiKey.FETCH, 16, **values).error_code) == REFUSED
    assert verify(world, BROKERS, None) == REFUSED
    assert mark(world, BROKERS, None) == "NONE"


def test_each_registration_has_a_random_key_which_no_text_shows(world: World) -> None:
    image, key = world.node.image, world.node.serving.key
    assert 0 < key < 2**63
    assert image.brokers[ME].key == key
    assert str(key) not in repr(image.brokers[ME])
    assert str(key) not in repr(Sender(ME, key))
