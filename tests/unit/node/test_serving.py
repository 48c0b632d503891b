"""A leader serves while its lease holds, and not a moment longer."""

from collections.abc import Iterator

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.speaking import (
    batch_of,
    begin_fetch,
    create_topic,
    error,
    fetch,
    only,
    produce,
    produce_values,
)
from tests.unit.node.two_brokers import ME, elect, leadership, write

from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import BrokerRow, encode_broker, encode_partition, partition_key
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.node.loop.serving import FOREVER_MS, Serving
from cordwood.node.partitions.acks import ACK_EXPIRY_INTERVAL_MS
from cordwood.wire.apis import ApiKey

LEASE_MS = 3000


def test_a_lease_counts_for_two_thirds_of_its_time_from_the_sending_of_its_renewal() -> None:
    serving = Serving(LEASE_MS)
    assert serving.until_ms == 0
    serving.registered(1, 5, 100)
    assert serving.until_ms == 2100
    serving.lease_renewed(1000)
    assert serving.until_ms == 3000
    serving.lease_renewed(900)
    assert serving.until_ms == 3000


def test_a_late_renewal_does_not_bring_a_lost_registration_back() -> None:
    serving = Serving(LEASE_MS)
    serving.registered(1, 5, 100)
    serving.lost()
    serving.lease_renewed(2000)
    assert (serving.until_ms, serving.registered_here) == (0, False)
    serving.registered(2, 5, 3000)
    assert (serving.until_ms, serving.registered_here) == (5000, True)


def test_the_broker_of_a_store_of_its_own_serves_without_an_end() -> None:
    serving = Serving()
    serving.registered(1, 5, 100)
    serving.lease_renewed(200)
    serving.lost()
    assert serving.until_ms == FOREVER_MS


@pytest.fixture
def world() -> Iterator[World]:
    """A broker with a lease that nobody but the test renews."""
    world = World(seed=1, settings={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"})
    world.start()
    assert world.life is not None
    world.life.metadata_writer.registration._holder = None
    serving = world.node.serving
    serving._lease_ms, serving.until_ms = LEASE_MS, 0
    serving.lease_renewed(world.clock.boot_ms)
    yield world
    world.kill()


def produced(world: World) -> str:
    (answer,) = produce(world, "orders", batch_of(world, b"value"))
    return error(answer.error_code)


def begin_produce(world: World) -> Exchange:
    """A record that waits for the other replica."""
    return world.begin(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world, b"one"), timeout_ms=60_000))


def fetched(world: World) -> str:
    return error(only(fetch(world, ("orders", 0, 0))).error_code)


