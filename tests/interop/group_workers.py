"""Members of a group on confluent-kafka that the test polls, and that know their partitions."""

from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.confluent_clients import produce_all

PARTITIONS = 4

CONSUMER = {"group.protocol": "consumer"}

SETTINGS = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "6000"}
"""Settings of a broker whose members of the consumer protocol should react quickly."""

CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
"""Settings of the classic protocol; with the consumer protocol the broker tells members these times."""


class Worker:
    """A consumer in a group, polled by the test, that knows its partitions and its records."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        self.owned: set[int] = set()
        self.values: list[bytes | None] = []
        self.assignments = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(CLASSIC if settings.get("group.protocol") != "consumer" else {}),
                **settings,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in partitions}

    def poll(self) -> "Worker":
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())
        return self

    def close(self) -> None:
        self.consumer.close()


class AnyWorker(Protocol):
    """A worker on any client."""

    @property
    def owned(self) -> set[int]: ...

    @property
    def values(self) -> Sequence[bytes | None]: ...

    def poll(self) -> object: ...

    def close(self) -> None: ...


def shared(workers: Sequence[AnyWorker]) -> bool:
    """Polls every worker once. Returns True if all partitions are owned, each by one worker, and no worker is idle."""
    for worker in workers:
        worker.poll()
    return is_shared(workers)


def is_shared(workers: Sequence[AnyWorker]) -> bool:
    """Like `shared`, without polling."""
    owned = [partition for worker in workers for partition in worker.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(worker.owned for worker in workers)


def fill(bootstrap: str, topic: str, count: int, start: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    records = [{"topic": topic, "value": f"v{n}", "partition": n % PARTITIONS} for n in range(start, start + count)]
    produce_all(producer, records)
