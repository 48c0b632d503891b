"""A single broker with everything that an import has to take along: filled by real clients, and compared later."""

import time
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.records.build import NewRecord, build_batch
from cordwood.wire.apis import ApiKey

ORDERS, LATEST, PAYMENTS, COUNTED = "orders", "latest", "payments", "counted"
PARTITIONS = 3
GROUP = "billing"
POSITIONS = {0: 4, 1: 7, 2: 1}
RETENTION_MS = "31536000000"
KEYS = ("ada", "bob", "eve")


class SingleNode:
    """The broker, and what its clients know of it. Its port stays the same over the import."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.broker = BrokerProcess(data, keep_port=True, options=options)
        self.orders: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.payments: list[bytes] = []
        """The records of committed transactions."""
        self.latest: dict[bytes, bytes] = {}
        self.cluster_id = ""
        self._producer_id = -1
        self._counted = 0
        self.open_transaction: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.end()

    def fill(self) -> None:
        """Topics with settings, positions, an idempotent producer within its sequence, an open transaction."""
        self.broker.start()
        bootstrap = self.broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(ORDERS, PARTITIONS, 1, config={"retention.ms": RETENTION_MS}),
            NewTopic(LATEST, 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic(PAYMENTS, 1, 1),
            NewTopic(COUNTED, 1, 1),
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self.cluster_id = str(admin.describe_cluster().result(60).cluster_id)
        entry = ConfigEntry("log.retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for changed in admin.incremental_alter_configs([resource]).values():
            changed.result(60)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for number in range(60):
            value = b"order %d" % number
            producer.produce(ORDERS, value, partition=number % PARTITIONS)
            self.orders[number % PARTITIONS].append(value)
        for number in range(30):
            key, value = KEYS[number % 3].encode(), b"state %d" % number
            producer.produce(LATEST, value, key)
            self.latest[key] = value
        assert producer.flush(60) == 0
        self.commit(POSITIONS)
        self.count(3)
        self._transactions()

    def _transactions(self) -> None:
        for name, commits in (("committed", True), ("aborted", False)):
            producer = self._transactional(name)
            producer.begin_transaction()
            producer.produce(PAYMENTS, name.encode())
            producer.flush(60)
            if commits:
                producer.commit_transaction(60)
                self.payments.append(name.encode())
            else:
                producer.abort_transaction(60)
        self.open_transaction = producer = self._transactional("open")
        producer.begin_transaction()
        producer.produce(PAYMENTS, b"open")
        assert producer.flush(60) == 0

    def _transactional(self, name: str) -> Producer:
        settings = {"bootstrap.servers": self.broker.bootstrap, "transactional.id": name}
        producer = Producer({**settings, "transaction.timeout.ms": 600_000})
        producer.init_transactions(60)
        return producer

    def end_transaction(self) -> None:
        """Commits, after the import, the transaction that was begun before it."""
        assert self.open_transaction is not None
        self.open_transaction.produce(PAYMENTS, b"and closed")
        self.open_transaction.commit_transaction(60)
        self.payments += [b"open", b"and closed"]

    def commit(self, positions: dict[int, int]) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        )
        consumer.commit(
            offsets=[TopicPartition(ORDERS, number, offset) for number, offset in positions.items()], asynchronous=False
        )
        consumer.close()

    def count(self, batches: int, *, again: bool = False) -> list[int]:
        """Batches of one idempotent producer that numbers them itself; `again`: the last batch once more. Returns the
        offsets."""
        client = RawClient(self.broker.bootstrap)
        try:
            if self._producer_id < 0:
                begun = client.send(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000)
                assert not begun.error_code
                self._producer_id = begun.producer_id
            offsets = []
            for _ in range(batches):
                self._counted -= again
                offsets.append(self._send(client, self._counted))
                self._counted += 1
            return offsets
        finally:
            client.close()

    def _send(self, client: RawClient, sequence: int) -> int:
        record: NewRecord = (1_700_000_000_000, None, b"%d" % sequence, ())
        batch = build_batch([record], producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)

        def sent() -> Any:
            answer = client.send(
                ApiKey.PRODUCE,
                9,
                transactional_id=None,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[{"name": COUNTED, "partition_data": [{"index": 0, "records": batch}]}],
            )
            done = answer.responses[0].partition_responses[0]
            return None if done.error_code == 6 else done  # NOT_LEADER_OR_FOLLOWER: the fence is not lifted yet

        done = eventually(sent, what="the answer of the leader")
        assert not done.error_code, done
        return int(done.base_offset)

    # What is there

    def check(self, bootstrap: str, *, first_is_gone: bool = False) -> None:
        """Everything is as the clients know it. A broker that is gone cannot tell its settings."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        assert admin.describe_cluster().result(60).cluster_id == self.cluster_id
        assert _setting(admin, ConfigResource(ResourceType.TOPIC, ORDERS), "retention.ms") == RETENTION_MS
        assert _setting(admin, ConfigResource(ResourceType.TOPIC, LATEST), "cleanup.policy") == "compact"
        if not first_is_gone:
            assert _setting(admin, ConfigResource(ResourceType.BROKER, "1"), "log.retention.ms") == "86400000"
        for number, values in self.orders.items():
            assert [value for _, value in read(bootstrap, ORDERS, number)] == values
        assert {key: value for key, value in read(bootstrap, LATEST, 0) if key} == self.latest
        assert [value for _, value in read(bootstrap, COUNTED, 0)] == [
            b"%d" % number for number in range(self._counted)
        ]
        # An open transaction hides what follows it, and nothing before it.
        assert [value for _, value in read(bootstrap, PAYMENTS, 0)] == self.payments
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(60)
        assert {each.partition: each.offset for each in found.topic_partitions} == POSITIONS


def _setting(admin: AdminClient, resource: ConfigResource, name: str) -> str | None:
    value: str | None = admin.describe_configs([resource])[resource].result(60)[name].value
    return value


def read(bootstrap: str, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of a partition, read committed, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(100, 1.0):
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.name() == "_PARTITION_EOF":
                    return found
        raise AssertionError(f"{topic}-{partition} did not come to its end")
    finally:
        consumer.close()
