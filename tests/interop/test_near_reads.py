"""Clients with `client.rack` read from the follower in their rack, on three brokers in three racks."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually
from tests.interop.java_cases import run_java_cases

from cordwood.embedded import Broker
from cordwood.embedded.cluster import Cluster
from cordwood.model.errors import ProtocolError
from cordwood.model.settings.replication_settings import RACK_AWARE_SELECTOR
from cordwood.node.replication.near_reads import NearReads

pytestmark = pytest.mark.timeout(300)

LEADER, NEAR, THIRD = 1, 2, 3
TOPIC = "near"
RECORDS = 500


def rack_of(broker_id: int) -> str:
    return f"rack-{broker_id}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings: dict[str, str | int] = {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "auto.leader.rebalance.enable": False,
        "auto.create.topics.enable": False,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(nodes=3, settings=settings, racks=[rack_of(each) for each in (LEADER, NEAR, THIRD)]) as cluster:
        yield cluster


def create(cluster: Cluster, *names: str) -> None:
    """Topics that broker 1 leads, with the others as followers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topics = [NewTopic(name, num_partitions=1, replica_assignment=[[LEADER, NEAR, THIRD]]) for name in names]
    for name, created in admin.create_topics(topics).items():
        created.result(120)
        eventually(lambda name=name: led(cluster, name), what="the leader")  # type: ignore[misc]


def led(cluster: Cluster, name: str) -> bool:
    try:
        return cluster.leader(name) is cluster.brokers[LEADER]
    except ProtocolError:
        # The broker that was asked has not heard of the topic yet.
        return False


def reads_of(broker: Broker) -> NearReads:
    return broker._calls.server.node.near_reads


def write(cluster: Cluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, f"{number:08d}" * 20)
    assert producer.flush(60) == 0


class RackReader:
    """A consumer in the rack of broker 2, at the topic's start. Its values come in order, each once."""

    def __init__(self, cluster: Cluster, **settings: object) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "near",
                "client.rack": rack_of(NEAR),
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 2_000,
                **settings,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.numbers: list[int] = []

    def read_to(self, count: int, within_s: float = 60) -> None:
        deadline_s = time.monotonic() + within_s
        while len(self.numbers) < count and time.monotonic() < deadline_s:
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                self.numbers.append(int((message.value() or b"")[:8]))
        assert self.numbers == list(range(count)), (len(self.numbers), self.numbers[-3:])

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_reads_all_bytes_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    create(cluster, TOPIC)
    write(cluster, 0, RECORDS)
    reader = RackReader(cluster)
    reader.read_to(RECORDS)
    write(cluster, RECORDS, RECORDS)
    reader.read_to(2 * RECORDS)
    reader.close()
    leader, near = (reads_of(cluster.brokers[each]) for each in (LEADER, NEAR))
    assert near.served_bytes >= 2 * RECORDS * 160
    assert leader.sent_near >= 1
    assert (leader.served_bytes, reads_of(cluster.brokers[THIRD]).served_bytes) == (0, 0)


def test_a_consumer_goes_on_when_its_follower_is_killed_and_when_it_comes_back(cluster: Cluster) -> None:
    create(cluster, TOPIC)
    write(cluster, 0, RECORDS)
    reader = RackReader(cluster, **{"max.partition.fetch.bytes": 20_000})
    reader.read_to(RECORDS)
    cluster.brokers[NEAR].kill()
    write(cluster, RECORDS, RECORDS)
    reader.read_to(2 * RECORDS)
    cluster.brokers[NEAR].start()
    write(cluster, 2 * RECORDS, RECORDS)
    reader.read_to(3 * RECORDS)
    reader.close()


def test_a_consumer_goes_on_when_the_leader_moves(cluster: Cluster) -> None:
    create(cluster, TOPIC)
    write(cluster, 0, RECORDS)
    reader = RackReader(cluster)
    reader.read_to(RECORDS)
    cluster.brokers[LEADER].stop()
    write(cluster, RECORDS, RECORDS)
    reader.read_to(2 * RECORDS)
    cluster.brokers[LEADER].start()
    write(cluster, 2 * RECORDS, RECORDS)
    reader.read_to(3 * RECORDS)
    reader.close()


def test_a_follower_shows_readers_of_committed_records_no_others(cluster: Cluster) -> None:
    create(cluster, TOPIC)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(60)
    number = 0
    for transaction in range(10):
        producer.begin_transaction()
        for _ in range(20):
            aborted = transaction % 2
            producer.produce(TOPIC, f"{-1 if aborted else number:08d}")
            number += not aborted
        producer.flush(60)
        if transaction % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(TOPIC, "99999999")
    producer.flush(60)
    reader = RackReader(cluster, **{"isolation.level": "read_committed"})
    reader.read_to(number)
    assert not reader._consumer.consume(10, 2.0), "an open transaction is shown"
    producer.abort_transaction(30)
    write(cluster, number, 1)
    reader.read_to(number + 1)
    reader.close()
    assert reads_of(cluster.brokers[NEAR]).served_bytes > 0


def test_a_consumer_whose_records_were_deleted_hears_so_from_the_leader(cluster: Cluster) -> None:
    create(cluster, TOPIC)
    write(cluster, 0, RECORDS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(TOPIC, 0, 100)]).values():
        deleted.result(120)
    reader = RackReader(cluster, **{"auto.offset.reset": "earliest"})
    reader.numbers = list(range(100))
    reader.read_to(RECORDS)
    reader.close()


def test_the_java_client_reads_from_the_follower_in_its_rack(
    cluster: Cluster, kafka_jars: KafkaJars, javac: str, tmp_path: Path
) -> None:
    create(cluster, TOPIC, "transactions")
    run_java_cases("NearReadCases", 3, cluster.bootstrap_servers, kafka_jars, javac, tmp_path)
    leader, near = (reads_of(cluster.brokers[each]) for each in (LEADER, NEAR))
    assert near.served_bytes > 2000 * 100
    assert leader.sent_near >= 2
