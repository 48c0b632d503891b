"""Kafka's Java client lives through the restart of every broker: no error reaches the application."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.rolling import rolling_restart
from tests.interop_software.software import compile_java, java_command
from tests.interop_software.stage import Stage, committed_ends, make_topic, until

SOURCE = Path(__file__).parent / "java/RollingClients.java"
TOPICS = ("of-plain", "of-idempotent", "of-transactional")
PARTITIONS = 4
READ_THE_REST_WITHIN_S = 120


class JavaClients:
    """Producers and members of groups, with their default settings."""

    def __init__(self, stage: Stage, bootstrap: str, replicas: int) -> None:
        compile_java(SOURCE, stage.path)
        for topic in TOPICS:
            make_topic(bootstrap, topic, PARTITIONS, replicas=replicas, min_insync_replicas=str(min(replicas, 2)))
        self._bootstrap = bootstrap
        self._stop = stage.path / "stop"
        command = java_command(
            "RollingClients",
            *(bootstrap, str(self._stop), str(READ_THE_REST_WITHIN_S), *TOPICS),
            classpath=str(stage.path),
        )
        self._clients = stage.start("clients", command)

    @contextmanager
    def working(self) -> Iterator[None]:
        """The clients work during the block. Behind it each group has read each record once, and no error came up."""
        until(lambda: "working" in self._clients.output(), what="a record for each group")
        yield
        self._stop.touch()
        until(lambda: not self._clients.alive, what="the end of the clients")
        said = self._clients.output()
        assert surfaced(said) == []
        sent = [int(count) for count in re.findall(r"^sent \S+ (\d+)$", said, re.MULTILINE)]
        read = re.findall(r"^read \S+ (\d+) (\d+)$", said, re.MULTILINE)
        assert len(sent) == len(TOPICS), said[-4000:]
        print(f"sent {sent}, read by each group (records, doubled) {read}")
        assert read == [(str(sum(sent)), "0")] * 2

    def check(self) -> None:
        assert surfaced(self._clients.output()) == []

    def interrupt(self) -> None:
        """The clients go on while no broker is there."""

    def go_on(self) -> None:
        """Waits until something was written in a transaction."""
        before = self._committed()
        until(lambda: self._committed() > before, what="a further transaction")
        self.check()

    def _committed(self) -> int:
        return committed_ends(self._bootstrap, TOPICS[-1], PARTITIONS)


def java_clients(stage: Stage) -> None:
    """All brokers are restarted by SIGTERM, then by kill -9."""
    cluster = stage.cluster()
    clients = JavaClients(stage, cluster.bootstrap, 3)
    with clients.working():
        print(*rolling_restart(cluster), sep="\n")
        clients.check()
        print(*rolling_restart(cluster, kill=True), sep="\n")


def surfaced(said: str) -> list[str]:
    """The errors that reached the application."""
    return re.findall(r"^error .*$", said, re.MULTILINE)
