"""Load on a broker that is being killed, written down as a history: producers and readers in threads of their own.

Owns the clients. Promises that every send is recorded before the client has it, that whatever leaves a doubt is
recorded as unknown, and that `finish` returns only after a reader that began afterwards has drained every partition.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually

from cordwood.history import ProducerRecorder, ReaderRecorder, Recorder, Report, check
from cordwood.history.events import Acks

CERTAINLY_FAILED = {
    KafkaError._QUEUE_FULL,
    KafkaError._PURGE_QUEUE,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
}

RECONNECT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
}

MAX_IN_FLIGHT = 500


@dataclass
class Sender:
    """One producer: sends as fast as acknowledgements come back, until told to stop."""

    who: str
    client: Producer
    recorder: ProducerRecorder
    topic: str
    partitions: int
    value_bytes: int
    acked: int = 0
    in_flight: int = 0
    errors: list[KafkaError] = field(default_factory=list)

    def run(self, stopping: threading.Event) -> None:
        number = 0
        while not stopping.is_set():
            if self.in_flight >= MAX_IN_FLIGHT:
                self.client.poll(0.05)
                continue
            name = f"{self.who}-{number}"
            # The record's value is recorded by its name; the rest of it is padding.
            value = name.encode().ljust(self.value_bytes, b".")
            self.recorder.send(self.topic, name)
            self.in_flight += 1
            self.client.produce(self.topic, value=value, partition=number % self.partitions, on_delivery=self.done)
            self.client.poll(0)
            number += 1

    def done(self, error: KafkaError | None, message: Message) -> None:
        self.in_flight -= 1
        name = name_of(message)
        partition = message.partition()
        if error is None:
            assert partition is not None
            self.acked += 1
            self.recorder.acked(self.topic, name, partition, message.offset())
        elif error.code() in CERTAINLY_FAILED:
            self.errors.append(error)
            self.recorder.failed(self.topic, name)
        else:
            self.errors.append(error)
            self.recorder.unknown(self.topic, name)


def name_of(message: Message) -> str:
    return (message.value() or b"").rstrip(b".").decode()


class Workload:
    """Producers and readers on one topic, and their history."""

    def __init__(self, bootstrap: str, topic: str, history: Path, *, partitions: int, value_bytes: int = 100) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.value_bytes = value_bytes
        self.history = history
        self.recorder = Recorder(history)
        self.senders: list[Sender] = []
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self._senders: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def create_topic(self, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(self.topic, num_partitions=self.partitions, replication_factor=1, config=config)
        admin.create_topics([new], operation_timeout=20)[self.topic].result(60)

    def add_sender(
        self,
        who: str,
        *,
        acks: Acks = "all",
        idempotent: bool = True,
        timeout_ms: int = 120_000,
        compression: str = "none",
    ) -> Sender:
        client = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "message.timeout.ms": timeout_ms,
                "compression.type": compression,
                **RECONNECT,
            }
        )
        recorder = self.recorder.producer(who, acks=acks, idempotent=idempotent, retries=True)
        sender = Sender(who, client, recorder, self.topic, self.partitions, self.value_bytes)
        self.senders.append(sender)
        self._start(self._senders, lambda: sender.run(self._stop_sending))
        return sender

    def add_reader(self, who: str) -> None:
        recorder = self.recorder.reader(who)
        consumer = self._consumer()
        self._assign(consumer, recorder)

        def run() -> None:
            while not self._stop_reading.is_set():
                record_polls(recorder, self.topic, consumer.consume(500, timeout=0.1))
            consumer.close()

        self._start(self._readers, run)

    def _start(self, threads: list[threading.Thread], run: Any) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as failure:
                self._failures.append(failure)

        thread = threading.Thread(target=guarded, daemon=True)
        threads.append(thread)
        thread.start()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "crash-readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                **RECONNECT,
            }
        )

    def _assign(self, consumer: Consumer, recorder: ReaderRecorder) -> None:
        for partition in range(self.partitions):
            recorder.positioned(self.topic, partition, 0)
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])

    @property
    def acked(self) -> int:
        return sum(sender.acked for sender in self.senders)

    def await_acks(self, more: int) -> None:
        """Waits until so many more records were acknowledged."""
        wanted = self.acked + more
        eventually(lambda: self.acked >= wanted, what=f"{more} more acknowledged records")

    def leader_lost(self) -> None:
        for partition in range(self.partitions):
            self.recorder.leader_lost(self.topic, partition)

    def stop_sending(self, within_s: float = 120) -> None:
        """No new sends, and every send ended one way or another."""
        self._stop_sending.set()
        for thread in self._senders:
            thread.join(within_s)
            assert not thread.is_alive(), "a producer's thread hangs"
        deadline = time.monotonic() + within_s
        for sender in self.senders:
            left = sender.client.flush(max(deadline - time.monotonic(), 1))
            assert left == 0, f"{left} records of {sender.who} have no outcome after {within_s} s"

    def finish(self, within_s: float = 120) -> Report:
        """Ends the load, drains every partition, and judges the history."""
        self.stop_sending(within_s)
        self._stop_reading.set()
        for thread in self._readers:
            thread.join(within_s)
            assert not thread.is_alive(), "a reader's thread hangs"
        self._drain(within_s)
        self.recorder.close()
        if self._failures:
            raise self._failures[0]
        return check(self.history)

    def fatal_errors(self) -> list[str]:
        """What idempotent producers cannot go on after: a gap or a step back in their sequence."""
        return [str(error) for sender in self.senders for error in sender.errors if error.fatal()]

    def abandon(self) -> None:
        """For the end of a test that failed: no client goes on in the background."""
        self._stop_sending.set()
        self._stop_reading.set()
        for thread in (*self._senders, *self._readers):
            thread.join(10)
        for sender in self.senders:
            sender.client.purge()
        self.recorder.close()

    def _drain(self, within_s: float) -> None:
        consumer = self._consumer()
        recorder = self.recorder.reader("final")
        self._assign(consumer, recorder)
        ends = {
            partition: eventually(
                lambda p=partition: consumer.get_watermark_offsets(TopicPartition(self.topic, p), timeout=5),  # type: ignore[misc]
                what="the end offsets",
            )[1]
            for partition in range(self.partitions)
        }
        reached: set[int] = set()
        deadline = time.monotonic() + within_s
        while len(reached) < self.partitions:
            assert time.monotonic() < deadline, f"drained {sorted(reached)} of {self.partitions}, ends {ends}"
            messages = consumer.consume(1000, timeout=0.2)
            record_polls(recorder, self.topic, messages)
            for message in messages:
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is not None and error.code() == KafkaError._PARTITION_EOF and offset >= ends[partition]:
                    reached.add(partition)
        for partition in range(self.partitions):
            recorder.drained(self.topic, partition)
        consumer.close()


def record_polls(recorder: ReaderRecorder, topic: str, messages: list[Message]) -> None:
    """One poll's records, by partition, in the order they came. Errors, of a broker that is gone, are no records."""
    by_partition: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if message.error() is None and partition is not None and offset is not None:
            by_partition[partition].append((offset, name_of(message)))
    for partition, records in by_partition.items():
        recorder.polled(topic, partition, records)
