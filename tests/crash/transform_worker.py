"""A program that reads, transforms and writes exactly once: records and positions in one transaction.

`python transform_worker.py BOOTSTRAP SOURCE TARGET PARTITIONS END`: works until every partition of the source is done
up to END. The program can be killed at any time and started again; brokers can come and go.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

GROUP = "transformers"
BATCH = 25
PAUSE_S = 0.03
"""The pause between transactions, which leaves time for a kill."""
TIMEOUT_S = 5


def transform(value: bytes) -> bytes:
    return value.upper()


def patiently(bootstrap: str, source: str, target: str, partitions: int, end: int) -> None:
    """Starts over after every error that a transaction cannot recover from."""
    while True:
        try:
            if work(bootstrap, source, target, partitions, end):
                return
        except KafkaException as problem:
            print(f"starts over: {problem}", flush=True)
            time.sleep(0.1)


def work(bootstrap: str, source: str, target: str, partitions: int, end: int) -> bool:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": GROUP, "transaction.timeout.ms": 10_000, "linger.ms": 1}
    )
    # Initialising comes first: it ends the open transaction of an earlier life, so that the positions below are true.
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        wanted = [TopicPartition(source, index) for index in range(partitions)]
        done = {each.partition: max(each.offset, 0) for each in consumer.committed(wanted, timeout=TIMEOUT_S)}
        consumer.assign([TopicPartition(source, index, offset) for index, offset in done.items()])
        while any(offset < end for offset in done.values()):
            messages = [each for each in consumer.consume(BATCH, timeout=0.2) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, transform(message.value() or b""), partition=message.partition() or 0)
                done[message.partition() or 0] = (message.offset() or 0) + 1
            positions = [TopicPartition(source, index, offset) for index, offset in done.items()]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            time.sleep(PAUSE_S)
    finally:
        consumer.close()
    return True


if __name__ == "__main__":
    patiently(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
