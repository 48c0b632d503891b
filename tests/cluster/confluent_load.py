"""Applications on confluent-kafka at work in threads, with the client's default settings unless a test names others.

Each application counts what it was told: records that were acknowledged, transactions that were committed, records that
were read. Each keeps every error that reached it, with the place where it came out.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

PAUSE_S = 0.01
POLL_S = 0.2
TRANSACTION_RECORDS = 10
COMMIT_EVERY = 100
END_WITHIN_S = 120.0


class Application(threading.Thread):
    """A loop that works until it is told to stop, and then finishes what it has begun."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.errors: list[str] = []
        self.stopping = threading.Event()

    def surfaced(self, where: str, error: object) -> None:
        self.errors.append(f"{self.name}: {where}: {error}")

    def run(self) -> None:
        try:
            self.work()
        except Exception as failure:
            self.surfaced("ended", repr(failure))

    def work(self) -> None:
        raise NotImplementedError


class Writer(Application):
    """Writes numbered records with acks=all, one every few milliseconds."""

    def __init__(self, name: str, bootstrap: str, topic: str, **settings: Any) -> None:
        super().__init__(name)
        self.topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})
        self.pause_s = PAUSE_S
        self.sent = 0
        self.acknowledged: list[str] = []
        self.longest_wait_s = 0.0
        """From `produce` to the acknowledgement, of the record that waited longest."""

    def key(self, number: int) -> str:
        return str(number % 30)

    def value(self, number: int) -> str:
        return f"{self.name}-{number:06d}"

    def _produce(self, number: int) -> None:
        began_s = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began_s)
            if error is not None:
                self.surfaced("delivery", error)
            else:
                self.acknowledged.append((message.value() or b"").decode())

        self._producer.produce(self.topic, key=self.key(number), value=self.value(number), on_delivery=delivered)
        self.sent += 1

    def work(self) -> None:
        while not self.stopping.is_set():
            self._produce(self.sent)
            self._producer.poll(self.pause_s)
        if left := self._producer.flush(END_WITHIN_S):
            self.surfaced("flush", f"{left} records are left")


class TransactionalWriter(Writer):
    """Writes numbered records in transactions; `acknowledged` are those of committed transactions."""

    def __init__(self, name: str, bootstrap: str, topic: str, **settings: Any) -> None:
        super().__init__(name, bootstrap, topic, **{"transactional.id": name, **settings})
        self.transactions = 0
        self.committed: list[str] = []

    def work(self) -> None:
        self._producer.init_transactions(END_WITHIN_S)
        while not self.stopping.is_set():
            began_s = time.monotonic()
            self.acknowledged = []
            try:
                self._producer.begin_transaction()
                for _ in range(TRANSACTION_RECORDS):
                    self._produce(self.sent)
                    self._producer.poll(self.pause_s)
                self._producer.commit_transaction(END_WITHIN_S)
            except KafkaException as failure:
                error = failure.args[0]
                self.surfaced("transaction", f"{error} (abort: {error.txn_requires_abort()}, fatal: {error.fatal()})")
                self._producer.abort_transaction(END_WITHIN_S)
            else:
                self.committed += self.acknowledged
                self.transactions += 1
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began_s)
        self.acknowledged = self.committed


class Reader(Application):
    """A member of a group: reads, and commits its position every few records."""

    def __init__(
        self, name: str, bootstrap: str, topics: Sequence[str], group: str, protocol: str, **settings: Any
    ) -> None:
        super().__init__(name)
        self._topics = list(topics)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.values: list[str] = []
        self.commits = 0
        self.revocations = 0

    def _revoked(self, consumer: Consumer, partitions: Sequence[Any]) -> None:
        if not self.stopping.is_set():
            self.revocations += 1

    def work(self) -> None:
        self._consumer.subscribe(self._topics, on_revoke=self._revoked)
        uncommitted = 0
        while not self.stopping.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                self.surfaced("poll", error)
                continue
            self.values.append((message.value() or b"").decode())
            uncommitted += 1
            if uncommitted >= COMMIT_EVERY:
                uncommitted = 0
                self._commit()
        self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            for position in self._consumer.commit(asynchronous=False) or ():
                if position.error is not None:
                    self.surfaced("commit", position.error)
            self.commits += 1
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._NO_OFFSET:
                self.surfaced("commit", failure.args[0])


@contextmanager
def at_work(applications: Sequence[Application]) -> Iterator[None]:
    """The applications work during the block."""
    for each in applications:
        each.start()
    try:
        yield
    finally:
        stop(applications)


def stop(applications: Sequence[Application]) -> None:
    for each in applications:
        each.stopping.set()
    for each in applications:
        each.join(END_WITHIN_S)
        if each.is_alive():
            each.surfaced("stop", f"still works after {END_WITHIN_S} s")


def lost(written: Sequence[str], read: Sequence[str]) -> list[str]:
    return sorted(set(written) - set(read))


def doubled(read: Sequence[str]) -> list[str]:
    return sorted(value for value, count in Counter(read).items() if count > 1)
