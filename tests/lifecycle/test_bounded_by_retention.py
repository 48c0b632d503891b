"""What bounds a log, on a real broker: retention, compaction, DeleteRecords, deletion. Survivors keep their offsets."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import eventually


@pytest.fixture(scope="module")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does its duties all the time."""
    settings = {
        "log.retention.check.interval.ms": "100",
        "log.cleaner.backoff.ms": "100",
        "log.flush.offset.checkpoint.interval.ms": "100",
        "log.segment.delete.delay.ms": "100",
    }
    with BrokerProcess(tmp_path_factory.mktemp("busy") / "data", settings=settings, keep_port=True) as process:
        yield process


def create(broker: BrokerProcess, name: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=dotted)])[name].result(timeout=60)
    return admin


def produce(broker: BrokerProcess, topic: str, rows: list[tuple[str, str | None]]) -> None:
    """One batch for each row, so that segments roll between any two."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    failures: list[object] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failures.append(error)

    for key, value in rows:
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert failures == []


class Row(NamedTuple):
    offset: int
    key: bytes
    value: bytes


def read_all(broker: BrokerProcess, topic: str) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.assign([TopicPartition(topic, 0, low)])
    rows: list[Row] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "neither a record nor the end of the partition"
        if message.error():
            break
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        rows.append(Row(offset, key, value))
    consumer.close()
    return rows


def log_bytes(broker: BrokerProcess, topic: str) -> int:
    """Of the files that are still there when they are looked at: the broker removes some meanwhile."""
    size = 0
    for path in (broker.data_dir / f"{topic}-0").glob("*.log"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


@pytest.mark.stories
def test_compaction_keeps_the_latest_of_each_key_at_its_offset_also_over_a_kill(busy_broker: BrokerProcess) -> None:
    topic = "compacted"
    create(busy_broker, topic, cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01")
    rows: list[tuple[str, str | None]] = [(f"key{index % 7}", f"value{index}") for index in range(400)]
    produce(busy_broker, topic, rows)

    def compacted() -> list[Row] | None:
        found = read_all(busy_broker, topic)
        return found if len(found) < 60 else None

    survivors = eventually(compacted, what="compaction")
    assert survivors is not None
    for row in survivors:
        key, value = rows[row.offset]
        assert (row.key, row.value) == (key.encode(), (value or "").encode())
    assert {row.key.decode(): row.value.decode() for row in survivors} == dict(rows)
    offsets = [row.offset for row in survivors]
    assert offsets == sorted(offsets)
    assert offsets[-1] == len(rows) - 1

    busy_broker.kill()
    busy_broker.start()
    after = read_all(busy_broker, topic)
    assert {row.key: row for row in after} == {row.key: row for row in survivors}
    assert set(after) <= set(survivors)


def test_retention_by_size_removes_the_oldest_segments_and_frees_their_disk(busy_broker: BrokerProcess) -> None:
    topic = "by-size"
    create(busy_broker, topic, segment_bytes="2000", retention_bytes="4000", file_delete_delay_ms="0")
    produce(busy_broker, topic, [("k", "x" * 200) for _ in range(100)])
    eventually(lambda: log_bytes(busy_broker, topic) <= 6000, what="retention")
    rows = read_all(busy_broker, topic)
    assert rows[0].offset > 0
    assert rows[-1].offset == 99
    directory = busy_broker.data_dir / f"{topic}-0"
    eventually(lambda: not list(directory.glob("*.deleted")), what="removal of deleted files")


def test_retention_by_time_removes_what_is_too_old(busy_broker: BrokerProcess) -> None:
    topic = "by-time"
    create(busy_broker, topic, retention_ms="300", segment_ms="100")
    produce(busy_broker, topic, [("k", "v") for _ in range(5)])
    eventually(lambda: read_all(busy_broker, topic), to_be=[], what="retention")
    produce(busy_broker, topic, [("k", "v")])


def test_delete_records_moves_the_start_and_keeps_the_offsets(busy_broker: BrokerProcess) -> None:
    topic = "cut-off"
    admin = create(busy_broker, topic)
    produce(busy_broker, topic, [("k", str(index)) for index in range(10)])
    result = admin.delete_records([TopicPartition(topic, 0, 4)])
    assert next(iter(result.values())).result(timeout=60).low_watermark == 4
    assert [row.offset for row in read_all(busy_broker, topic)] == [4, 5, 6, 7, 8, 9]
    busy_broker.kill()
    busy_broker.start()
    assert [row.offset for row in read_all(busy_broker, topic)] == [4, 5, 6, 7, 8, 9]


def test_deleting_a_topic_frees_its_disk_and_a_new_one_starts_at_zero(busy_broker: BrokerProcess) -> None:
    topic = "short-lived"
    admin = create(busy_broker, topic)
    produce(busy_broker, topic, [("k", "old") for _ in range(10)])
    directory = busy_broker.data_dir / f"{topic}-0"
    assert directory.exists()
    admin.delete_topics([topic])[topic].result(timeout=60)
    eventually(lambda: not list(busy_broker.data_dir.glob(f"{topic}-0*")), what="freed disk")
    create(busy_broker, topic)
    produce(busy_broker, topic, [("k", "new")])
    assert [(row.offset, row.value) for row in read_all(busy_broker, topic)] == [(0, b"new")]
