"""The broker in this process: clients, the log without a client, many brokers, memory and disk."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.conftest import no_new_threads

from cordwood.broker.server import Server
from cordwood.embedded import Broker
from cordwood.embedded.in_process_log import BrokerStopped
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure, SyncFailure
from cordwood.model.settings.setting import InvalidSetting
from cordwood.wire.apis import ApiKey


def test_a_client_and_the_log_see_the_same_records() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"from a client", key=b"k")
        assert producer.flush(60) == 0
        assert broker.log.append("orders", "k", "from here", headers=[("h", b"1")], timestamp_ms=123_456) == 1
        records = list(broker.log.read("orders", 0))
        assert [(record.offset, record.key, record.value) for record in records] == [
            (0, b"k", b"from a client"),
            (1, b"k", b"from here"),
        ]
        assert records[1].headers == (("h", b"1"),)
        assert records[1].timestamp_ms == 123_456
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 1)])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"from here"
        consumer.close()


def test_reading_starts_where_it_is_told_and_ends_at_the_end() -> None:
    with Broker() as broker:
        for number in range(10):
            assert broker.log.append("t", None, str(number)) == number
        assert [record.offset for record in broker.log.read("t", 0, 7)] == [7, 8, 9]
        assert list(broker.log.read("t", 0, 10)) == []
        assert broker.log.end_offset("t", 0) == 10
        with pytest.raises(ProtocolError) as refusal:
            list(broker.log.read("t", 0, 11))
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_large_logs_are_read_in_parts() -> None:
    with Broker() as broker:
        value = bytes(300_000)
        for _ in range(10):
            broker.log.append("large", None, value)
        assert [record.offset for record in broker.log.read("large", 0)] == list(range(10))


def test_keys_choose_the_partition_that_a_java_client_would_and_order_holds_per_key() -> None:
    with Broker(settings={"num.partitions": 5}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
        for number in range(40):
            producer.produce("keyed", str(number).encode(), key=f"key {number % 8}".encode())
        producer.flush(60)
        for number in range(40):
            broker.log.append("keyed", f"key {number % 8}", f"again {number}")
        homes: dict[bytes | None, set[int]] = {}
        for partition in range(5):
            for record in broker.log.read("keyed", partition):
                homes.setdefault(record.key, set()).add(partition)
        assert len(homes) == 8
        assert all(len(partitions) == 1 for partitions in homes.values())


def test_without_a_key_partitions_take_turns_and_one_can_be_named() -> None:
    with Broker(settings={"num.partitions": 3}) as broker:
        for _ in range(9):
            broker.log.append("spread", None, "x")
        assert [broker.log.end_offset("spread", partition) for partition in range(3)] == [3, 3, 3]
        assert broker.log.append("spread", "any", "x", partition=2) == 3
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append("spread", "any", "x", partition=3)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_only_if_the_settings_say_so() -> None:
    with Broker(settings={"auto.create.topics.enable": False}) as broker:
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append("nowhere", None, "x")
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ProtocolError):
            list(broker.log.read("nowhere", 0))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic("somewhere", 1, 1)]).values():
            created.result(60)
        assert broker.log.append("somewhere", None, "x") == 0


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250])
def test_a_topic_name_that_kafka_refuses_is_refused(name: str) -> None:
    with Broker() as broker, pytest.raises(ProtocolError) as refusal:
        broker.log.append(name, None, "x")
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_record_that_is_too_large_is_refused() -> None:
    with Broker() as broker:
        with pytest.raises(ProtocolError) as refusal:
            broker.log.append("t", None, bytes(2_000_000))
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert broker.log.append("t", None, "small") == 0


def test_many_threads_append_and_every_offset_is_given_once() -> None:
    with Broker() as broker:
        offsets: list[int] = []

        def append() -> None:
            for _ in range(50):
                offsets.append(broker.log.append("shared", None, "x"))

        threads = [threading.Thread(target=append) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(offsets) == list(range(400))


def test_a_broker_on_a_directory_keeps_its_records(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        for number in range(5):
            broker.log.append("kept", None, str(number))
    with Broker(data_dir=tmp_path) as broker:
        assert [record.value for record in broker.log.read("kept", 0)] == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.log.append("kept", None, "5") == 5


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_a_directory_among_the_settings_is_refused(tmp_path: Path, name: str) -> None:
    # The data would be in memory in spite of the setting.
    with pytest.raises(InvalidSetting, match="data_dir puts"):
        Broker(settings={name: str(tmp_path)})


def test_what_is_in_memory_is_gone_with_the_broker() -> None:
    with Broker() as broker:
        broker.log.append("t", None, "x")
    with Broker() as broker, pytest.raises(ProtocolError):
        list(broker.log.read("t", 0))


def test_memory_holds_deleted_records_for_a_second_and_a_disk_for_a_minute(tmp_path: Path) -> None:
    """A client that wrote topics of 100 kB and deleted them, 130 a second, made a broker in memory grow by 13 MB/s."""

    def delay_ms(broker: Broker) -> int:
        return broker._settings.topic_settings.file_delete_delay_ms

    assert delay_ms(Broker()) == 1_000
    assert delay_ms(Broker(data_dir=tmp_path)) == 60_000
    assert delay_ms(Broker(settings={"log.segment.delete.delay.ms": 5_000})) == 5_000


def test_many_brokers_live_in_one_process() -> None:
    brokers = [Broker().start() for _ in range(10)]
    try:
        assert len({broker.bootstrap_servers for broker in brokers}) == 10
        for number, broker in enumerate(brokers):
            broker.log.append("t", None, str(number))
        for number, broker in enumerate(brokers):
            assert [record.value for record in broker.log.read("t", 0)] == [str(number).encode()]
    finally:
        for broker in brokers:
            broker.stop()


def test_threads_of_a_stopped_broker_are_gone(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Broker(data_dir=tmp_path) as broker:
        broker.log.append("t", None, "x")
        assert set(threading.enumerate()) > before
    no_new_threads(before)


def test_a_stopped_broker_says_so() -> None:
    broker = Broker().start()
    broker.log.append("t", None, "x")
    broker.stop()
    broker.stop()
    with pytest.raises(BrokerStopped):
        broker.log.append("t", None, "x")
    with pytest.raises(BrokerStopped):
        broker.bootstrap_servers  # noqa: B018


@pytest.fixture
def outlived() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in a fork, and returns when the function has; the fork lives until the test ends."""
    forks: list[tuple[int, int]] = []

    def fork(function: Callable[[], None]) -> None:
        done, end = os.pipe(), os.pipe()
        process_id = os.fork()
        if process_id == 0:
            try:
                function()
                os.write(done[1], b".")
                os.close(end[1])
                os.read(end[0], 1)
            finally:
                os._exit(0)
        os.close(done[1])
        os.close(end[0])
        forks.append((process_id, end[1]))
        assert os.read(done[0], 1) == b"."
        os.close(done[0])

    yield fork
    for process_id, end in forks:
        os.close(end)
        os.waitpid(process_id, 0)


