"""A client cannot act as a broker: requests that only brokers may send carry the key of a registration."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.requests_of_every_api import Names, requests_of
from tests.unit.node.speaking import batch_of, create_topic, error, fetch_values
from tests.unit.node.test_listeners import BROKERS, CLIENTS, ask, ask_as
from tests.unit.node.test_rights_of_every_api import errors_in, state_of
from tests.unit.node.two_brokers import ME, OTHER, elect, register, write

from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.stores.interface import Delete
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.node.apis import SERVED
from cordwood.node.requests.rights import rights_for
from cordwood.security.sessions import Session
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.requests import Sender

KEY = 2**62 + 17
SHARED = Entrance("PLAINTEXT", Callers.BOTH)
EVERYWHERE = (CLIENTS, SHARED, BROKERS)
REFUSED = "CLUSTER_AUTHORIZATION_FAILED"
FORGED = (None, Sender(OTHER, 0), Sender(OTHER, KEY ^ 1), Sender(ME, KEY), Sender(9, KEY))
WITH_AN_ERROR, WITH_EPOCHS = 7, 15
"""The versions of Fetch from which on its answer has an error of its own, and followers say in which epoch they are
registered: without it they are nobody's followers."""
OF_ANYBODY = {(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2)}
"""The request does not say whether a follower asks."""
OF_BROKERS = [
    pytest.param(ApiKey(key), version, id=f"{APIS[key].name}-{version}")
    for key, api in sorted(SERVED.items())
    for version in range(api.min_version, api.max_version + 1)
    if any(
        (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER) in ((right.operation, right.kind), *right.instead)
        for right in rights_for(key, version)
    )
    and (key, version) not in OF_ANYBODY
]
"""Each API and version that has a form of brokers, by the table of rights."""


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


def in_epoch(values: Any, broker_epoch: int) -> Any:
    """The request of a broker that is registered in this epoch."""
    if isinstance(values, dict):
        ours = dict.fromkeys(values.keys() & {"broker_epoch", "replica_epoch"}, broker_epoch)
        return {name: in_epoch(value, broker_epoch) for name, value in values.items()} | ours
    return [in_epoch(each, broker_epoch) for each in values] if isinstance(values, list) else values


@pytest.mark.parametrize("key_of_the_other", [KEY, 0], ids=["with a key", "of a release without keys"])
@pytest.mark.parametrize(("key", "version"), OF_BROKERS)
def test_without_an_authorizer_no_request_of_brokers_is_taken_from_a_client(
    led: World, key: ApiKey, version: int, key_of_the_other: int
) -> None:
    register(led, OTHER, key=key_of_the_other)
    elect(led, "orders", ME)
    image = led.node.image
    batches = (batch_of(led, b"two"), batch_of(led, b"two"))
    there = Names("orders", image.topics["orders"].topic_id, "new", "g", "w", "t", "f", *batches)
    values = in_epoch(requests_of(key, version, there)[-1], image.broker_epochs[OTHER])
    before = state_of(led), high_watermark(led)
    refusals = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    if key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
        refusals = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    elif key == ApiKey.FETCH and version < WITH_EPOCHS:
        refusals |= {ErrorCode.STALE_BROKER_EPOCH}
    for sender in FORGED:
        answer = ask_as(led, sender, CLIENTS, key, version, **values)
        assert errors_in(answer) <= refusals
        if key == ApiKey.FETCH and version < WITH_AN_ERROR:
            assert not answer.responses
        else:
            assert errors_in(answer)
    assert (state_of(led), high_watermark(led)) == before
    if key_of_the_other and refusals == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}:
        connection = led.connect()
        connection.session = Session(CLIENTS, "simulated")
        exchange = connection.request(key, version, values, sender=Sender(OTHER, KEY))
        led.settle()
        assert not exchange.answered or not errors_in(exchange.answer) & refusals, "a broker is known everywhere"


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
