"""Files that a crash or a bad disk left wrong.

A torn tail is cut and said; damage below the recovery point is kept, said, and stepped over; indexes are made again.
"""

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.crash.conftest import StartBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_some, read_to_end, reader

TOPIC = "orders"
RECORDS = 20
STAMP_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention must not find it old."""


def create(broker: BrokerProcess, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(TOPIC, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new], operation_timeout=20)[TOPIC].result(60)


def fill(
    broker: BrokerProcess,
    partition: int = 0,
    *,
    records: int = RECORDS,
    size: int = 20,
    start: int = 0,
    idempotent: bool = False,
) -> None:
    """Records one by one, each a batch of its own, a second apart by their timestamps."""
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": idempotent})
    for number in range(start, start + records):
        value = f"v{number}".ljust(size, ".")
        record = {"topic": TOPIC, "partition": partition, "value": value, "timestamp": STAMP_MS + 1000 * number}
        produce_all(client, [record])


def values(broker: BrokerProcess, partition: int = 0) -> list[str]:
    read = read_to_end(broker.bootstrap, TOPIC, [partition])
    return [(message.value() or b"").rstrip(b".").decode() for message in read]


def expected(records: int = RECORDS) -> list[str]:
    return [f"v{number}" for number in range(records)]


def segments(broker: BrokerProcess, partition: int = 0) -> list[Path]:
    return sorted((broker.data_dir / f"{TOPIC}-{partition}").glob("*.log"))


def batches(log: bytes) -> list[tuple[int, int]]:
    """(position, size) of the batches in a segment file."""
    found, position = [], 0
    while position + 12 <= len(log):
        (length,) = struct.unpack_from(">i", log, position + 8)
        if length <= 0 or position + 12 + length > len(log):
            break
        found.append((position, 12 + length))
        position += 12 + length
    return found


def next_batch(log: bytes) -> bytearray:
    """A valid batch for the offset behind the last: the base offset is not under the checksum."""
    position, size = batches(log)[-1]
    batch = bytearray(log[position : position + size])
    (offset,) = struct.unpack_from(">q", batch)
    struct.pack_into(">q", batch, 0, offset + 1)
    return batch


def garbage(log: bytes) -> bytes:
    return bytes((31 * n + 7) % 256 for n in range(700))


def zeros(log: bytes) -> bytes:
    return bytes(5000)


def half_a_batch(log: bytes) -> bytes:
    batch = next_batch(log)
    return bytes(batch[: len(batch) // 2])


def half_a_header(log: bytes) -> bytes:
    return bytes(next_batch(log)[:30])


def a_flipped_bit(log: bytes) -> bytes:
    batch = next_batch(log)
    batch[-5] ^= 0x10
    return bytes(batch)


def an_absurd_length(log: bytes) -> bytes:
    batch = next_batch(log)
    struct.pack_into(">i", batch, 8, 0x7FFFFFF0)
    return bytes(batch)


def a_wrong_offset(log: bytes) -> bytes:
    batch = next_batch(log)
    struct.pack_into(">q", batch, 0, 3)
    return bytes(batch)


TAILS: list[Callable[[bytes], bytes]] = [
    garbage,
    zeros,
    half_a_batch,
    half_a_header,
    a_flipped_bit,
    an_absurd_length,
    a_wrong_offset,
]


def said_of_cuts(broker: BrokerProcess) -> list[str]:
    """A thread writes the lines of the log: they may come behind the line that says that the broker is ready."""
    return [line for line in broker.output().splitlines() if f"{TOPIC}-0" in line and "cut" in line.lower()]


@pytest.mark.landing
def test_a_torn_tail_is_cut_and_said(start_broker: StartBroker) -> None:
    """All tails one after the other on the same log: each is cut, and the log grows on where it ended."""
    broker = start_broker()
    create(broker)
    fill(broker)
    count = RECORDS
    for tail in TAILS:
        broker.kill()
        (log,) = segments(broker)
        acknowledged = log.read_bytes()
        torn = tail(acknowledged)
        log.write_bytes(acknowledged + torn)
        broker.start()
        said = eventually(lambda: said_of_cuts(broker), what=f"a line about what was cut, after {tail.__name__}")
        assert any(str(count) in line for line in said), f"{tail.__name__}: offset {count} is not in {said}"
        assert log.read_bytes() == acknowledged, tail.__name__
        assert values(broker) == expected(count), tail.__name__
        fill(broker, records=1, start=count)
        count += 1
    assert values(broker) == expected(count)


def test_damage_below_the_recovery_point_is_kept_and_said(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, partitions=2, config={"index.interval.bytes": "1000000"})
    fill(broker, 0)
    fill(broker, 1)
    assert broker.stop() == 0  # the recovery point is at the end of both partitions
    broker.start()
    broker.kill()  # the next start recovers
    (log,) = segments(broker, 0)
    data = bytearray(log.read_bytes())
    position, size = batches(bytes(data))[7]
    data[position + size - 3] ^= 0x01
    log.write_bytes(data)
    broker.start()
    said = eventually(
        lambda: [line for line in broker.output().splitlines() if f"{TOPIC}-0" in line and "amage" in line],
        what="a report of the damage",
    )
    assert any("7" in line for line in said)
    assert log.read_bytes() == bytes(data), "bytes below the recovery point were changed"
    assert values(broker, 1) == expected()
    fill(broker, 1, records=1, start=RECORDS)
    assert values(broker, 1) == expected(RECORDS + 1)
    # What is behind the damage is there, at its own offsets, and the partition takes appends.
    consumer = reader(broker.bootstrap)
    consumer.assign([TopicPartition(TOPIC, 0, 8)])
    assert [message.offset() for message in read_some(consumer, RECORDS - 8)] == list(range(8, RECORDS))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    assert [message.offset() for message in read_some(consumer, 7)] == list(range(7))
    consumer.close()
    fill(broker, 0, records=1, start=RECORDS)
    assert_damage_is_not_served(broker, 7)


def assert_damage_is_not_served(broker: BrokerProcess, offset: int) -> None:
    """A reader of the damaged offset gets an error, or what is behind it, but never the wrong bytes."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "damage",
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    message = consumer.poll(60)
    assert message is not None
    error = message.error()
    if error is None:
        assert (message.offset() or 0) > offset
    else:
        assert error.code() in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._AUTO_OFFSET_RESET)
    consumer.close()


