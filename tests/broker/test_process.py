"""A broker as a process: it says when it is ready, stops in order, and never acknowledges what it cannot keep."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.deadline import eventually

SERVE = """
import sys
from cordwood.broker import serve
from cordwood.model.settings.configuration import load_settings
sys.exit(serve(load_settings(flags=sys.argv[1:])))
"""

FAIL_SYNC = """
from cordwood.log.files.os_file import OsFile
from cordwood.model.errors import SyncFailure
syncs = 0
true_sync = OsFile.sync
def sync(file):
    global syncs
    if "victim" in file.path:
        syncs += 1
        if syncs > 3:
            raise SyncFailure(f"fdatasync of {file.path} failed: Input/output error")
    true_sync(file)
OsFile.sync = sync
"""


class Process:
    def __init__(self, data_dir: Path, prelude: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", prelude + SERVE, f"log.dirs={data_dir}", "listeners=127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().rstrip("\n")
        self.words = ""

    @property
    def address(self) -> str:
        found = re.search(r"ready on (\S+)", self.ready_line)
        assert found is not None, self.ready_line
        return found[1]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        _, self.words = self._process.communicate(timeout=90)
        return self._process.returncode

    def kill_if_alive(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def running(data_dir: Path, prelude: str = "") -> Iterator[Process]:
    process = Process(data_dir, prelude)
    try:
        yield process
    finally:
        process.kill_if_alive()


class Acked:
    """Produces until told to stop, and keeps what was acknowledged."""

    def __init__(self, address: str, topic: str) -> None:
        self.values: dict[int, bytes] = {}
        self.errors: list[KafkaError] = []
        self.some = threading.Event()
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 2000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            with contextlib.suppress(BufferError):
                self._producer.produce(self._topic, f"value {number}".encode(), on_delivery=self._delivered)
            self._producer.poll(0.0005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        self.values[offset] = value
        if len(self.values) >= 50:
            self.some.set()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(5)


def read_all(address: str, topic: str, end: int) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    while not found or max(found) < end - 1:
        for message in consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found[offset] = value
    consumer.close()
    return found


def test_it_says_when_it_is_ready_and_stops_when_told(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Tests that run under nohup have inherited that SIGHUP is ignored.
        with running(tmp_path / "data", "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n") as broker:
            address = broker.address
            assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
            assert broker.ready_line == f"cordwood ready on {address} (data in {tmp_path / 'data'})"
            broker.signal(number)
            assert broker.wait() == 0
            assert "stopped cleanly" in broker.words


def test_a_stop_under_load_keeps_every_ack_and_needs_no_recovery(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        load = Acked(broker.address, "orders")
        assert load.some.wait(60)
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0, broker.words
        load.end()
    with running(tmp_path) as broker:
        found = read_all(broker.address, "orders", max(load.values) + 1)
        assert {offset: found[offset] for offset in load.values} == load.values
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
        assert "unclean stop" not in broker.words


def test_a_kill_keeps_every_ack_and_the_next_start_recovers(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        load = Acked(broker.address, "orders")
        assert load.some.wait(60)
        broker.signal(signal.SIGKILL)
        broker.wait()
        load.end()
    with running(tmp_path) as broker:
        found = read_all(broker.address, "orders", max(load.values) + 1)
        assert {offset: found[offset] for offset in load.values} == load.values
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0
        assert "after an unclean stop" in broker.words


def test_a_failed_sync_stops_the_broker_and_acknowledges_nothing_more(tmp_path: Path) -> None:
    with running(tmp_path, FAIL_SYNC) as broker:
        load = Acked(broker.address, "victim")
        assert broker.wait() == 1
        load.end()
        assert "Input/output error" in broker.words
        assert "stopped cleanly" not in broker.words
    assert not os.path.exists(tmp_path / ".kafka_cleanshutdown")
    with running(tmp_path) as broker:
        if load.values:
            found = read_all(broker.address, "victim", max(load.values) + 1)
            assert {offset: found[offset] for offset in load.values} == load.values


def test_two_brokers_cannot_have_one_directory(tmp_path: Path) -> None:
    with running(tmp_path) as first, running(tmp_path) as second:
        assert second.wait() != 0
        assert "in use by another broker" in second.words
        first.signal(signal.SIGTERM)
        assert first.wait() == 0


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_directory_that_another_node_wrote_is_refused(tmp_path: Path, kind: int) -> None:
    with running(tmp_path) as broker:
        broker.signal(kind)
        broker.wait()
    properties = tmp_path / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
    with running(tmp_path) as broker:
        assert broker.wait() != 0
        assert "node 7" in broker.words


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with running(tmp_path, ignoring) as broker:
        broker.signal(signal.SIGHUP)
        acked = Acked(broker.address, "t")
        assert acked.some.wait(60)
        acked.end()
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0


def test_a_new_data_directory_is_for_the_brokers_user_alone_and_an_older_one_is_named(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"a chair")
        assert producer.flush(30) == 0
        assert "other users of this machine" not in broker.output()
    assert broker.data_dir.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o077 for path in broker.data_dir.rglob("*")}
    assert not any(modes.values()), modes
    broker.data_dir.chmod(0o755)
    with broker:
        eventually(lambda: f"chmod -R go-rwx {broker.data_dir}" in broker.output(), what="the line about the directory")
