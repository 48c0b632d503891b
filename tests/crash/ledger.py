"""Clients that write down every acknowledgement, until the broker under them is killed.

Owns one life of the load: producers of two libraries, transactions, a compacted table, topics that come and go, a
group's positions. What a client was told goes into the `Ledger`; what it was not told, or told late, is in doubt.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS, TABLE, PAYMENTS, PLAIN = "orders", "table", "payments", "plain"
GROUP = "billing"
PARTITIONS = {ORDERS: 2, TABLE: 1, PAYMENTS: 2, PLAIN: 1}
KEYS = 40
NO_POSITION = -1

SMALL = {"segment.bytes": "16384", "index.interval.bytes": "400", "file.delete.delay.ms": "300"}
SETTINGS: dict[str, dict[str, str]] = {
    ORDERS: SMALL,
    TABLE: {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    PAYMENTS: SMALL,
    PLAIN: {**SMALL, "compression.type": "lz4"},
}


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"


@dataclass
class Ledger:
    acked: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """By topic and partition, then offset: values that were acknowledged, outside of transactions."""
    sent: set[bytes] = field(default_factory=set)
    last_of_key: dict[bytes, int] = field(default_factory=dict)
    """The highest acknowledged offset of each key of the table."""
    transactions: dict[str, Outcome] = field(default_factory=dict)
    written: dict[str, list[bytes]] = field(default_factory=dict)
    """The values of each transaction."""
    topics: dict[str, bool] = field(default_factory=dict)
    """Topics whose creation (True) or deletion (False) was acknowledged; those in doubt are absent."""
    told_s: dict[str, float] = field(default_factory=dict)
    """When that was, by the monotonic clock."""
    positions: set[int] = field(default_factory=lambda: {NO_POSITION})
    """What the group's position may be: the last acknowledged one, and those in doubt since."""

    @property
    def outcomes(self) -> tuple[int, int, int]:
        """How many records, transactions and topics have a known outcome."""
        decided = [outcome for outcome in self.transactions.values() if outcome is not Outcome.IN_DOUBT]
        return sum(map(len, self.acked.values())), len(decided), len(self.topics)


class Load:
    """Runs from `start` until `end`, which is called when the broker is dead."""

    def __init__(self, bootstrap: str, ledger: Ledger, life: int) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._life = life
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self) -> None:
        for run in (self._send_orders, self._send_table, self._send_plain, self._transact, self._administer):
            thread = threading.Thread(target=self._guarded, args=(run,), name=run.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} does not end"
        if self._failures:
            raise self._failures[0]

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as failure:
            self._failures.append(failure)

    def _config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "reconnect.backoff.ms": 20, "log_level": 0, **more}

    def _new(self, who: str, number: int, size: int = 60) -> bytes:
        value = f"{who}-{self._life}-{number}".encode().ljust(size, b".")
        self._ledger.sent.add(value)
        return value

    def _send(self, producer: Producer, make: Callable[[int], dict[str, Any]], done: Callable[..., None]) -> None:
        number = 0
        while not self._stopping.is_set():
            if len(producer) >= 200:
                producer.poll(0.02)
                continue
            producer.produce(**make(number), on_delivery=done)
            producer.poll(0)
            number += 1
            if number % 20 == 0:
                time.sleep(0.002)
        producer.purge()
        producer.flush(10)

    def _send_orders(self) -> None:
        producer = Producer(self._config(**{"enable.idempotence": True, "linger.ms": 1}))

        def done(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._ledger.acked[ORDERS, message.partition() or 0][message.offset() or 0] = message.value() or b""

        self._send(
            producer,
            lambda n: {"topic": ORDERS, "partition": n % 2, "value": self._new("order", n, 60 + n % 200)},
            done,
        )

    def _send_table(self) -> None:
        producer = Producer(self._config(**{"enable.idempotence": True, "linger.ms": 1}))

        def done(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset, key = message.offset() or 0, message.key() or b""
                self._ledger.acked[TABLE, 0][offset] = message.value() or b""
                self._ledger.last_of_key[key] = max(offset, self._ledger.last_of_key.get(key, -1))

        self._send(
            producer,
            lambda n: {"topic": TABLE, "key": f"key-{n * 7 % KEYS}", "value": self._new("table", n, 80)},
            done,
        )

    def _send_plain(self) -> None:
        """kafka-python, without idempotence, into a topic that compresses anew."""
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", retries=0, linger_ms=1, max_block_ms=2000
        )
        number = 0
        while not self._stopping.is_set():
            sent = []
            for _ in range(10):
                value = self._new("plain", number, 100)
                sent.append((value, producer.send(PLAIN, value, partition=0)))
                number += 1
            for value, future in sent:
                with contextlib.suppress(kafka.errors.KafkaError):
                    self._ledger.acked[PLAIN, 0][future.get(2).offset] = value
        with contextlib.suppress(kafka.errors.KafkaError):
            producer.close(1)

    def _transact(self) -> None:
        ledger = self._ledger
        producer = Producer(self._config(**{"transactional.id": "payer", "transaction.timeout.ms": 20_000}))
        number = 0
        name = ""
        try:
            producer.init_transactions(20)
            while not self._stopping.is_set():
                name = f"{self._life}-{number}"
                ledger.transactions[name] = Outcome.IN_DOUBT
                ledger.written[name] = [self._new("payment", 3 * number + each) for each in range(3)]
                producer.begin_transaction()
                for each, value in enumerate(ledger.written[name]):
                    producer.produce(PAYMENTS, value, partition=each % 2)
                if number % 3 == 2:
                    producer.flush(5)
                    producer.abort_transaction(5)
                    ledger.transactions[name] = Outcome.ABORTED
                else:
                    producer.commit_transaction(5)
                    ledger.transactions[name] = Outcome.COMMITTED
                number += 1
        except KafkaException:
            producer.purge()

    def _administer(self) -> None:
        """Topics come and go; a group's position moves."""
        ledger = self._ledger
        admin = AdminClient(self._config())
        number = 0
        try:
            while not self._stopping.is_set():
                name, position = f"churn-{self._life}-{number}", 1000 * self._life + number
                admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=5)[name].result(6)
                ledger.topics[name] = True
                ledger.told_s[name] = time.monotonic()
                ledger.positions.add(position)
                moved = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(ORDERS, 0, position)])
                answer = admin.alter_consumer_group_offsets([moved], request_timeout=5)[GROUP].result(6)
                if answer.topic_partitions[0].error is None:
                    ledger.positions = {position}
                if number % 2:
                    del ledger.topics[name]
                    admin.delete_topics([name], operation_timeout=5)[name].result(6)
                    ledger.topics[name] = False
                    ledger.told_s[name] = time.monotonic()
                number += 1
        except (KafkaException, TimeoutError):
            pass  # the broker was killed meanwhile


def create_topics(bootstrap: str, ledger: Ledger) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, PARTITIONS[name], 1, config=SETTINGS[name]) for name in PARTITIONS]
    for name, created in admin.create_topics(new, operation_timeout=20).items():
        created.result(120)
        ledger.topics[name] = True
        ledger.told_s[name] = time.monotonic()
