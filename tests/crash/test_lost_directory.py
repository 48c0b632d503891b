"""A disk of several that is gone while the broker runs: its partitions are refused, all others go on, and a restart on
the mended disk has every acknowledged record."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.crash.conftest import StartBroker
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

from cordwood.embedded import Broker, Cluster

PARTITIONS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=64)
    except MountUnavailable as reason:
        pytest.skip(f"there is no disk to take away here: {reason}")
    yield disk
    disk.destroy()


def producer(broker: BrokerProcess) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "enable.idempotence": False,
            "retries": 0,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
    )


def acknowledged(broker: BrokerProcess, partition: int, value: str) -> bool:
    try:
        produce_all(producer(broker), [{"topic": "orders", "partition": partition, "value": value}])
    except KafkaException as failure:
        error = failure.args[0]
        assert error.code() in (
            KafkaError.KAFKA_STORAGE_ERROR,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError._MSG_TIMED_OUT,
        ), error
        return False
    return True


def values_in(broker: BrokerProcess, partition: int) -> list[str]:
    return [(message.value() or b"").decode() for message in read_to_end(broker.bootstrap, "orders", (partition,))]


def test_a_lost_disk_takes_only_its_partitions_with_it(
    disk: LoopDisk, tmp_path: Path, start_broker: StartBroker
) -> None:
    mounted = disk.path / "data"
    broker = start_broker(Path(f"{tmp_path}/first,{mounted}"))
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    administrator.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(120)
    written: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}

    def write(partition: int, value: str) -> bool:
        if not acknowledged(broker, partition, value):
            return False
        written[partition].append(value)
        return True

    assert all(write(partition, "first") for partition in written)
    lost = sorted(int(path.name.removeprefix("orders-")) for path in mounted.glob("orders-*"))
    kept = [partition for partition in written if partition not in lost]
    assert len(lost) == len(kept) == PARTITIONS // 2
    disk.cut_power()
    assert not write(lost[0], "into the void")
    eventually(lambda: "its partitions are offline" in broker.output_path.read_text(), what="a word about the disk")
    for number in range(5):
        assert all(write(partition, f"later {number}") for partition in kept)
        assert not any(write(partition, f"later {number}") for partition in lost)
    for partition in kept:
        assert values_in(broker, partition) == written[partition]
    broker.stop()
    disk.unmount()
    disk.mount()
    broker.start()
    for partition, values in written.items():
        assert values_in(broker, partition)[: len(values)] == values
        assert write(partition, "after the restart")


def test_other_brokers_lead_what_was_led_on_a_lost_disk_and_producers_notice_nothing(
    disk: LoopDisk, tmp_path: Path
) -> None:
    with Cluster(nodes=2) as cluster:
        settings: dict[str, str | int] = {
            "cluster.name": "embedded",
            "cluster.store": cluster.store,
            "node.id": 3,
        }
        third = Broker(data_dir=f"{tmp_path}/first,{disk.path}/data", settings=settings).start()
        try:
            administrator = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            topic = NewTopic("orders", PARTITIONS, replica_assignment=[[3, 1, 2]] * PARTITIONS)
            administrator.create_topics([topic])["orders"].result(120)
            client = Producer(
                {
                    "bootstrap.servers": f"{cluster.bootstrap_servers},{third.bootstrap_servers}",
                    "acks": "all",
                    "enable.idempotence": True,
                    "log_level": 0,
                }
            )

            def write(words: str) -> None:
                records = [
                    {"topic": "orders", "partition": partition, "value": f"{words} {number}"}
                    for number in range(20)
                    for partition in range(PARTITIONS)
                ]
                produce_all(client, records, timeout_s=60)

            write("before")
            lost = {int(path.name.removeprefix("orders-")) for path in (disk.path / "data").glob("orders-*")}
            assert len(lost) == PARTITIONS // 2
            disk.cut_power()
            write("after")
            eventually(lambda: all(cluster.brokers[1].log.leader("orders", partition) != 3 for partition in lost))
            kept = set(range(PARTITIONS)) - lost
            assert all(cluster.brokers[1].log.leader("orders", partition) == 3 for partition in kept)
            expected = [f"{words} {number}" for words in ("before", "after") for number in range(20)]
            for partition in range(PARTITIONS):
                read = read_to_end(cluster.bootstrap_servers, "orders", (partition,))
                assert [(message.value() or b"").decode() for message in read] == expected
        finally:
            third.stop()
