"""Which brokers, leaders and controllers clients and administrators are told in a cluster of several."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error
from tests.unit.node.two_brokers import ME, OTHER, elect, register, run, write

from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import (
    Endpoint,
    MemberRow,
    broker_config_key,
    broker_key,
    decode_broker,
    encode_broker,
    encode_member,
    encode_overrides,
    encode_partition,
    member_key,
    partition_key,
    storage_key,
)
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.node.requests.librdkafka_clients import is_on_librdkafka
from cordwood.node.requests.told_brokers import TOLD_AFTER_LEAVING_MS
from cordwood.wire.apis import ApiKey


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    create_topic(world, "orders")
    register(world)
    elect(world, "orders", OTHER)
    yield world
    world.kill()


def metadata(world: World) -> Any:
    return world.ask(ApiKey.METADATA, 12, topics=[{"name": "orders"}])


def told(world: World) -> tuple[list[int], int, list[int], str]:
    """Brokers, and the leader of the partition, its offline replicas and its error."""
    answer = metadata(world)
    part = answer.topics[0].partitions[0]
    brokers = [each.node_id for each in answer.brokers]
    return brokers, part.leader_id, list(part.offline_replicas), error(part.error_code)


class Client:
    """Asks on one connection, after it has given the name of its software."""

    def __init__(self, world: World, software: str) -> None:
        self._world = world
        self._connection = world.connect()
        self._ask(ApiKey.API_VERSIONS, 3, client_software_name=software, client_software_version="1")

    def _ask(self, key: Any, version: int, **values: Any) -> Any:
        exchange = self._connection.request(key, version, values)
        self._world.settle()
        return exchange.answer

    def metadata(self) -> Any:
        return self._ask(ApiKey.METADATA, 12, topics=[{"name": "orders"}])

    def told(self) -> list[int]:
        return [each.node_id for each in self.metadata().brokers]


def fence(world: World, broker_id: int = OTHER) -> None:
    item = run(world.store.get(broker_key(broker_id)))
    row = decode_broker(item.key, item.value)._replace(fenced=True)
    write(world, Put(item.key, encode_broker(row)))


def test_a_broker_that_is_there_leads(world: World) -> None:
    assert told(world) == ([ME, OTHER], OTHER, [], "NONE")


@pytest.mark.parametrize(
    "leave", [fence, lambda world: write(world, Delete(broker_key(OTHER)))], ids=["fenced", "gone"]
)
def test_a_broker_that_is_fenced_or_gone_is_not_told_and_leads_nothing(world: World, leave: Any) -> None:
    assert told(world) == ([ME, OTHER], OTHER, [], "NONE")
    leave(world)
    assert told(world) == ([ME], -1, [OTHER], "LEADER_NOT_AVAILABLE")
    described = world.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "orders"}])
    part = described.topics[0].partitions[0]
    assert (part.leader_id, list(part.offline_replicas)) == (-1, [OTHER])
    register(world)
    assert told(world)[0] == [ME, OTHER]


def fence_all(world: World) -> None:
    for broker_id in (ME, OTHER):
        fence(world, broker_id)


def all_leave(world: World) -> None:
    write(world, Delete(broker_key(ME)), Delete(broker_key(OTHER)))


@pytest.mark.parametrize("leave", [fence_all, all_leave], ids=["fenced", "gone"])
@pytest.mark.parametrize("software", ["librdkafka", "apache-kafka-java"])
def test_a_client_is_never_told_of_an_empty_cluster(world: World, leave: Any, software: str) -> None:
    """librdkafka drops the brokers that an answer leaves out, and with the last one its way to ask again."""
    client = Client(world, software)
    leave(world)
    assert client.told() == [ME, OTHER]
    world.advance(10 * TOLD_AFTER_LEAVING_MS)
    assert client.told() == [ME, OTHER]
    register(world)
    assert client.told() == ([ME, OTHER] if is_on_librdkafka(software) else [OTHER])


@pytest.mark.parametrize(
    "leave", [fence, lambda world, broker_id: write(world, Delete(broker_key(broker_id)))], ids=["fenced", "gone"]
)
def test_clients_on_librdkafka_are_always_told_the_broker_that_answers(world: World, leave: Any) -> None:
    """A client that is told of nobody but a broker that just died has nobody to ask: it stood still for 22 s."""
    client, other = Client(world, "confluent-kafka-python"), Client(world, "apache-kafka-java")
    leave(world, ME)
    world.advance(10 * TOLD_AFTER_LEAVING_MS)
    assert (client.told(), other.told()) == ([ME, OTHER], [OTHER])


def test_a_cluster_where_nobody_takes_part_tells_brokers_that_never_did(world: World) -> None:
    fence(world)
    world.kill()
    world.start()
    assert [each.node_id for each in metadata(world).brokers] == [ME]
    fence(world, ME)
    assert [each.node_id for each in metadata(world).brokers] == [ME, OTHER]


@pytest.mark.parametrize(
    "leave", [fence, lambda world: write(world, Delete(broker_key(OTHER)))], ids=["fenced", "gone"]
)
def test_clients_on_librdkafka_are_told_a_broker_for_a_while_after_it_left(world: World, leave: Any) -> None:
    client, other = Client(world, "confluent-kafka-python"), Client(world, "apache-kafka-java")
    leave(world)
    world.advance(TOLD_AFTER_LEAVING_MS - 1)
    assert (client.told(), other.told()) == ([ME, OTHER], [ME])
    world.advance(1)
    assert (client.told(), other.told()) == ([ME], [ME])
    register(world, OTHER, Endpoint("PLAINTEXT", "elsewhere", 9092))
    assert (client.told(), other.told()) == ([ME, OTHER], [ME, OTHER])
    assert client.metadata().brokers[1].host == "elsewhere"


@pytest.mark.parametrize("software", ["librdkafka", "rdkafka-ruby", "confluent-kafka-go", "confluent-kafka-python"])
def test_bindings_of_librdkafka_are_known_by_their_names(software: str) -> None:
    assert is_on_librdkafka(software)


def test_fenced_brokers_are_described_to_who_asks_for_them(world: World) -> None:
    def described(**values: Any) -> list[tuple[int, bool]]:
        answer = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, **values)
        assert answer.controller_id == ME
        return [(each.broker_id, each.is_fenced) for each in answer.brokers]

    assert described() == [(ME, False), (OTHER, False)]
    fence(world)
    assert described() == [(ME, False)]
    assert described(include_fenced_brokers=True) == [(ME, False), (OTHER, True)]


def test_a_broker_that_is_away_is_described_with_its_last_address_to_who_asks_for_fenced_ones(world: World) -> None:
    write(
        world,
        Delete(broker_key(OTHER)),
        Put(storage_key(OTHER), b"disk"),
        Put(member_key(OTHER), encode_member(MemberRow((Endpoint("PLAINTEXT", "cellar", 9093),), "r1"))),
    )
    told = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_fenced_brokers=True).brokers
    assert [(each.broker_id, each.is_fenced, each.is_away) for each in told] == [
        (ME, False, False),
        (OTHER, True, True),
    ]
    assert (told[1].host, told[1].port, told[1].rack) == ("cellar", 9093, "r1")
    told = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1).brokers
    assert [each.broker_id for each in told] == [ME]


def test_a_cordoned_broker_is_described_as_such(world: World) -> None:
    def cordoned() -> list[int]:
        answer = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1)
        return [each.broker_id for each in answer.brokers if each.is_cordoned]

    assert cordoned() == []
    write(world, Put(broker_config_key(OTHER), encode_overrides({"cordoned.log.dirs": "*"})))
    assert cordoned() == [OTHER]


def test_directories_of_a_cordoned_broker_are_described_as_such(world: World) -> None:
    def cordoned() -> bool:
        (directory,) = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=None).results
        return bool(directory.is_cordoned)

    assert not cordoned()
    write(world, Put(broker_config_key(ME), encode_overrides({"cordoned.log.dirs": "*"})))
    assert cordoned()


def test_brokers_that_start_or_stop_or_have_no_space_are_described_as_such(world: World) -> None:
    def described() -> tuple[bool, bool, bool]:
        answer = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_fenced_brokers=True)
        other = next(each for each in answer.brokers if each.broker_id == OTHER)
        return other.is_starting, other.is_draining, other.is_disk_full

    item = run(world.store.get(broker_key(OTHER)))
    row = decode_broker(item.key, item.value)
    assert described() == (False, False, False)
    write(world, Put(item.key, encode_broker(row._replace(fenced=True, starting=True))))
    assert described() == (True, False, False)
    write(world, Put(item.key, encode_broker(row._replace(draining=True))))
    assert described() == (False, True, False)
    write(world, Put(item.key, encode_broker(row._replace(disk_full=True))))
    assert described() == (False, False, True)


def test_a_partition_that_nobody_can_lead_names_the_brokers_that_had_every_record(world: World) -> None:
    image = world.node.image.topics["orders"]
    row = partition_row(image.partitions[0])._replace(leader=-1, isr=(), former_storage=((OTHER, "a disk"),))
    write(world, Put(partition_key(image.topic_id, 0), encode_partition(row)))
    (topic,) = world.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "orders"}]).topics
    assert list(topic.partitions[0].last_known_elr or ()) == [OTHER]
