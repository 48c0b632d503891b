"""Moves of logs to disks that cannot take them, of internal topics under transactions, and of topics that go."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.crash.conftest import StartBroker
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.crash.test_moved_logs import move, places, two_directories
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

from cordwood.model.errors import ErrorCode

VALUE = "x" * 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=24)
    except MountUnavailable as reason:
        pytest.skip(f"there is no small disk here: {reason}")
    yield disk
    disk.destroy()


def on_two_disks(start_broker: StartBroker, path: Path, disk: LoopDisk) -> BrokerProcess:
    broker = start_broker(data_dir=Path(f"{path / 'a'},{disk.path / 'b'}"))
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap})
    administrator.create_topics([NewTopic("orders", 2, config={"segment.bytes": "4000000"})])["orders"].result()
    return broker


def write(broker: BrokerProcess, partition: int, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0})
    produce_all(producer, [{"topic": "orders", "partition": partition, "value": value} for value in values])


def values_in(broker: BrokerProcess, partition: int) -> list[str]:
    return [(message.value() or b"").decode() for message in read_to_end(broker.bootstrap, "orders", (partition,))]


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.glob("orders-*"))


@pytest.mark.timeout(120)
def test_a_full_target_ends_the_move_and_harms_nobody(
    disk: LoopDisk, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = on_two_disks(start_broker, tmp_path, disk)
    write(broker, 0, ["first"])
    write(broker, 1, ["first"])
    (here,) = [partition for partition, path in places(broker).items() if path == str(tmp_path / "a")]
    there = 1 - here
    values = ["first", *(f"{number} {VALUE}" for number in range(400))]
    write(broker, here, values[1:])
    assert move(broker, here, disk.path / "b") is ErrorCode.NONE
    eventually(lambda: "could not move" in broker.output(), what="the word that the target is full")
    eventually(lambda: places(broker, futures=True), to_be={}, what="the end of the move")
    eventually(lambda: names_in(disk.path / "b") == [f"orders-{there}"], what="the removal of the copy")
    write(broker, there, ["second"])
    write(broker, here, ["last"])
    assert values_in(broker, here) == [*values, "last"]
    assert values_in(broker, there) == ["first", "second"]
    assert broker.stop() == 0


@pytest.mark.timeout(120)
def test_a_target_whose_disk_fails_ends_the_move_and_takes_only_its_own_partitions(
    disk: LoopDisk, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = on_two_disks(start_broker, tmp_path, disk)
    write(broker, 0, ["first"])
    write(broker, 1, ["first"])
    (here,) = [partition for partition, path in places(broker).items() if path == str(tmp_path / "a")]
    disk.cut_power()
    assert move(broker, here, disk.path / "b") in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    eventually(lambda: "could not move" in broker.output(), what="the word that the target failed")
    write(broker, here, ["second"])
    assert values_in(broker, here) == ["first", "second"]
    eventually(
        lambda: move(broker, here, disk.path / "b") is ErrorCode.KAFKA_STORAGE_ERROR, what="the loss of the target"
    )
    write(broker, here, ["third"])
    assert values_in(broker, here) == ["first", "second", "third"]


class Transfers:
    """Reads a topic and writes another one in transactions, with the positions of its group in them.

    After an error it begins anew with other clients: what an open transaction wrote is aborted then, and the positions
    are those of the last committed transaction.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.failures: list[KafkaException] = []
        self.committed = 0
        self._bootstrap = broker.bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._transfer()
            except KafkaException as failure:
                print(f"the transfers begin anew: {failure}")
                self.failures.append(failure)

    def _transfer(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "transfers",
                # When all brokers are gone, librdkafka (2.16) forgets them by default. send_offsets_to_transaction then
                # waits for the forgotten coordinator (its issue 5511), longer than it is told to (its issue 5456).
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        # This comes before the first read, since it ends the transaction that an earlier producer left open.
        producer.init_transactions(60)
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "transfers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"])
        try:
            while not self._stop.is_set():
                self._once(producer, consumer)
        finally:
            consumer.close()

    def _once(self, producer: Producer, consumer: Consumer) -> None:
        messages = [message for message in consumer.consume(20, timeout=0.1) if message.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            producer.produce("copies", message.value(), partition=message.partition() or 0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [each for each in positions if each.offset >= 0], consumer.consumer_group_metadata(), 60
        )
        producer.commit_transaction(60)
        self.committed += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


def copies(broker: BrokerProcess) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "copies",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("copies", partition, 0) for partition in range(2)])
    found: list[str] = []
    ended: set[int | None] = set()
    while len(ended) < 2:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append((message.value() or b"").decode())
    consumer.close()
    return found


def all_in(broker: BrokerProcess, topic: str, directory: Path) -> bool:
    return set(places(broker, topic=topic).values()) == {str(directory)}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
def test_internal_topics_move_while_transactions_run(start_broker: StartBroker, tmp_path: Path, kills: bool) -> None:
    internal = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    broker = two_directories(start_broker, tmp_path, **internal)
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in administrator.create_topics([NewTopic(name, 2) for name in ("orders", "copies")]).values():
        future.result()
    transfers = Transfers(broker)
    topics = ("__consumer_offsets", "__transaction_state", "orders", "copies")
    written = ["first"]
    write(broker, 0, written)
    eventually(lambda: transfers.committed, what="the first transaction")
    for number in range(24):
        values = [f"{number} {place}" for place in range(50)]
        write(broker, number % 2, values)
        written += values
        # Most moves are taken back before they end; those of every fourth round end.
        target = tmp_path / "ab"[(number + number // 4) % 2]
        for topic in topics:
            for partition in places(broker, topic=topic):
                assert move(broker, partition, target, topic) is ErrorCode.NONE
        if number % 4 == 3:
            for topic in topics:
                eventually(partial(all_in, broker, topic, target), what=f"the moves of {topic}")
        if kills and number % 8 == 7:
            broker.kill()
            broker.start()
    eventually(lambda: len(copies(broker)) >= len(written), what="a copy of each record")
    transfers.stop()
    assert kills or transfers.failures == []
    assert sorted(copies(broker)) == sorted(written)
    assert transfers.committed
    assert broker.stop() == 0


@pytest.mark.timeout(120)
def test_topics_that_are_deleted_while_they_move_leave_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = two_directories(start_broker, tmp_path, **{"replica.alter.log.dirs.io.max.bytes.per.second": "20000000"})
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap})
    for round_ in range(6):
        config = {"segment.bytes": "1000000", "file.delete.delay.ms": "1000"}
        administrator.create_topics([NewTopic("orders", 2, config=config)])["orders"].result()
        for partition in range(2):
            write(broker, partition, [f"{round_}", *[VALUE] * 60])
            other = "b" if places(broker)[partition] == str(tmp_path / "a") else "a"
            assert move(broker, partition, tmp_path / other) is ErrorCode.NONE
        if round_ == 4:
            broker.kill()
            broker.start()
        administrator.delete_topics(["orders"])["orders"].result()
    eventually(
        lambda: names_in(tmp_path / "a") + names_in(tmp_path / "b") == [], what="the removal of all files", within_s=60
    )
    administrator.create_topics([NewTopic("orders", 2)])["orders"].result()
    write(broker, 0, ["new"])
    assert values_in(broker, 0) == ["new"]
    assert broker.stop() == 0
