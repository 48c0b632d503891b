"""The place where a story plays: a directory, brokers, and processes that are all gone when it is over."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Cordwood
from tests.cluster.local_cluster import LocalCluster
from tests.conftest import await_topic
from tests.deadline import eventually
from tests.interop.confluent_clients import read_to_end

T = TypeVar("T")

ASK_EVERY_S = 0.5
"""Asking is reading a whole topic, and the machine has other things to do."""


def until(ask: Callable[[], T], *, what: str) -> T:
    """The first true answer."""
    return eventually(ask, what=what, every_s=ASK_EVERY_S)


class Unavailable(Exception):
    """The machine lacks something that the story needs; the message says what to install."""


class Started:
    """A process of somebody else's software. Ended by its id, with all that it started."""

    def __init__(self, command: Sequence[str], output: Path, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.output_path = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, within_s: float = 30) -> None:
        """An orderly stop; kill -9 after a while."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()


class User(NamedTuple):
    """A user of a secure broker, and the file with which a Java client logs in."""

    security: Mapping[str, str]
    java: Path


class SecureBroker:
    """`cordwood serve --secure`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.bootstrap = broker.bootstrap
        self._directory = broker.data_dir / "secure"
        self.admin = _user(self._directory)
        self.cordwood = Cordwood("", {"CORDWOOD_CLIENT_CONFIG": str(self._directory / "librdkafka.properties")})

    def user(self, name: str, *rules: str) -> User:
        """A new user with the rules of `cordwood acl add`."""
        self.cordwood("user", "add", name)
        self.cordwood("acl", "add", name, *rules)
        return _user(self._directory / "users" / name)


def _user(directory: Path) -> User:
    lines = (directory / "librdkafka.properties").read_text().splitlines()
    settings = {name: value for name, _, value in (line.partition("=") for line in lines)}
    del settings["bootstrap.servers"]
    return User(settings, directory / "java.properties")


class Stage:
    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="cordwood-interop-", ignore_cleanup_errors=True)
        self.path = Path(self._directory.name)
        # PostgreSQL refuses to run as root, and another user has to get to its files.
        self.path.chmod(0o755)
        self._brokers: list[BrokerProcess] = []
        self._clusters = contextlib.ExitStack()
        self._started: list[Started] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._started):
            process.stop(within_s=5)
        for broker in self._brokers:
            broker.end()
        self._clusters.close()
        self._directory.cleanup()

    def broker(self, name: str = "broker", **settings: str) -> BrokerProcess:
        broker = BrokerProcess(
            self.path / name, settings={key.replace("_", "."): value for key, value in settings.items()}
        )
        self._brokers.append(broker)
        return broker.start()

    def secure_broker(self, name: str = "broker") -> "SecureBroker":
        broker = BrokerProcess(self.path / name, options=["--secure"])
        self._brokers.append(broker)
        return SecureBroker(broker.start())

    def cluster(self, nodes: int = 3) -> LocalCluster:
        return self.enter(LocalCluster(self.path / "cluster", "--metadata", "supervisor", nodes=nodes))

    def enter(self, entered: AbstractContextManager[T]) -> T:
        """For whatever has to end with the stage."""
        return self._clusters.enter_context(entered)

    def start(
        self, name: str, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Started:
        process = Started(command, self.path / f"{name}.out", cwd or self.path, env)
        self._started.append(process)
        return process

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 300,
    ) -> str:
        """Runs to the end; what it printed. AssertionError with the end of its output if it fails."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd or self.path,
            env={**os.environ, **(env or {})},
            check=False,
        )
        tail = (done.stdout + done.stderr)[-3000:]
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{tail}"
        return done.stdout


Security = Mapping[str, str]
"""The settings of a client on librdkafka by which it logs in; empty for a broker that asks nobody."""
NONE: Security = {}


def make_topic(
    bootstrap: str, name: str, partitions: int = 1, *, replicas: int = 1, security: Security = NONE, **config: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **security})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(120)
    await_topic(admin, name, partitions)


def committed_values(
    bootstrap: str, topic: str, partitions: int = 1, security: Security = NONE
) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of every record that a reader of committed records sees now; none if there is no such topic."""
    if topic not in AdminClient({"bootstrap.servers": bootstrap, **security}).list_topics(timeout=20).topics:
        return []
    config = {"isolation.level": "read_committed", **security}
    messages = read_to_end(bootstrap, topic, range(partitions), config=config)
    return [(message.key(), message.value()) for message in messages]


def committed_ends(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the ends that a reader of committed records is told. While transactions come all the time, it may
    never find itself at an end."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": "read_committed"})
    ends = [
        reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=60) for partition in range(partitions)
    ]
    reader.close()
    return sum(end for _, end in filter(None, ends))


def check_lines(output: str, count: int) -> None:
    """For programs that print "ok NAME" or "failed NAME: reason" for each thing that they try."""
    lines = [line for line in output.splitlines() if line.startswith(("ok ", "failed "))]
    failures = [line for line in lines if line.startswith("failed ")]
    assert not failures, "\n".join(failures)
    assert len(lines) == count, f"{len(lines)} of {count} were tried:\n{output[-2000:]}"
