"""Kafka Streams with exactly_once_v2: every count comes once, in order, while Streams or the brokers are killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from tests.cluster.confluent_load import Writer, at_work
from tests.cluster.rolling import rolling_restart as restart_all
from tests.interop_software.software import compile_java, java_command
from tests.interop_software.stage import (
    NONE,
    Security,
    Stage,
    Started,
    committed_ends,
    committed_values,
    make_topic,
    until,
)

SOURCE = Path(__file__).parent / "java/RunningCounts.java"
APPLICATION = "running-counts"
KEYS, RECORDS, PARTITIONS, KILLS = 10, 6000, 4, 2
KILLED_OFTEN = (
    "replication.factor=1",
    "commit.interval.ms=100",
    "consumer.session.timeout.ms=6000",
    "consumer.heartbeat.interval.ms=1000",
    # Small steps, so that a kill finds the work half done.
    "consumer.max.poll.records=20",
)


def exactly_once(stage: Stage) -> None:
    _killed_often(stage, stage.broker().bootstrap)


def exactly_once_with_its_rules_alone(stage: Stage) -> None:
    """Over TLS, as a user that has what `cordwood acl add --streams` gives, and no more."""
    broker = stage.secure_broker()
    user = broker.user("counter", "--streams", APPLICATION, "--reads", "numbers", "--writes", "counts")
    _killed_often(stage, broker.bootstrap, broker.admin.security, f"@{user.java}")


def _killed_often(stage: Stage, bootstrap: str, security: Security = NONE, *settings: str) -> None:
    compile_java(SOURCE, stage.path)
    for topic in ("numbers", "counts"):
        make_topic(bootstrap, topic, PARTITIONS, security=security)
    producer = Producer({"bootstrap.servers": bootstrap, **security})

    def feed(count: int) -> None:
        for number in range(count):
            producer.produce("numbers", str(number), key=f"key-{number % KEYS}")
        assert producer.flush(60) == 0

    def counted() -> list[tuple[bytes | None, bytes | None]]:
        return committed_values(bootstrap, "counts", PARTITIONS, security)

    command = java_command(
        "RunningCounts", bootstrap, f"{stage.path}/state", *settings, *KILLED_OFTEN, classpath=str(stage.path)
    )

    def begin(number: int) -> Started:
        return stage.start(f"streams-{number}", command)

    share = RECORDS // (KILLS + 1)
    for kill in range(KILLS):
        running = begin(kill)
        before = len(counted())
        feed(share // 2)
        until(lambda before=before: len(counted()) > before + 20, what="the first counts")  # type: ignore[misc]
        # More than it can have done by the time of the kill.
        feed(share - share // 2)
        running.kill()
    feed(share)
    last = begin(KILLS)
    until(lambda: len(counted()) >= RECORDS, what="all counts")
    last.stop()
    check_counts(counted(), RECORDS)


def check_counts(counted: list[tuple[bytes | None, bytes | None]], records: int) -> None:
    by_key: dict[bytes | None, list[int]] = {}
    for key, value in counted:
        by_key.setdefault(key, []).append(int(value or b"0"))
    assert len(by_key) == KEYS
    for key, counts in by_key.items():
        assert counts == list(range(1, records // KEYS + 1)), f"{key!r}: {counts[:50]}"


class Counting:
    """Streams, with its default settings, on numbers that come all the time."""

    def __init__(self, stage: Stage, bootstrap: str, replicas: int) -> None:
        compile_java(SOURCE, stage.path)
        for topic in ("numbers", "counts"):
            make_topic(bootstrap, topic, PARTITIONS, replicas=replicas, min_insync_replicas=str(min(replicas, 2)))
        self._stage = stage
        self._bootstrap = bootstrap
        self._may_be_fenced = replicas == 1
        """While the only replicas are away, a transaction outlives its 10 s: Streams says ERROR and begins it again."""
        self._command = java_command(
            "RunningCounts",
            *(bootstrap, f"{stage.path}/state", f"replication.factor={replicas}"),
            classpath=str(stage.path),
        )
        self.streams = stage.start("streams", self._command)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Streams works during the block, and finishes behind it: each count once, in order, and no error."""
        writer = Feed(self._bootstrap)
        with at_work([writer]):
            until(self._ends, what="the first counts")
            yield
        assert writer.errors == []
        until(lambda: len(counted(self._bootstrap)) >= writer.sent, what="all counts")
        assert self.streams.alive, self.streams.output()[-3000:]
        said = self.streams.output()
        assert self._may_be_fenced or " ERROR " not in said, said[said.index(" ERROR ") :][:3000]
        assert "Shutdown" not in said, said[-3000:]
        self.streams.stop()
        check_counts(counted(self._bootstrap), writer.sent)
        print(f"{writer.sent} records counted, slowest acknowledgement {writer.longest_wait_s:.1f} s")

    def interrupt(self) -> None:
        """kill -9 in the midst of a transaction."""
        self.streams.kill()

    def go_on(self) -> None:
        """Streams starts again, if it does not run, on the state that it has on its disk, and counts something."""
        before = self._ends()
        if not self.streams.alive:
            self.streams = self._stage.start("streams", self._command)
        until(lambda: self._ends() > before, what="further counts")

    def _ends(self) -> int:
        return committed_ends(self._bootstrap, "counts", PARTITIONS)


def rolling_restart(stage: Stage) -> None:
    """All brokers are restarted by SIGTERM, then by kill -9."""
    cluster = stage.cluster()
    with Counting(stage, cluster.bootstrap, 3).working():
        print(*restart_all(cluster), sep="\n")
        print(*restart_all(cluster, kill=True), sep="\n")


def counted(bootstrap: str) -> list[tuple[bytes | None, bytes | None]]:
    return committed_values(bootstrap, "counts", PARTITIONS)


class Feed(Writer):
    """Numbers for the keys in turn, as many for each."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("feed", bootstrap, "numbers", **{"enable.idempotence": True})

    def key(self, number: int) -> str:
        return f"key-{number % KEYS}"

    def work(self) -> None:
        super().work()
        while self.sent % KEYS:
            self._produce(self.sent)
        self._producer.flush()
