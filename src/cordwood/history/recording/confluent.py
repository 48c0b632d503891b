"""Clients of confluent-kafka that write a history of what they do, and are used like any others.

    with Recorder("run.jsonl") as recorder:
        producer = RecordingProducer({"bootstrap.servers": "localhost:9092"}, recorder=recorder, who="p1")
        producer.produce("orders", "o1")
        producer.flush()
        consumer = RecordingConsumer({...}, recorder=recorder, who="r1")
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        consumer.read_to_end()
    print(check("run.jsonl").render())

An outcome is recorded before the callback of the user hears of it. Every outcome with a doubt is recorded as unknown.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from cordwood.history.events import Mode
from cordwood.history.recorder import ReaderRecorder, Recorder, Value
from cordwood.history.recording.naming import Identify, acks_of, by_value, start_of

NOT_WRITTEN: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Errors of a delivery after which the record is certainly in no log. Others leave a doubt: an earlier attempt may have
written it."""

_ROOM_S: Final = 0.1
_LOOK_S: Final = 0.5
_AT_ONCE: Final = 500

_Place = tuple[str, int]


class RecordingProducer(Producer):
    """A producer whose sends, outcomes and transactions are recorded under the name `who`.

    `produce` waits where the producer's queue is full, instead of raising BufferError. Several threads may call it.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, recorder: Recorder, who: str, identify: Identify = by_value
    ) -> None:
        super().__init__(dict(settings))
        transactional = "transactional.id" in settings
        retries = settings.get("retries", settings.get("message.send.max.retries", 1))
        self._history = recorder.producer(
            who,
            acks=acks_of(settings.get("acks", settings.get("request.required.acks", "all"))),
            idempotent=transactional or _is_true(settings.get("enable.idempotence", False)),
            retries=int(retries) > 0,
        )
        self._identify = identify
        self._on_delivery = settings.get("on_delivery", settings.get("delivery.report.callback"))
        self._sending = threading.RLock()
        self._transaction: str | None = None
        self._transactions = 0

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        name = self._identify(_as_bytes(key), _as_bytes(value))
        tell = on_delivery or callback or self._on_delivery

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(topic, name, error, message)
            if tell is not None:
                tell(error, message)

        with self._sending:
            self._history.send(topic, name, transaction=self._transaction)
            while True:
                try:
                    super().produce(
                        topic, value, key, partition, on_delivery=delivered, timestamp=timestamp, headers=headers
                    )
                except BufferError:
                    self.poll(_ROOM_S)
                except BaseException:
                    self._history.failed(topic, name)
                    raise
                else:
                    return

    def produce_batch(self, *arguments: Any, **options: Any) -> int:
        raise RuntimeError("produce_batch is not recorded: call produce for each record")

    def _delivered(self, topic: str, name: Value, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None:
            assert partition is not None
            self._history.acked(topic, name, partition, message.offset())
        elif error.code() in NOT_WRITTEN:
            self._history.failed(topic, name)
        else:
            self._history.unknown(topic, name)

    # Transactions

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._transactions += 1
        self._transaction = f"{self._history.who}-{self._transactions}"
        self._history.begin(self._transaction)

    def commit_transaction(self, timeout: float = -1) -> None:
        if self._transaction is not None:
            self._history.committing(self._transaction)
        try:
            super().commit_transaction(timeout)
        except KafkaException as failure:
            error = failure.args[0]
            if self._transaction is not None and error.fatal():
                self._history.transaction_unknown(self._transaction)
                self._transaction = None
            # Otherwise the transaction is still open: it is committed by another call, or aborted.
            raise
        if self._transaction is not None:
            self._history.committed(self._transaction)
            self._transaction = None

    def abort_transaction(self, timeout: float = -1) -> None:
        super().abort_transaction(timeout)
        if self._transaction is not None:
            self._history.aborted(self._transaction)
            self._transaction = None


class RecordingConsumer(Consumer):
    """A consumer whose polls are recorded under the name `who`. It either subscribes or assigns partitions."""

    def __init__(
        self, settings: Mapping[str, Any], *, recorder: Recorder, who: str, identify: Identify = by_value
    ) -> None:
        # The ends of partitions tell `read_to_end` that nothing but markers of transactions follows.
        super().__init__({**settings, "enable.partition.eof": True})
        self._settings = dict(settings)
        self._shows_ends = _is_true(settings.get("enable.partition.eof", False))
        self._recorder = recorder
        self._who = who
        self._identify = identify
        self._isolation: Any = settings.get("isolation.level", "read_committed")
        self._start = start_of(settings.get("auto.offset.reset", "latest"))
        self._mode: Mode | None = None
        self._history: ReaderRecorder | None = None
        self._reached: dict[_Place, int] = {}
        """The offset up to which each partition was read, by records and by ends."""

    # Where it reads

    def subscribe(self, topics: list[str], *arguments: Any, **callbacks: Any) -> None:
        self._declare("subscribe")
        super().subscribe(topics, *arguments, **callbacks)

    def assign(self, partitions: list[TopicPartition]) -> None:
        super().assign(partitions)
        self._positioned(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        super().incremental_assign(partitions)
        self._positioned(partitions)

    def seek(self, partition: TopicPartition) -> None:
        if self._mode == "subscribe":
            raise RuntimeError("a recorded consumer that subscribes is moved by its group alone: assign its partitions")
        super().seek(partition)
        self._positioned([partition])

    def _positioned(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._reached.pop((each.topic, each.partition), None)
        if self._mode == "subscribe":  # an assignment by its group
            return
        history = self._declare("assign")
        for each in partitions:
            history.positioned(each.topic, each.partition, self._offset_of(each))

    def _offset_of(self, partition: TopicPartition) -> int | None:
        """The offset at which the reading begins; None if the client does not say."""
        if partition.offset >= 0:
            return int(partition.offset)
        if partition.offset != OFFSET_BEGINNING:
            return None
        try:
            found = self.get_watermark_offsets(TopicPartition(partition.topic, partition.partition), timeout=10)
        except KafkaException:
            return None
        return None if found is None else int(found[0])

    def _declare(self, mode: Mode) -> ReaderRecorder:
        if self._history is None:
            self._mode = mode
            self._history = self._recorder.reader(self._who, mode=mode, isolation=self._isolation, start=self._start)
        if mode != self._mode:
            raise RuntimeError(f"{self._who} is recorded as a reader by {self._mode}, and cannot {mode}, too")
        return self._history

    # What it reads

    def poll(self, timeout: float = -1) -> Message | None:
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while True:
            message = super().poll(timeout if deadline_s is None else max(deadline_s - time.monotonic(), 0.0))
            if message is None:
                return None
            if kept := self._kept([message]):
                return kept[0]

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = timeout if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            messages = super().consume(num_messages, left_s)
            kept = self._kept(messages)
            if kept or not messages:
                return kept

    def read_to_end(self, timeout_s: float = 60.0) -> list[Message]:
        """Reads the assigned partitions to the ends that they have at the call, and records that they are drained: the
        checker demands every record that was acknowledged before. Raises TimeoutError, with nothing drained."""
        deadline_s = time.monotonic() + timeout_s
        ends = self._ends(timeout_s)
        messages: list[Message] = []
        while left := sorted(place for place, end in ends.items() if self._reached.get(place, -1) < end):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._who} has not read to the ends of {left} in {timeout_s:g} s")
            messages += self.consume(_AT_ONCE, _LOOK_S)
        for topic, partition in sorted(ends):
            assert self._history is not None
            self._history.drained(topic, partition)
        return messages

    def _ends(self, timeout_s: float) -> dict[_Place, int]:
        """The ends of the assigned partitions, those of open transactions included: a commit is answered before all of
        its markers are written."""
        with Consumer({**self._settings, "isolation.level": "read_uncommitted"}) as asking:
            places = [(each.topic, each.partition) for each in self.assignment()]
            return {
                place: int(asking.get_watermark_offsets(TopicPartition(*place), timeout=timeout_s)[1])
                for place in places
            }

    def _kept(self, messages: list[Message]) -> list[Message]:
        """Records the polls, and drops the notes about ends that the user did not ask for."""
        records: dict[_Place, list[tuple[int, Value]]] = {}
        kept = []
        for message in messages:
            error = message.error()
            place, offset = (message.topic() or "", message.partition() or 0), message.offset()
            if error is None:
                assert offset is not None
                name = self._identify(message.key(), message.value())
                records.setdefault(place, []).append((offset, name))
                self._reached[place] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[place] = max(self._reached.get(place, -1), offset or 0)
                if not self._shows_ends:
                    continue
            kept.append(message)
        for (topic, partition), seen in records.items():
            assert self._history is not None
            self._history.polled(topic, partition, seen)
        return kept


def _is_true(setting: Any) -> bool:
    return str(setting).lower() in ("true", "1")


def _as_bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
