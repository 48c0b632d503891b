"""Reading and writing with confluent-kafka as the tests need it: every record's fate known, every read bounded."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition


def produce_all(producer: Producer, records: Iterable[dict[str, Any]], timeout_s: float = 90) -> list[Message]:
    """Sends the records and returns their delivered messages in order of sending; raises on the first that failed."""
    delivered: dict[int, Message] = {}
    errors: list[KafkaError] = []
    count = 0

    def on_delivery(number: int) -> Any:
        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            delivered[number] = message

        return done

    for number, record in enumerate(records):
        producer.produce(**record, on_delivery=on_delivery(number))
        producer.poll(0)
        count += 1
    left = producer.flush(timeout_s)
    if errors:
        raise KafkaException(errors[0])
    assert left == 0, f"{left} of {count} records were not delivered within {timeout_s} s"
    return [delivered[number] for number in range(count)]


def reader(bootstrap: str, config: Mapping[str, Any] | None = None) -> Consumer:
    """A consumer for assignment; it has a group id because librdkafka insists on one.

    It asks often whether a partition has ended: librdkafka tells the end with the answer to a fetch, which waits.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigning-readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            **(config or {}),
        }
    )


def read_some(consumer: Consumer, count: int, timeout_s: float = 90) -> list[Message]:
    """Exactly `count` messages from a consumer that is assigned."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within {timeout_s} s"
        for message in consumer.consume(count - len(messages), timeout=0.2):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
    return messages


def read_to_end(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int] = (0,),
    *,
    start: int = OFFSET_BEGINNING,
    timeout_s: float = 90,
    at_least: int = 0,
    config: Mapping[str, Any] | None = None,
) -> list[Message]:
    """All messages of the partitions, in the order of arrival.

    `at_least`: before so many there is no end. A commit is answered when it is decided, and what it wrote may be
    visible to read_committed a moment later.
    """
    consumer = reader(bootstrap, config)
    try:
        # librdkafka asks half a second later for offsets of partitions whose leader it does not know yet.
        consumer.list_topics(topic, timeout=timeout_s)
        consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
        messages: list[Message] = []
        waiting = set(partitions)
        deadline = time.monotonic() + timeout_s
        while waiting:
            assert time.monotonic() < deadline, f"no end of partitions {waiting} within {timeout_s} s"
            for message in consumer.consume(1000, timeout=0.02):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if len(messages) >= at_least:
                        waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
        return messages
    finally:
        consumer.close()