def test_a_leader_refuses_records_and_readers_once_its_time_is_over(world: World) -> None:
    create_topic(world)
    assert (produced(world), fetched(world)) == ("NONE", "NONE")
    world.advance(LEASE_MS * 2 // 3)
    assert (produced(world), fetched(world)) == ("NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER")
    world.node.serving.lease_renewed(world.clock.boot_ms)
    assert (produced(world), fetched(world)) == ("NONE", "NONE")


def test_a_reader_that_waits_is_refused_once_the_leaders_time_is_over(world: World) -> None:
    create_topic(world)
    waiting = begin_fetch(world, ("orders", 0, 0), max_wait_ms=LEASE_MS)
    world.advance(LEASE_MS - 10)
    assert not waiting.answered
    world.advance(20)
    assert error(only(waiting.answer).error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_an_ack_is_not_given_once_the_leaders_time_is_over(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world)
    world.advance(LEASE_MS * 2 // 3)
    assert not waiting.answered
    elect(world, "orders", ME, isr=(ME,))
    assert error(waiting.answer.responses[0].partition_responses[0].error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_a_producer_is_told_to_look_for_another_leader_once_the_whole_lease_is_over(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world)
    world.advance(LEASE_MS - 10)
    assert not waiting.answered
    world.advance(ACK_EXPIRY_INTERVAL_MS + 10)
    assert error(waiting.answer.responses[0].partition_responses[0].error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_a_producer_waits_on_while_the_lease_is_renewed(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world)
    for _ in range(10):
        world.advance(LEASE_MS // 2)
        world.node.serving.lease_renewed(world.clock.boot_ms)
    assert not waiting.answered


def test_a_coordinator_refuses_once_its_time_is_over(world: World) -> None:
    asked = {"groups": [{"group_id": "g", "topics": []}]}
    assert error(world.ask(ApiKey.OFFSET_FETCH, 8, **asked).groups[0].error_code) == "NONE"
    world.advance(LEASE_MS)
    assert error(world.ask(ApiKey.OFFSET_FETCH, 8, **asked).groups[0].error_code) == "NOT_COORDINATOR"


def test_librdkafka_looks_for_its_coordinator_when_its_connection_ends_not_when_it_is_refused_positions(
    world: World,
) -> None:
    connection = world.connect()
    connection.request(ApiKey.API_VERSIONS, 3, {"client_software_name": "librdkafka", "client_software_version": "2"})
    asked = {"groups": [{"group_id": "g", "topics": []}]}
    first = connection.request(ApiKey.OFFSET_FETCH, 8, asked)
    world.settle()
    assert error(first.answer.groups[0].error_code) == "NONE"
    world.advance(LEASE_MS)
    second = connection.request(ApiKey.OFFSET_FETCH, 8, asked)
    world.settle()
    assert (second.answered, second.ended) == (False, True)


def shrink(world: World, topic: str) -> None:
    """Takes the other replica out of the in-sync set: the leader, in the same epoch, commits alone."""
    found = world.node.image.topics[topic]
    row = partition_row(found.partitions[0])
    row = row._replace(isr=(ME,), partition_epoch=row.partition_epoch + 1)
    write(world, Put(partition_key(found.topic_id, 0), encode_partition(row)))


@pytest.mark.parametrize(("late", "told"), [(False, "NONE"), (True, "NOT_COORDINATOR")])
def test_a_commit_of_positions_is_not_confirmed_once_the_coordinators_time_is_over(
    world: World, late: bool, told: str
) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    elect(world, CONSUMER_OFFSETS_TOPIC, ME)
    each = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    waiting = world.begin(ApiKey.OFFSET_COMMIT, 8, **values, topics=[{"name": "orders", "partitions": [each]}])
    assert not waiting.answered
    if late:
        world.advance(LEASE_MS)
    shrink(world, CONSUMER_OFFSETS_TOPIC)
    assert error(waiting.answer.topics[0].partitions[0].error_code) == told


@pytest.mark.parametrize(("late", "told"), [(False, "NONE"), (True, "NOT_LEADER_OR_FOLLOWER")])
def test_a_marker_is_not_confirmed_once_the_leaders_time_is_over(world: World, late: bool, told: str) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0}
    topics = [{"name": "orders", "partition_indexes": [0]}]
    waiting = world.begin(ApiKey.WRITE_TXN_MARKERS, 1, markers=[{**marker, "topics": topics}])
    assert not waiting.answered
    if late:
        world.advance(LEASE_MS)
    shrink(world, "orders")
    assert error(waiting.answer.markers[0].topics[0].partitions[0].error_code) == told


def test_a_broker_whose_row_vanished_stops_serving_at_that_event(world: World) -> None:
    create_topic(world)
    write(world, Delete("brokers/1"))
    assert produced(world) == "NOT_LEADER_OR_FOLLOWER"
    world.node.serving.lease_renewed(world.clock.boot_ms)
    assert produced(world) == "NOT_LEADER_OR_FOLLOWER"


def test_the_end_of_an_earlier_registration_does_not_stop_a_later_one(world: World) -> None:
    create_topic(world)
    world.node.serving.registered(2, 5, world.clock.boot_ms)
    write(world, Delete("brokers/1"))
    assert world.node.serving.until_ms > world.clock.boot_ms


def test_a_lone_replica_leads_in_a_new_epoch_once_the_fence_of_its_broker_is_lifted(world: World) -> None:
    create_topic(world)
    before = leadership(world, "orders")
    image = world.node.image.brokers[1]
    row = BrokerRow(2, image.incarnation, image.endpoints, None, fenced=True)
    world.node.serving.registered(2, 5, world.clock.boot_ms)
    write(world, Put("broker_epoch/1", b"2"), Put("brokers/1", encode_broker(row)))
    assert leadership(world, "orders") == (-1, before.epoch + 1)
    assert produced(world) == "NOT_LEADER_OR_FOLLOWER"
    write(world, Put("brokers/1", encode_broker(row._replace(fenced=False))))
    assert leadership(world, "orders") == (1, before.epoch + 1)
    assert produced(world) == "NONE"
