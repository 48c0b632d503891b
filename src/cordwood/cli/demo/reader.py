"""A reader of the demo, as a separate process: `python -m cordwood.cli.demo.reader`.

The reader reads every partition from its committed position on, writes each record to a file, and commits its position
after every few records: at least once. The reader can be killed at any instant and started again.
"""

import argparse
import sys
import time
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

COMMIT_EVERY = 25


class Line(NamedTuple):
    """One record that the reader has worked on, as a line of its file."""

    partition: int
    offset: int
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.partition}\t{self.offset}\t{self.key}\t{self.value}\n"


def lines_of(path: str) -> list[Line]:
    """The records that a reader has worked on so far. A kill can leave a line without its end, which is left out."""
    try:
        with open(path) as file:
            whole = [line for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []
    fields = [line.rstrip("\n").split("\t") for line in whole]
    return [Line(int(partition), int(offset), key, value) for partition, offset, key, value in fields]


def consumer_of(bootstrap_servers: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
    )


def read(
    bootstrap_servers: str, group: str, topic: str, partitions: int, path: str, *, pause_ms: int, limit: int
) -> None:
    """Reads from the committed position until the end, or until `limit` records."""
    consumer = consumer_of(bootstrap_servers, group)
    committed = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=10)
    starts = [
        TopicPartition(topic, at.partition, at.offset if at.offset >= 0 else OFFSET_BEGINNING) for at in committed
    ]
    consumer.assign(starts)
    positions: dict[int, int] = {}
    uncommitted = worked = 0
    ended: set[int] = set()
    with open(path, "a") as file:
        while len(ended) < partitions and worked < limit:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                continue
            line = _line(message)
            file.write(str(line))
            file.flush()
            positions[line.partition] = line.offset + 1
            worked += 1
            uncommitted += 1
            if uncommitted >= COMMIT_EVERY:
                _commit(consumer, topic, positions)
                uncommitted = 0
            time.sleep(pause_ms / 1000)
    if positions:
        _commit(consumer, topic, positions)
    consumer.close()


def _line(message: Message) -> Line:
    partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return Line(partition, offset, key.decode(), value.decode())


def _commit(consumer: Consumer, topic: str, positions: dict[int, int]) -> None:
    consumer.commit(offsets=[TopicPartition(topic, *at) for at in sorted(positions.items())], asynchronous=False)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("path")
    parser.add_argument("--pause-ms", type=int, default=0)
    parser.add_argument("--limit", type=int, default=sys.maxsize)
    given = parser.parse_args()
    read(
        given.bootstrap_servers,
        given.group,
        given.topic,
        given.partitions,
        given.path,
        pause_ms=given.pause_ms,
        limit=given.limit,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