def test_a_fork_that_outlives_a_broker_holds_nothing_of_it(
    tmp_path: Path, outlived: Callable[[Callable[[], None]], None]
) -> None:
    broker = Broker(data_dir=tmp_path, settings={"metrics.listener": "127.0.0.1:0"}).start()
    broker.log.append("t", None, "x")
    address = (broker.host, broker.port)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, 0))
        assert client.recv(1)  # the answer shows that the broker has the connection
        outlived(lambda: None)
        broker.stop()
        while client.recv(65536):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with Broker(data_dir=tmp_path, port=address[1]) as again:
        assert again.log.end_offset("t", 0) == 1


def test_a_fork_has_no_broker_and_leaves_the_one_there_is_alone(outlived: Callable[[Callable[[], None]], None]) -> None:
    def use() -> None:
        with pytest.raises(BrokerStopped, match=r"not in this fork of that process: use a client"):
            broker.log.append("t", None, "x")
        broker.stop()
        with socket.create_connection((broker.host, broker.port)):
            pass

    with Broker() as broker:
        broker.log.append("t", None, "x")
        outlived(use)
        assert broker.log.append("t", None, "x") == 1


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        with pytest.raises(OSError, match="cannot listen"):
            Broker(port=first.port).start()
        with pytest.raises(OSError, match="cannot be a host name"):
            Broker(host="a..b").start()
        with pytest.raises(Exception, match="in use"):
            Broker(data_dir=tmp_path).start()
    with pytest.raises(InvalidSetting, match=r"num\.partitionz"):
        Broker(settings={"num.partitionz": 3})
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageFailure):
        Broker(data_dir=tmp_path / "file").start()


class Interrupted(BaseException):
    """Stands for a KeyboardInterrupt."""


def test_a_start_that_is_interrupted_leaves_no_broker_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        interrupted.set()
        raise Interrupted

    true_start = Server.start

    async def start(*arguments: Any, **keywords: Any) -> Server:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupted.wait(60)
        return await true_start(*arguments, **keywords)

    threads = set(threading.enumerate())
    handler = signal.signal(signal.SIGUSR1, interrupt)
    try:
        monkeypatch.setattr(Server, "start", start)
        with pytest.raises(Interrupted):
            Broker(data_dir=tmp_path).start()
    finally:
        signal.signal(signal.SIGUSR1, handler)
    no_new_threads(threads)
    monkeypatch.setattr(Server, "start", true_start)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.log.append("t", None, "x") == 0


def test_a_failed_sync_reaches_whoever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cordwood.log.files.os_file import OsFile

    true_sync = OsFile.sync

    def sync(file: Any) -> None:
        if file.path.endswith(".log") and "victim" in file.path:
            raise SyncFailure(f"fdatasync of {file.path} failed: Input/output error")
        true_sync(file)

    monkeypatch.setattr(OsFile, "sync", sync)
    broker = Broker(data_dir=tmp_path).start()
    assert broker.log.append("fine", None, "x") == 0
    with pytest.raises(BrokerStopped):
        broker.log.append("victim", None, "x", timeout_s=60)
    with pytest.raises(SyncFailure):
        broker.stop()


def test_starting_and_stopping_takes_a_moment() -> None:
    with Broker():
        pass
    started = time.process_time()
    for _ in range(10):
        with Broker():
            pass
    assert (time.process_time() - started) / 10 < 0.5


def test_records_appended_without_a_client_get_their_topics_codec(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings={"compression.type": "zstd"}) as broker:
        values = [bytes([number]) * 5000 for number in range(20)]
        assert [broker.log.append("orders", None, value) for value in values] == list(range(20))
        assert [record.value for record in broker.log.read("orders", 0)] == values
    assert sum(path.stat().st_size for path in tmp_path.glob("orders-0/*.log")) < 20 * 200
