"""Reads all partitions of the demo's topic to their ends, and checks the order of the records."""

import time

from confluent_kafka import KafkaError, TopicPartition

from cordwood.cli.demo.orders import PARTITIONS, TOPIC, order_of
from cordwood.cli.demo.reader import Line, consumer_of
from cordwood.cli.demo.scene import PATIENCE_S, TookTooLong


def read_all(bootstrap_servers: str, group: str) -> list[Line]:
    """All records from offset 0 on, in the order in which this reader got them."""
    consumer = consumer_of(bootstrap_servers, group)
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    lines: list[Line] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        if time.monotonic() > deadline:
            raise TookTooLong("a reader got to the end")
        for message in consumer.consume(500, timeout=0.2):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            lines.append(Line(message.partition() or 0, message.offset() or 0, key.decode(), value.decode()))
    consumer.close()
    return lines


def rises(lines: list[Line], *, by_key: bool) -> bool:
    """True if steps rise within every key, or offsets within every partition."""
    last: dict[str | int, int] = {}
    for line in lines:
        scope: str | int = line.key if by_key else line.partition
        number = order_of(line.value.encode())["step"] if by_key else line.offset
        if number <= last.get(scope, -1):
            return False
        last[scope] = number
    return True
