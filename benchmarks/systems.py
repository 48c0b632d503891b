"""The systems under test behind one interface: start, stop, process, address, CPU, memory, topics.

Promises: what differs between the systems is here and nowhere else. A durability is asked for in one word and
translated: `os` is Cordwood's ack.durability=os and Kafka's default; `disk` is Cordwood's ack.durability=disk (its
default) and Kafka's flush.messages=1. Neither lets a group wait before it rebalances: the first round of a classic
group begins at once, and Kafka works out who gets what in a consumer-protocol group at every change, not once a second.
Only brokers `as_shipped` wait as their defaults have it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from benchmarks import processes
from benchmarks.figures import CORDWOOD, KAFKA
from benchmarks.kafka_peer import DEFAULT_HEAP, KafkaBroker, KafkaJars, free_port
from benchmarks.secure_listener import SecureListener

Durability = Literal["os", "disk"]
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_NEVER = str(2**63 - 1)
"""Kafka's default for flush.messages, which leaves it to the operating system."""


class SystemFailed(Exception):
    """A broker did not start, or did not do what was asked; the message holds the end of its output."""


class System(Protocol):
    """One broker, or one cluster, on one directory of its own."""

    name: str
    directory: Path
    replicas: int
    """Of each partition of the benchmarks' topics."""

    @property
    def label(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def pids(self) -> Sequence[int]: ...
    @property
    def data(self) -> Path: ...
    @property
    def alive(self) -> bool: ...
    def start(self, *, wait: bool = True) -> None: ...
    def stop(self) -> None: ...
    def tail(self) -> str: ...
    def topic_settings(self, durability: Durability) -> dict[str, str]: ...


class KafkaSystem:
    """Apache Kafka with the JVM flags of its own start script."""

    name = KAFKA
    replicas = 1

    def __init__(
        self,
        directory: Path,
        jars: KafkaJars,
        heap: str | None = None,
        *,
        as_shipped: bool = False,
        secure: SecureListener | None = None,
    ) -> None:
        self.directory = directory
        port, controller_port = free_port(), free_port()
        # Deleted topics give their space back at once, so that a long run does not fill the disk.
        settings = {"log.segment.delete.delay.ms": "100", "auto.create.topics.enable": "false"}
        if as_shipped:  # Kafka's default, and neither start script nor sample settings change it; KafkaBroker does
            settings["group.initial.rebalance.delay.ms"] = "3000"
        else:
            settings["group.initial.rebalance.delay.ms"] = "0"
            settings["group.consumer.assignment.interval.ms"] = "0"
        if heap is not None:  # its cleaner takes 128 MiB of the heap at the start, if it is left to its default
            settings["log.cleaner.dedupe.buffer.size"] = str(4 * 2**20)
        if secure is not None:
            settings |= secure.of_kafka(f"127.0.0.1:{port}", controller_port)
        self._broker = KafkaBroker(jars, directory, heap or DEFAULT_HEAP, settings, port, controller_port)

    @property
    def label(self) -> str:
        return f"Kafka {self._broker.jars.version}"

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def pid(self) -> int:
        return self._broker.pid

    @property
    def pids(self) -> Sequence[int]:
        return (self.pid,)

    @property
    def data(self) -> Path:
        return self._broker.log_directory

    @property
    def alive(self) -> bool:
        return self._broker.alive

    def start(self, *, wait: bool = True) -> None:
        self._broker.start(wait=wait)

    def stop(self) -> None:
        self._broker.stop()

    def tail(self) -> str:
        return self._broker.tail()

    def topic_settings(self, durability: Durability) -> dict[str, str]:
        return self.durability(durability)

    @staticmethod
    def durability(durability: Durability) -> dict[str, str]:
        return {"flush.messages": "1" if durability == "disk" else _NEVER}


class CordwoodSystem:
    """`cordwood serve` of this environment, with bytecode cached as users have it."""

    name = CORDWOOD
    label = "Cordwood"
    replicas = 1
    _ready = re.compile(r"cordwood ready on \S")

    def __init__(
        self,
        directory: Path,
        *,
        as_shipped: bool = False,
        options: Sequence[str] = (),
        port: int | None = None,
        secure: SecureListener | None = None,
    ) -> None:
        """`options`: further ones of `cordwood serve`."""
        self.directory = directory
        self._port = port or free_port()
        waits = [] if as_shipped else ["--set", "group.initial.rebalance.delay.ms=0"]
        listeners = ["--listen", self.bootstrap]
        if secure is not None:
            settings = secure.of_cordwood(self.bootstrap)
            listeners = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self._options = [*listeners, *waits, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise SystemFailed("Cordwood is not running")
        return self._process.pid

    @property
    def pids(self) -> Sequence[int]:
        return (self.pid,)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        assert self._process is None, "already started"
        self.directory.mkdir(parents=True, exist_ok=True)
        installed = Path(sys.executable).with_name("cordwood")
        command = [str(installed)] if installed.exists() else [sys.executable, "-m", "cordwood.cli"]
        command += ["serve", "--data-dir", str(self.data), *self._options]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONUNBUFFERED"] = "1"
        begin = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # an interrupt at the terminal is ours to handle
            )
        if wait:
            self._wait_until_ready(begin)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def tail(self) -> str:
        """The end of the broker's output, for messages."""
        return self._output.read_text(errors="replace")[-2000:] if self._output.exists() else ""

    def topic_settings(self, durability: Durability) -> dict[str, str]:
        return {"ack.durability": durability}

    @property
    def _output(self) -> Path:
        return self.directory / "cordwood.out"

    def _wait_until_ready(self, begin: int, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._ready.search(self._output.read_bytes()[begin:].decode(errors="replace")):
                return
            if not self.alive:
                break
            time.sleep(0.005)
        self.stop()
        raise SystemFailed(f"Cordwood did not start:\n{self.tail()}")


def create_topics(
    system: System, names: list[str], partitions: int, settings: Mapping[str, str], *, timeout_s: float = 30
) -> None:
    """All of them in one request; returns when the broker has said that they exist."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    topics = [NewTopic(name, partitions, system.replicas, config=dict(settings)) for name in names]
    for done in admin.create_topics(topics, operation_timeout=timeout_s, request_timeout=timeout_s).values():
        done.result()


def delete_topics(system: System, names: list[str], *, timeout_s: float = 30) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for done in admin.delete_topics(names, operation_timeout=timeout_s, request_timeout=timeout_s).values():
        done.result()


def keep_internal_topics(system: System, durability: Durability, *, timeout_s: float = 30) -> None:
    """Positions, groups and transactions are kept with this durability from now on; makes the topics if need be."""
    where: dict[str, str | int | float | bool] = {"bootstrap.servers": system.bootstrap, "log_level": 0}
    reader = Consumer({**where, "group.id": "bench"})
    reader.committed([TopicPartition("none", 0)], timeout=timeout_s)
    reader.close()
    Producer({**where, "transactional.id": "bench"}).init_transactions(timeout_s)
    settings = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in system.topic_settings(durability).items()
    ]
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=settings) for topic in INTERNAL_TOPICS
    ]
    admin = AdminClient(where)
    for done in admin.incremental_alter_configs(resources, request_timeout=timeout_s).values():
        done.result()


def memory(system: System) -> tuple[int, int]:
    """Resident bytes now and at the most."""
    return processes.rss_bytes(system.pid), processes.peak_rss_bytes(system.pid)
