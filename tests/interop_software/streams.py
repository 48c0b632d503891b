"""Kafka Streams with exactly_once_v2, killed in the middle of its work: every count comes once, in order."""

from pathlib import Path

from confluent_kafka import Producer
from tests.interop_software.software import compile_java, java_command
from tests.interop_software.stage import Stage, Started, committed_values, make_topic, until

SOURCE = Path(__file__).parent / "java/RunningCounts.java"
KEYS, RECORDS, PARTITIONS, KILLS = 10, 6000, 4, 2


def exactly_once(stage: Stage) -> None:
    compile_java(SOURCE, stage.path)
    broker = stage.broker()
    for topic in ("numbers", "counts"):
        make_topic(broker.bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def feed(count: int) -> None:
        for number in range(count):
            producer.produce("numbers", str(number), key=f"key-{number % KEYS}")
        assert producer.flush(60) == 0

    def counted() -> list[tuple[bytes | None, bytes | None]]:
        return committed_values(broker.bootstrap, "counts", PARTITIONS)

    command = java_command("RunningCounts", broker.bootstrap, f"{stage.path}/state", classpath=str(stage.path))

    def begin(number: int) -> Started:
        return stage.start(f"streams-{number}", command)

    share = RECORDS // (KILLS + 1)
    for kill in range(KILLS):
        running = begin(kill)
        before = len(counted())
        feed(share // 2)
        until(lambda before=before: len(counted()) > before + 20, 120, what="the first counts")  # type: ignore[misc]
        # More than it can have done by the time of the kill.
        feed(share - share // 2)
        running.kill()
    feed(share)
    last = begin(KILLS)
    until(lambda: len(counted()) >= RECORDS, 180, what="all counts")
    last.stop()
    by_key: dict[bytes | None, list[int]] = {}
    for key, value in counted():
        by_key.setdefault(key, []).append(int(value or b"0"))
    assert len(by_key) == KEYS
    for key, counts in by_key.items():
        assert counts == list(range(1, RECORDS // KEYS + 1)), f"{key!r}: {counts[:50]}"
