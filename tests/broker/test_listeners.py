"""A broker with two listeners: real clients on each, each told its own addresses, and brokers' requests on one only."""

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.broker_process import BrokerProcess, free_port
from tests.raw_client import RawClient

from cordwood.broker.network.peers import registered_at
from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.embedded import Broker, Cluster
from cordwood.model.errors import ErrorCode
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.wire.apis import ApiKey

SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "advertised.listeners": "CLIENTS://localhost:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


def test_a_client_is_told_the_addresses_of_its_listener(broker: Broker) -> None:
    assert broker.bootstrap_servers == broker.listeners["CLIENTS"]
    told = {}
    for name, servers in broker.listeners.items():
        (found,) = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).brokers.values()
        told[name] = f"{found.host}:{found.port}"
    port = broker.listeners["CLIENTS"].rpartition(":")[2]
    assert told == {"CLIENTS": f"localhost:{port}", "BROKERS": broker.listeners["BROKERS"]}


def test_clients_of_both_listeners_share_the_log(broker: Broker) -> None:
    for name, servers in broker.listeners.items():
        producer = Producer({"bootstrap.servers": servers, "broker.address.family": "v4"})
        producer.produce("orders", name)
        assert producer.flush(60) == 0
    for servers in broker.listeners.values():
        settings = {"bootstrap.servers": servers, "broker.address.family": "v4", "group.id": "readers"}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("orders", 0, 0)])
        records = consumer.consume(2, timeout=60)
        assert [record.value() for record in records] == [b"CLIENTS", b"BROKERS"]
        # Committing needs the coordinator, which is found by the listener, too.
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()


def test_requests_of_brokers_are_taken_at_their_listener_only(broker: Broker) -> None:
    broker.log.append("orders", None, "1")
    marker = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    answers = {}
    for name, servers in broker.listeners.items():
        client = RawClient(servers)
        (answer,) = client.send(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
        added = client.send(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[])
        answers[name] = [answer.topics[0].partitions[0].error_code, added.error_code]
        client.close()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answers == {"CLIENTS": [refused, refused], "BROKERS": [0, refused]}


def test_every_listener_keeps_its_port_over_a_restart(broker: Broker) -> None:
    before = broker.listeners
    broker.stop()
    broker.start()
    assert broker.listeners == before


def test_a_process_tells_all_of_its_listeners_when_it_is_ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("listeners")
    with BrokerProcess(directory / "data", settings=SETTINGS) as process:
        first, _, second = process.output().partition("ready on ")[2].partition(" (data")[0].partition(", ")
        for shown, name in ((first, "CLIENTS"), (second, "BROKERS")):
            assert shown.startswith(f"{name}://127.0.0.1:")
            RawClient(shown.partition("://")[2]).close()


async def test_an_address_that_is_taken_leaves_no_listener_behind() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        listeners = f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{taken}"
        settings = BrokerSettings.from_texts({**SETTINGS, "listeners": listeners})
        with pytest.raises(OSError, match=f"cannot listen on BROKERS://127.0.0.1:{taken}"):
            await Server.start(settings, memory=Memory())
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


async def test_brokers_find_each_other_at_the_listener_between_brokers() -> None:
    server = await Server.start(BrokerSettings.from_texts({**SETTINGS, "node.id": "7"}), memory=Memory())
    try:
        image = server.node.image
        assert registered_at(image, "BROKERS")(7) == server.addresses["BROKERS"]
        assert registered_at(image, "CLIENTS")(7) == ("localhost", server.addresses["CLIENTS"][1])
        assert registered_at(image, "OTHERS")(7) == registered_at(image, "CLIENTS")(7)
        assert registered_at(image, "BROKERS")(8) is None
    finally:
        await server.stop()


def test_a_cluster_gets_a_listener_of_brokers_while_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    """A broker with one listener and a broker with two replicate to each other, and the first one warns."""
    with Cluster(nodes=1) as cluster:
        one_listener: dict[str, str | int] = {"cluster.name": "embedded", "cluster.store": cluster.store, "node.id": 2}
        with Broker(settings=one_listener) as joined:
            assert caplog.text.count("clients and brokers share the listener PLAINTEXT") == 1
            for leader, follower in ((cluster.brokers[1], 2), (joined, 1)):
                client = RawClient(leader.bootstrap_servers)
                topic = f"led-by-{3 - follower}"
                both = [{"partition_index": 0, "broker_ids": [3 - follower, follower]}]
                created = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": both}
                assert client.send(ApiKey.CREATE_TOPICS, 5, topics=[created], timeout_ms=9000).topics[0].error_code == 0
                assert leader.log.append(topic, None, "to both") == 0
                client.close()
