"""etcd is restored from a copy as its documentation advises: at a higher revision, and without history. Real brokers
that know more than the copy refuse it, and nothing is lost once the right data is back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.etcd.fixtures import StartEtcd
from tests.etcd.members import EtcdCluster

pytestmark = pytest.mark.timeout(300)

TOPIC = "orders"
BUMP = 1_000_000_000
NODES = (1, 2)


@pytest.fixture
def etcd_alone(start_etcd: StartEtcd) -> Iterator[EtcdCluster]:
    with start_etcd(1) as cluster:
        yield cluster


@pytest.fixture
def brokers(etcd_alone: EtcdCluster, tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    place = ("--cluster", "woods", "--store", f"etcd://{','.join(etcd_alone.endpoints)}")
    made = {
        node: BrokerProcess(tmp_path / f"node-{node}", keep_port=True, options=(*place, "--node-id", str(node)))
        for node in NODES
    }
    try:
        yield made
    finally:
        for broker in made.values():
            broker.end()


def bootstrap(brokers: dict[int, BrokerProcess]) -> str:
    return ",".join(broker.address for broker in brokers.values())


def produce(brokers: dict[int, BrokerProcess], values: list[str]) -> None:
    """Returns when all are acknowledged by all replicas in sync."""
    producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": "all", "linger.ms": 5})
    failed: list[object] = []
    for value in values:
        producer.produce(
            TOPIC, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert not failed


def read(brokers: dict[int, BrokerProcess], count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap(brokers), "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[str] = []

    def all_read() -> bool:
        values.extend((message.value() or b"").decode() for message in consumer.consume(500, 1) if not message.error())
        return len(values) >= count

    eventually(all_read, what=f"{count} records; there are {len(values)}")
    consumer.close()
    return values


def in_sync(brokers: dict[int, BrokerProcess]) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap(brokers)}).list_topics(timeout=30).topics
    return len(topics[TOPIC].partitions[0].isrs) if TOPIC in topics and topics[TOPIC].partitions else 0


def words_at_the_end(broker: BrokerProcess) -> str:
    """What a broker says that ends by itself."""
    eventually(lambda: not broker.alive, what="the end of the broker")
    assert broker.exit_code != 0
    broker.kill()
    return broker.output()


def test_brokers_refuse_an_older_copy_of_etcd_that_has_a_later_revision_and_no_history(
    brokers: dict[int, BrokerProcess], etcd_alone: EtcdCluster, etcdutl: Path, tmp_path: Path
) -> None:
    (member,) = etcd_alone.members
    brokers[1].start()
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    brokers[2].start()
    topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])
    for made in admin.create_topics([topic]).values():
        made.result(60)
    values = [str(number) for number in range(300)]
    produce(brokers, values[:50])
    assert brokers[2].stop() == 0
    # The copy says that broker 1 alone has all records.
    member.snapshot(tmp_path / "copy.db")
    produce(brokers, values[50:100])
    brokers[2].start()
    eventually(lambda: in_sync(brokers), to_be=2, what="both replicas in sync")
    assert brokers[1].stop() == 0
    produce(brokers, values[100:])
    # Broker 1 is away while etcd forgets what broker 1 saw last: that alone keeps no broker from its start.
    revision = member.post("/v3/kv/range", {"key": "YQ=="})["header"]["revision"]
    member.post("/v3/kv/compaction", {"revision": revision, "physical": True})

    # A broker that runs ends. Brokers that start refuse.
    member.stop()
    member.restore(etcdutl, tmp_path / "copy.db", bump=BUMP)
    etcd_alone.restart(member)
    assert "went back" in words_at_the_end(brokers[2])
    for broker in brokers.values():
        broker.launch()
        said = words_at_the_end(broker)
        assert "went back" in said
        assert "Nothing was changed" in said

    member.stop()
    member.put_back()
    etcd_alone.restart(member)
    for broker in brokers.values():
        broker.start()
    assert read(brokers, 300) == values


def test_records_that_brokers_had_until_an_older_etcd_ended_them_are_set_aside_and_not_cut(
    brokers: dict[int, BrokerProcess], etcd_alone: EtcdCluster, etcdutl: Path, tmp_path: Path
) -> None:
    (member,) = etcd_alone.members
    brokers[1].start()
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    brokers[2].start()
    for made in admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])]).values():
        made.result(60)
    produce(brokers, ["known to both"])
    # The copy says that both brokers have all records.
    member.snapshot(tmp_path / "copy.db")
    assert brokers[1].stop() == 0
    produce(brokers, [str(number) for number in range(100)])
    member.stop()
    member.restore(etcdutl, tmp_path / "copy.db", bump=BUMP)
    etcd_alone.restart(member)
    said = words_at_the_end(brokers[2])
    assert "went back" in said
    assert "Traceback" not in said

    # The operator goes on with the copy, and the broker that lacks records leads.
    for broker in brokers.values():
        (broker.data_dir / "cluster-witness").unlink()
        broker.start()
    eventually(lambda: in_sync(brokers), to_be=2, what="both replicas in sync")
    assert read(brokers, 1) == ["known to both"]
    (aside,) = brokers[2].data_dir.glob(f"{TOPIC}-0.*-stray")
    assert b"99" in (aside / f"{0:020}.log").read_bytes()