def lose_index(path: Path) -> None:
    path.with_suffix(".index").unlink()


def lose_time_index(path: Path) -> None:
    path.with_suffix(".timeindex").unlink()


def halve_index(path: Path) -> None:
    index = path.with_suffix(".index")
    index.write_bytes(index.read_bytes()[: max(index.stat().st_size // 2, 1) | 1])


def scribble_on_index(path: Path) -> None:
    index = path.with_suffix(".index")
    index.write_bytes(bytes(255 - (n % 7) for n in range(index.stat().st_size or 40)))


def scribble_on_time_index(path: Path) -> None:
    index = path.with_suffix(".timeindex")
    index.write_bytes(bytes(200 + (n % 5) for n in range(index.stat().st_size or 60)))


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
def test_indexes_that_are_missing_or_wrong_are_made_again(start_broker: StartBroker, clean: bool) -> None:
    broker = start_broker()
    create(broker, config={"segment.bytes": "4000", "index.interval.bytes": "400"})
    fill(broker, records=60, size=200, idempotent=True)
    assert broker.stop() == 0
    if not clean:
        broker.start()
        broker.kill()
    logs = segments(broker)
    assert len(logs) >= 4
    harms = [lose_index, lose_time_index, halve_index, scribble_on_index, scribble_on_time_index]
    for place, log in enumerate(logs[:-1]):
        if log.with_suffix(".index").exists() and log.with_suffix(".timeindex").exists():
            harms[place % len(harms)](log)
    for snapshot in (broker.data_dir / f"{TOPIC}-0").glob("*.snapshot"):
        snapshot.write_bytes(b"\x00\x01half a snapshot")
    broker.start()
    assert values(broker) == expected(60)
    consumer = reader(broker.bootstrap)
    for number in range(0, 60, 7):
        consumer.assign([TopicPartition(TOPIC, 0, number)])
        assert read_some(consumer, 1)[0].offset() == number
        stamp = TopicPartition(TOPIC, 0, STAMP_MS + 1000 * number)
        assert consumer.offsets_for_times([stamp], timeout=60)[0].offset == number
    consumer.close()
    fill(broker, records=1, start=60, size=200)
    assert values(broker) == expected(61)


def test_a_data_directory_that_lost_a_whole_segment_says_so(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, config={"segment.bytes": "4000"})
    fill(broker, records=60, size=200)
    assert broker.stop() == 0
    broker.start()
    broker.kill()
    logs = segments(broker)
    gone = logs[1]
    first_gone, first_left = int(gone.stem), int(logs[2].stem)
    gone.unlink()
    broker.start()
    consumer = reader(broker.bootstrap)
    consumer.assign([TopicPartition(TOPIC, 0, first_left)])
    assert read_some(consumer, 1)[0].offset() == first_left
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    assert [m.offset() for m in read_some(consumer, first_gone)] == list(range(first_gone))
    consumer.close()
    said = [line for line in broker.output().splitlines() if f"{TOPIC}-0" in line]
    assert any(str(first_gone) in line for line in said), f"nothing about offset {first_gone}:\n{broker.output()}"
