"""Clients of aiokafka that write a history of what they do, and are used like any others.

    producer = RecordingAIOProducer(bootstrap_servers="localhost:9092", recorder=recorder, who="p1")
    consumer = RecordingAIOConsumer(bootstrap_servers="localhost:9092", recorder=recorder, who="r1")

Every outcome with a doubt is recorded as unknown. The name of a record comes from its key and value as the program has
them, before and after any serializer.
"""

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    InvalidMessageError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from cordwood.history.events import Mode
from cordwood.history.recorder import ReaderRecorder, Recorder, Value
from cordwood.history.recording.naming import Identify, acks_of, by_value, start_of

NOT_WRITTEN: Final = (
    InvalidMessageError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
"""Errors of a delivery after which the record is certainly in no log."""

_LOOK_MS: Final = 500


class RecordingAIOProducer(AIOKafkaProducer):  # type: ignore[misc]
    """A producer whose sends, outcomes and transactions are recorded under the name `who`."""

    def __init__(self, *, recorder: Recorder, who: str, identify: Identify = by_value, **settings: Any) -> None:
        super().__init__(**settings)
        idempotent = bool(settings.get("enable_idempotence") or settings.get("transactional_id") is not None)
        acks = acks_of(settings.get("acks", "all" if idempotent else 1))
        self._history = recorder.producer(who, acks=acks, idempotent=idempotent, retries=True)
        self._identify = identify
        self._sending = asyncio.Lock()
        self._transaction: str | None = None
        self._transactions = 0

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Any:
        name = self._identify(key, value)
        # The lines of a history have the order in which the records are handed over.
        async with self._sending:
            self._history.send(topic, name, transaction=self._transaction)
            try:
                future = await super().send(topic, value, key, partition, timestamp_ms, headers)
            except BaseException:
                self._history.failed(topic, name)
                raise
        future.add_done_callback(lambda done: self._ended(topic, name, done))
        return future

    async def send_batch(self, *arguments: Any, **options: Any) -> Any:
        raise RuntimeError("send_batch is not recorded: send each record")

    def _ended(self, topic: str, name: Value, done: "asyncio.Future[Any]") -> None:
        failure = None if done.cancelled() else done.exception()
        if done.cancelled() or (failure is not None and not isinstance(failure, NOT_WRITTEN)):
            self._history.unknown(topic, name)
        elif failure is not None:
            self._history.failed(topic, name)
        else:
            told = done.result()
            self._history.acked(topic, name, told.partition, told.offset)

    # Transactions

    async def begin_transaction(self) -> None:
        await super().begin_transaction()
        self._transactions += 1
        self._transaction = f"{self._history.who}-{self._transactions}"
        self._history.begin(self._transaction)

    async def commit_transaction(self) -> None:
        transaction = self._transaction
        if transaction is not None:
            self._history.committing(transaction)
        try:
            await super().commit_transaction()
        except BaseException:
            if transaction is not None:
                self._history.transaction_unknown(transaction)
                self._transaction = None
            raise
        if transaction is not None:
            self._history.committed(transaction)
            self._transaction = None

    async def abort_transaction(self) -> None:
        await super().abort_transaction()
        if self._transaction is not None:
            self._history.aborted(self._transaction)
            self._transaction = None


class RecordingAIOConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose polls are recorded under the name `who`. It either subscribes or assigns partitions."""

    def __init__(
        self, *topics: str, recorder: Recorder, who: str, identify: Identify = by_value, **settings: Any
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._who = who
        self._identify = identify
        self._isolation_level_told: Any = settings.get("isolation_level", "read_uncommitted")
        self._start_told = start_of(settings.get("auto_offset_reset", "latest"))
        self._mode: Mode | None = None
        self._history: ReaderRecorder | None = None
        super().__init__(*topics, **settings)
        if topics:
            self._declare("subscribe")

    # Where it reads

    def subscribe(self, *arguments: Any, **options: Any) -> None:
        self._declare("subscribe")
        super().subscribe(*arguments, **options)

    def assign(self, partitions: Any) -> None:
        super().assign(partitions)
        history = self._declare("assign")
        for each in partitions:
            history.positioned(each.topic, each.partition, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        history = self._declare("assign")
        super().seek(partition, offset)
        history.positioned(partition.topic, partition.partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> Any:
        history = self._declare("assign")
        done = await super().seek_to_beginning(*partitions)
        for each in partitions or self.assignment():
            history.positioned(each.topic, each.partition, await self.position(each))
        return done

    async def seek_to_end(self, *partitions: TopicPartition) -> Any:
        return await self._moved(partitions, super().seek_to_end(*partitions))

    async def seek_to_committed(self, *partitions: TopicPartition) -> Any:
        return await self._moved(partitions, super().seek_to_committed(*partitions))

    async def _moved(self, partitions: Any, moving: Any) -> Any:
        done = await moving
        history = self._declare("assign")
        for each in partitions or self.assignment():
            history.positioned(each.topic, each.partition, None)
        return done

    def _declare(self, mode: Mode) -> ReaderRecorder:
        if self._history is None:
            self._mode = mode
            self._history = self._recorder.reader(
                self._who, mode=mode, isolation=self._isolation_level_told, start=self._start_told
            )
        if mode != self._mode:
            raise RuntimeError(f"{self._who} is recorded as a reader by {self._mode}, and cannot {mode}, too")
        return self._history

    # What it reads

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        record = await super().getone(*partitions)
        self._polled(record.topic, record.partition, [record])
        return record

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None) -> Any:
        found = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        for place, records in found.items():
            self._polled(place.topic, place.partition, records)
        return found

    def _polled(self, topic: str, partition: int, records: list[ConsumerRecord]) -> None:
        assert self._history is not None
        seen = [(record.offset, self._identify(record.key, record.value)) for record in records]
        self._history.polled(topic, partition, seen)

    async def read_to_end(self, timeout_s: float = 60.0) -> list[ConsumerRecord]:
        """Reads the assigned partitions to the ends that they have at the call, and records that they are drained: the
        checker demands every record that was acknowledged before. Raises TimeoutError, with nothing drained."""
        deadline_s = time.monotonic() + timeout_s
        ends = await self._ends()
        records: list[ConsumerRecord] = []
        while left := sorted([place for place, end in ends.items() if await self.position(place) < end]):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._who} has not read to the ends of {left} in {timeout_s:g} s")
            for found in (await self.getmany(timeout_ms=_LOOK_MS)).values():
                records += found
        for place in sorted(ends):
            assert self._history is not None
            self._history.drained(place.topic, place.partition)
        return records

    async def _ends(self) -> dict[TopicPartition, int]:
        """The ends of the assigned partitions, those of open transactions included: a commit is answered before all of
        its markers are written."""
        settings = {**self._settings, "group_id": None, "isolation_level": "read_uncommitted"}
        async with AIOKafkaConsumer(**settings) as asking:
            ends: dict[TopicPartition, int] = await asking.end_offsets(list(self.assignment()))
        return ends
