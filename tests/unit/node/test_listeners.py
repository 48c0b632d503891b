"""A request is answered for the listener that it came in on: which brokers there are, and who may act as a broker."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error, fetch_values
from tests.unit.node.two_brokers import ME, OTHER, elect, register, write

from cordwood.cluster.metadata.rows import BrokerRow, Endpoint, broker_key, encode_broker
from cordwood.cluster.stores.interface import Put
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.security.sessions import Session
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

CLIENTS = Entrance("CLIENTS", Callers.CLIENTS)
BROKERS = Entrance("BROKERS", Callers.BROKERS)


def ask(world: World, entrance: Entrance, key: ApiKey, version: int, **values: Any) -> Any:
    return ask_as(world, None, entrance, key, version, **values)


def ask_as(world: World, sender: Sender | None, entrance: Entrance, key: ApiKey, version: int, **values: Any) -> Any:
    connection = world.connect()
    connection.session = Session(entrance, "simulated")
    exchange = connection.request(key, version, values, sender=sender)
    world.settle()
    assert exchange.answered, exchange.hang_up_reason
    return exchange.answer


@pytest.fixture
def two(world: World) -> World:
    """Broker 1 has two listeners, broker 2 only that for brokers; each leads a partition of `orders`."""
    create_topic(world, partitions=2)
    world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])  # creates the topic of positions
    register(world, OTHER, Endpoint("BROKERS", "two", 9093))
    elect(world, "orders", OTHER, index=1)
    here = world.node.image.brokers[ME]
    endpoints = (Endpoint("CLIENTS", "one.outside", 443), Endpoint("BROKERS", "one", 9093))
    row = BrokerRow(here.epoch, here.incarnation, endpoints, None, here.metadata_versions)
    write(world, Put(broker_key(ME), encode_broker(row)))
    return world


def brokers(answer: Any) -> list[tuple[Any, str, int]]:
    return [(getattr(each, "node_id", getattr(each, "broker_id", None)), each.host, each.port) for each in answer]


@pytest.mark.parametrize(
    ("version", "code"), [(1, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND"), (13, "LISTENER_NOT_FOUND")]
)
def test_metadata_tells_the_brokers_of_the_listener_and_leaves_out_brokers_without_it(
    two: World, version: int, code: str
) -> None:
    # Answers for one listener must not be kept for the other.
    for _ in range(2):
        told = ask(two, BROKERS, ApiKey.METADATA, version, topics=[{"name": "orders"}])
        assert brokers(told.brokers) == [(1, "one", 9093), (2, "two", 9093)]
        assert [(each.leader_id, each.error_code) for each in told.topics[0].partitions] == [(1, 0), (2, 0)]
        told = ask(two, CLIENTS, ApiKey.METADATA, version, topics=[{"name": "orders"}])
        assert brokers(told.brokers) == [(1, "one.outside", 443)]
        here, away = told.topics[0].partitions
        assert (here.leader_id, here.error_code) == (1, 0)
        assert (away.leader_id, error(away.error_code)) == (-1, code)


def test_descriptions_tell_the_brokers_of_the_listener(two: World) -> None:
    assert brokers(ask(two, CLIENTS, ApiKey.DESCRIBE_CLUSTER, 1).brokers) == [(1, "one.outside", 443)]
    assert brokers(ask(two, BROKERS, ApiKey.DESCRIBE_CLUSTER, 1).brokers) == [(1, "one", 9093), (2, "two", 9093)]
    asked = {"topics": [{"name": "orders"}], "response_partition_limit": 10}
    (topic,) = ask(two, CLIENTS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, **asked).topics
    assert [(each.leader_id, error(each.error_code)) for each in topic.partitions] == [
        (1, "NONE"),
        (-1, "LISTENER_NOT_FOUND"),
    ]


def test_a_coordinator_is_found_at_the_listener_of_the_request(two: World) -> None:
    found = ask(two, CLIENTS, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators
    assert brokers(found) == [(1, "one.outside", 443)]
    other = Entrance("OTHERS", Callers.CLIENTS)
    (none,) = ask(two, other, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators
    assert (none.node_id, none.host, error(none.error_code)) == (-1, "", "COORDINATOR_NOT_AVAILABLE")


# Requests that only brokers may send


def end_of_orders(world: World) -> int:
    asked = {"name": "orders", "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
    answer = world.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[asked])
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_markers_are_refused_at_a_listener_for_clients(world: World) -> None:
    create_topic(world)
    marker = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    for entrance, code in ((CLIENTS, "CLUSTER_AUTHORIZATION_FAILED"), (BROKERS, "NONE")):
        end_before = end_of_orders(world)
        (answer,) = ask(world, entrance, ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
        assert error(answer.topics[0].partitions[0].error_code) == code
        written = end_of_orders(world) - end_before
        assert written == (1 if code == "NONE" else 0)


def test_only_the_form_of_clients_adds_partitions_at_a_listener_for_clients(world: World) -> None:
    create_topic(world)
    given = ask(world, CLIENTS, ApiKey.INIT_PRODUCER_ID, 4, transactional_id="w", transaction_timeout_ms=1000)
    topics = [{"name": "orders", "partitions": [0]}]
    writer = {"transactional_id": "w", "producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    for verify_only in (True, False):
        asked = {"transactions": [{**writer, "verify_only": verify_only, "topics": topics}]}
        refused = ask(world, CLIENTS, ApiKey.ADD_PARTITIONS_TO_TXN, 5, **asked)
        assert error(refused.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
        assert not refused.results_by_transaction
    of_clients = {f"v3_and_below_{name}": value for name, value in writer.items()}
    added = ask(world, CLIENTS, ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **of_clients)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    asked = {"transactions": [{**writer, "verify_only": True, "topics": topics}]}
    myself = Sender(ME, world.node.serving.key)
    verified = ask_as(world, myself, BROKERS, ApiKey.ADD_PARTITIONS_TO_TXN, 5, **asked)
    (partition,) = verified.results_by_transaction[0].topic_results[0].results_by_partition
    assert (verified.error_code, partition.partition_error_code) == (0, 0)


def test_followers_do_not_fetch_at_a_listener_for_clients(world: World) -> None:
    topic = create_topic(world)
    for version, asked in ((12, {"replica_id": 2}), (15, {"replica_state": {"replica_id": 2, "replica_epoch": 1}})):
        values = fetch_values(("orders" if version < 13 else topic, 0, 0), **asked)
        refused = ask(world, CLIENTS, ApiKey.FETCH, version, **values)
        assert (error(refused.error_code), list(refused.responses)) == ("CLUSTER_AUTHORIZATION_FAILED", [])
        assert error(ask(world, BROKERS, ApiKey.FETCH, version, **values).error_code) != "CLUSTER_AUTHORIZATION_FAILED"
    assert ask(world, CLIENTS, ApiKey.FETCH, 12, **fetch_values(("orders", 0, 0))).error_code == 0


def test_followers_do_not_ask_for_epochs_at_a_listener_for_clients(world: World) -> None:
    create_topic(world)
    register(world, OTHER)
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    for entrance, replica_id, code in (
        (CLIENTS, 2, "TOPIC_AUTHORIZATION_FAILED"),
        (CLIENTS, -1, "NONE"),
        (BROKERS, 2, "NONE"),
    ):
        asked = {"replica_id": replica_id, "topics": [{"topic": "orders", "partitions": [partition]}]}
        answer = ask(world, entrance, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, **asked)
        assert error(answer.topics[0].partitions[0].error_code) == code
