"""`cordwood group watch`, live: on a terminal the table follows the group, a script gets a line for every look."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.conftest import Cordwood
from tests.conftest import RunningBroker
from tests.deadline import eventually

WATCH = [sys.executable, "-m", "cordwood.cli", "group", "watch"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Reader:
    """A group that moves when it is told."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": self.group})

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reader(broker: RunningBroker, cordwood_cli: Cordwood, topic: str) -> Iterator[Reader]:
    cordwood_cli("topic", "create", topic)
    cordwood_cli("produce", topic, stdin="\n".join(f"v{n}" for n in range(12)))
    reader = Reader(broker, topic)
    reader.commit(2)
    yield reader
    reader.close()


@contextmanager
def watching(broker: RunningBroker, reader: Reader, *options: str, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [*WATCH, reader.group, "--interval", "0.2", *options]
    environment = {**os.environ, "CORDWOOD_BOOTSTRAP": broker.bootstrap, "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        # Tests that run in the background of a shell have inherited that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
        assert (process.returncode, errors) == (0, b"")
    finally:
        process.kill()
        process.wait(60)


class Screen:
    """What a person at the other end of the terminal sees, one look after the other."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._seen = ""

    def shows(self, words: str) -> bool:
        with suppress(BlockingIOError):
            self._seen += CONTROL.sub("", os.read(self._descriptor, 1 << 16).decode())
        if words not in self._seen:
            return False
        self._seen = ""
        return True


def test_the_table_on_a_terminal_follows_the_group(broker: RunningBroker, reader: Reader, topic: str) -> None:
    master, terminal = pty.openpty()
    try:
        with watching(broker, reader, stdout=terminal):
            screen = Screen(master)
            title = f"{reader.group}: empty, 0 members,"
            eventually(lambda: screen.shows(f"{title} 10 records behind"), what="the first look")
            reader.commit(9)
            eventually(lambda: screen.shows(f"{title} 3 records behind"), what="a later look")
            eventually(lambda: screen.shows(topic), what="the row of the partition")
            reader.commit(12)
            eventually(lambda: screen.shows(f"{title} 0 records behind"), what="the last look")
    finally:
        os.close(master)
        os.close(terminal)


def test_a_script_gets_a_line_for_every_look(broker: RunningBroker, reader: Reader, topic: str) -> None:
    with watching(broker, reader, "--json", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = process.stdout

        def look() -> Any:
            found = json.loads(lines.readline())
            assert (found["name"], found["state"]) == (reader.group, "empty")
            (position,) = found["positions"]
            assert (position["topic"], position["partition"], position["end"]) == (topic, 0, 12)
            return position

        first = look()
        assert (first["committed"], first["lag"], first["drain_per_s"]) == (2, 10, None)
        assert look()["drain_per_s"] == 0
        reader.commit(9)  # the test's own timeout is the deadline of what follows
        moved = first
        while moved["committed"] != 9:
            moved = look()
        assert moved["lag"] == 3
        assert moved["drain_per_s"] > 0


def test_lag_counts_what_an_open_transaction_holds_back(
    broker: RunningBroker, reader: Reader, cordwood_cli: Cordwood, topic: str
) -> None:
    """Up to the high watermark: what a read_committed group cannot read yet is in the log, and retention removes it."""
    reader.commit(12)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "held back", partition=0)
    assert producer.flush(60) == 0

    def position() -> Any:
        (found,) = cordwood_cli.json("group", "describe", reader.group, "--sample", "0")["positions"]
        return found

    def lag() -> Any:
        found = position()
        return found["end"], found["lag"]

    assert lag() == (13, 1)
    held_back = position()
    assert held_back["lag_s"] >= 0
    assert held_back["loss_is_foreseen"]
    producer.commit_transaction(60)
    eventually(lag, to_be=(14, 2), what="the marker, which has an offset too")
    reads = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": reader.group,
            "isolation.level": "read_committed",
            "auto.commit.interval.ms": 100,
        }
    )
    reads.subscribe([topic])
    values: list[bytes | None] = []

    def caught_up() -> bool:
        message = reads.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
        return bool(values) and lag() == (14, 0)

    eventually(caught_up, what="a reader that commits goes past the marker")
    assert values == [b"held back"]
    reads.close()
