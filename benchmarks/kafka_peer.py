"""Apache Kafka as a peer: fetched from Maven Central, formatted, started and stopped on this machine.

Owns the jars under `benchmarks/.peers/` and the life of one KRaft broker (broker and controller in one process).
Promises: what is missing on the machine (Java, Maven, the network) is said in a `PeerUnavailable`, which tests turn
into a skip; a broker is stopped by the process id that was started here and by nothing else.

    jars = install_kafka()
    with KafkaBroker(jars, Path("/some/empty/directory")) as broker:
        broker.bootstrap            # "127.0.0.1:43127"
    jars.run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", "...")
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.maven import PEERS, FetchFailed, PeerUnavailable, fetch_jars

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

VERSIONS = ("4.3.0", "4.2.0", "4.1.0")
"""Tried in this order; CORDWOOD_BENCH_KAFKA=4.x.y in the environment asks for exactly one."""

SERVER_JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What kafka-server-start.sh passes, without its JMX port and GC log (which only cost)."""

DEFAULT_HEAP = "1g"
"""What kafka-server-start.sh gives a broker: -Xmx1G -Xms1G."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cordwood.benchmarks</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class PeerFailed(Exception):
    """The peer was started and did not do its work; the message holds the end of its output."""


@dataclass(frozen=True)
class KafkaJars:
    """One version of Kafka on disk."""

    version: str
    lib: Path
    java: str

    @property
    def classpath(self) -> str:
        return f"{self.lib}/*"

    def command(self, main_class: str, *arguments: str, jvm_flags: Sequence[str] = ()) -> list[str]:
        """The command line that runs one of Kafka's (or your) main classes; log lines of level INFO go to stderr."""
        return [self.java, *jvm_flags, "-cp", self.classpath, main_class, *arguments]

    def run_tool(
        self, main_class: str, *arguments: str, jvm_flags: Sequence[str] = ("-Xmx256m",), timeout_s: float = 120
    ) -> str:
        """Run a tool to its end and return its standard output."""
        done = subprocess.run(
            self.command(main_class, *arguments, jvm_flags=jvm_flags),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            tail = (done.stdout + done.stderr)[-2000:]
            raise PeerFailed(f"{main_class} ended with {done.returncode}:\n{tail}")
        return done.stdout


def find_java() -> str:
    """The Java to run Kafka with: $JAVA_HOME's, else the one on the path. Kafka 4 brokers need 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home and os.access(f"{home}/bin/java", os.X_OK) else shutil.which("java")
    if java is None:
        raise PeerUnavailable("no Java found: install a JRE, 17 or newer (Debian: openjdk-17-jre-headless)")
    return java


def install_kafka(version: str | None = None) -> KafkaJars:
    """The jars of Apache Kafka, fetched once into benchmarks/.peers/kafka-<version>/lib."""
    java = find_java()
    asked = version or os.environ.get("CORDWOOD_BENCH_KAFKA")
    wanted = (asked,) if asked else VERSIONS
    failure = ""
    for candidate in wanted:
        lib = PEERS / f"kafka-{candidate}" / "lib"
        try:
            fetch_jars(_POM.format(version=candidate), lib, "kafka_2.13-*.jar")
        except FetchFailed as error:
            failure = str(error)
            continue
        return KafkaJars(candidate, lib, java)
    raise PeerUnavailable(f"Apache Kafka {' or '.join(wanted)} could not be fetched with Maven:\n{failure}")


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def new_cluster_id() -> str:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return "A" + cluster_id[1:] if cluster_id.startswith("-") else cluster_id  # a tool would take it for an option


@dataclass
class KafkaBroker:
    """One KRaft broker in `directory`. Settings are Kafka's own and override the defaults chosen here.

    It may be stopped and started again on the same directory; the ports stay.
    """

    jars: KafkaJars
    directory: Path
    heap: str = DEFAULT_HEAP
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    cluster_id: str = field(default_factory=new_cluster_id)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerFailed("the Kafka broker is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_directory(self) -> Path:
        """Where the partitions' directories are."""
        return self.directory / "data"

    @property
    def output(self) -> Path:
        """What the broker wrote to stdout and stderr, of all its starts."""
        return self.directory / "kafka.out"

    def start(self, *, wait: bool = True, timeout_s: float = 60) -> None:
        """Start the process (formatting an empty directory first); with `wait`, return once it serves clients."""
        assert self._process is None, "already started"
        self.format()
        flags = [f"-Xmx{self.heap}", f"-Xms{self.heap}", *SERVER_JVM_FLAGS]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.jars.command("kafka.Kafka", str(self._properties), jvm_flags=flags),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal is ours to handle
            )
        if wait:
            self._wait_until_it_serves(timeout_s)

    def format(self) -> None:
        """Write the settings and, on an empty directory, the storage format that KRaft demands before a first start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {**self._default_settings(), **self.settings}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if (self.log_directory / "meta.properties").exists():
            return
        self.jars.run_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._properties))

    def stop(self, *, timeout_s: float = 60) -> None:
        """Ask for a controlled shutdown and wait for it; kill the process if it takes too long."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """kill -9: what was not on disk is only in the page cache."""
        self._end(signal.SIGKILL, 10)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _default_settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.log_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _wait_until_it_serves(self, timeout_s: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code = self._process.returncode
                self._process = None
                raise PeerFailed(f"the Kafka broker ended with {code}:\n{self.tail()}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.02)
        self.kill()
        raise PeerFailed(f"the Kafka broker did not serve within {timeout_s} s:\n{self.tail()}")

    def tail(self, size: int = 2000) -> str:
        """The end of the broker's output, for messages."""
        return self.output.read_text(errors="replace")[-size:] if self.output.exists() else ""

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
