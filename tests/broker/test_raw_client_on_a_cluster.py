"""The raw client on three brokers: leaders and coordinators die under it, and bootstrap servers are dead."""

import socket
import uuid
from collections.abc import Iterator

import pytest
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client.cluster import Cluster as Client
from cordwood.client.cluster import Isolation, OffsetRange
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker, Cluster
from cordwood.model.identifiers import TopicPartition

ROUNDS = 6


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        nodes=3, settings={"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
    ) as up:
        yield up


def client_of(servers: str, name: str = "raw") -> Client:
    return Client(ClientSettings(servers, client_id=name))


def new_topic(client: Client) -> TopicPartition:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    client.topics([name], create=True)
    return TopicPartition(name, 0)


def values_of(client: Client, partition: TopicPartition, end: int, isolation: Isolation) -> list[bytes]:
    answers = client.stream(partition, 0, end, isolation=isolation)
    return [value for _, value in records_of(answers, committed=isolation is Isolation.READ_COMMITTED)]


def test_every_batch_is_stored_once_and_read_while_each_leader_in_turn_is_killed(cluster: Cluster) -> None:
    with client_of(f"127.0.0.1:1,{cluster.bootstrap_servers}") as client:
        partition = new_topic(client)
        producer = client.init_producer_id()
        expected: list[bytes] = []
        for number in range(ROUNDS):
            values = [f"{number}-{place}".encode() for place in range(10)]
            batch = batch_of(values, producer=producer, sequence=len(expected))
            pipeline = client.pipeline()
            pipeline.send({partition: [batch]})
            victim = cluster.leader(*partition)
            victim.kill()
            produced = pipeline.finish()[partition]
            expected += values
            assert produced.next_offset == len(expected)
            assert values_of(client, partition, len(expected), Isolation.READ_UNCOMMITTED) == expected
            client.commit("readers", {partition: len(expected)})
            victim.start()
            assert client.committed("readers") == {partition: len(expected)}


def test_a_transaction_is_committed_once_while_brokers_are_killed_in_its_middle(cluster: Cluster) -> None:
    with client_of(cluster.bootstrap_servers) as client:
        partition = new_topic(client)
        producer = client.init_producer_id("shop")
        expected: list[bytes] = []
        for number in range(ROUNDS):
            values = [f"{number}-{place}".encode() for place in range(10)]
            # A higher epoch restarts the sequence numbers.
            batch = batch_of(values, producer=producer, sequence=0, transactional=True)
            client.produce({partition: [batch]}, transactional_id="shop")
            victim = cluster.brokers[number % 3 + 1]
            victim.kill()
            producer = client.end_transaction("shop", producer, commit=True)
            victim.start()
            expected += values
        end = (len(expected) // 10) * 11
        assert values_of(client, partition, end, Isolation.READ_COMMITTED) == expected


def test_ranges_are_read_on_when_their_leader_is_killed_between_two_answers(cluster: Cluster) -> None:
    with client_of(cluster.bootstrap_servers) as client:
        partition = new_topic(client)
        values = [f"{number:04d}".encode() for number in range(500)]
        client.produce({partition: [batch_of(values[place : place + 10]) for place in range(0, 500, 10)]})
        [stream] = client.streams([OffsetRange(partition, 0, 500)], max_bytes=1)
        found: list[bytes] = []
        for number, answer in enumerate(stream):
            if number == 1:
                cluster.leader(*partition).kill()
            found += [value for _, value in records_of([answer])]
        assert found == values


class HungServer:
    """Listens in the place of a broker, takes connections and never answers, as a paused machine does."""

    def __init__(self, broker: Broker) -> None:
        address = (broker.host, broker.port)
        broker.kill()
        self._socket = socket.create_server(address)
        self._socket.setblocking(False)

    def client_ids_seen(self) -> bytes:
        """The bytes of all requests so far, which begin with the names of their clients."""
        seen = b""
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return seen
            connection.settimeout(30)
            seen += connection.recv(1000)
            connection.close()

    def close(self) -> None:
        self._socket.close()


def test_a_broker_whose_connection_broke_is_asked_after_all_others(cluster: Cluster) -> None:
    first = next(iter(cluster.brokers.values()))
    with client_of(cluster.bootstrap_servers, "the-client") as client:
        assert client.topics([]) == {}
        new_topic(client)
        hung = HungServer(first)
        try:
            # The connection to the first broker is the client's only one.
            eventually(lambda: len(client.topics()), to_be=1, what="the topic, as another broker knows it")
            assert b"the-client" not in hung.client_ids_seen()
        finally:
            hung.close()
