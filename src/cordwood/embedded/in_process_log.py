"""Appending to and reading from the broker in this process, without a client and without a socket.

The same partitions, checks, acks and durability as for a Kafka client with acks=all; a record appended here is read
there and the other way round. Methods may be called from any thread but the broker's own.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, Final, TypeVar

from cordwood.broker.server import Server
from cordwood.cluster.controller import CreatedTopic
from cordwood.embedded.partitioner import partition_of
from cordwood.log.log import ColdRead
from cordwood.log.lookup import LogSlice
from cordwood.model.errors import EnvironmentFailure, ErrorCode, ProtocolError
from cordwood.node.node import ALL_REPLICAS
from cordwood.node.partition import Partition, no_such_partition
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import Record, records_in

T = TypeVar("T")

READ_BYTES: Final = 1024 * 1024
DEFAULT_TIMEOUT_S: Final = 30.0

Headers = Sequence[tuple[str, bytes | None]]


class BrokerStopped(EnvironmentFailure):
    def __init__(self, message: str = "the broker has stopped") -> None:
        super().__init__(message)


class InProcessLog:
    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._loop = loop
        self._server = server
        self._process_id = os.getpid()
        self._without_key = count()
        self._unanswered: set[Future[Any]] = set()

    def append(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Appends one record and returns its offset once it is as durable as the topic asks for.

        Without `partition` the key chooses it as the Java client would; without a key partitions take turns. A topic
        that does not exist is created if `auto.create.topics.enable` says so. Raises ProtocolError.
        """
        now_ms = int(time.time() * 1000)
        key_bytes = key.encode() if isinstance(key, str) else key
        value_bytes = value.encode() if isinstance(value, str) else value
        batch = build_batch([(now_ms if timestamp_ms is None else timestamp_ms, key_bytes, value_bytes, headers)])

        def start(done: Callable[[int | Exception], None]) -> None:
            deadline_ms = self._server.node.now_ms + int(timeout_s * 1000)
            self._with_topic(
                topic,
                lambda partitions: self._append(
                    self._choose(topic, partitions, partition, key_bytes), batch, deadline_ms, done
                ),
                done,
            )

        return self._ask(start, timeout_s + 1)

    def read(self, topic: str, partition: int, offset: int = 0) -> Iterator[Record]:
        """The records from an offset on, up to the high watermark when the reading gets there: what a consumer with
        `read_uncommitted` would get. Those of transactions that are open, or were aborted, are among them.

        Raises ProtocolError: no such topic or partition, or an offset that the log does not have.
        """
        while True:
            position = offset

            def start(done: Callable[[LogSlice | ColdRead | Exception | None], None], position: int = position) -> None:
                done(self._slice(topic, partition, position))

            found = self._ask(start, DEFAULT_TIMEOUT_S)
            part = found.finish() if isinstance(found, ColdRead) else found
            if part is None:
                return
            data = memoryview(part.file.read(part.position, part.length))
            for start_of_batch, header in batches_in(data):
                if not header.control:
                    for record in records_in(data[start_of_batch : start_of_batch + header.size]):
                        if record.offset >= offset:
                            yield record
                offset = max(offset, header.next_offset)
            if offset == position:
                return

    def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark: where `read` ends."""

        def start(done: Callable[[int | Exception], None]) -> None:
            done(self._server.node.partition(topic, partition).replica.high_watermark)

        return self._ask(start, DEFAULT_TIMEOUT_S)

    # In the loop

    def _ask(self, start: Callable[[Callable[[T | Exception], None]], None], timeout_s: float) -> T:
        """Runs `start` in the loop and waits for what it hands to its callback."""
        if os.getpid() != self._process_id:
            raise BrokerStopped(f"the broker runs in process {self._process_id}, not in this fork of it: use a client")
        answer: Future[T] = Future()
        self._unanswered.add(answer)

        def done(result: T | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception) and not isinstance(result, ColdRead):
                answer.set_exception(result)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def begin() -> None:
            try:
                start(done)
            except (ProtocolError, EnvironmentFailure) as refusal:
                done(refusal)
            except Exception as failure:
                done(failure)
                raise

        def in_loop() -> None:
            if not self._server.driver.run(begin):
                done(BrokerStopped())

        try:
            self._loop.call_soon_threadsafe(in_loop)
            return answer.result(timeout_s)
        except RuntimeError:
            # The loop is closed.
            raise BrokerStopped from None
        finally:
            self._unanswered.discard(answer)

    def broker_stopped(self) -> None:
        """Who still waits for an answer will not get one."""
        for answer in list(self._unanswered):
            if not answer.done():
                answer.set_exception(BrokerStopped())

    def _with_topic(
        self,
        name: str,
        use: Callable[[list[Partition]], None],
        done: Callable[[int | Exception], None],
    ) -> None:
        node = self._server.node
        partitions = node.topics.get(name)
        if partitions is not None:
            use(partitions)
            return
        if not node.settings.auto_create_topics_enable:
            raise no_such_partition(name, 0)

        def created(results: dict[str, CreatedTopic | ProtocolError] | Exception) -> None:
            refusal = results if isinstance(results, Exception) else results[name]
            try:
                if name in node.topics:
                    use(node.topics[name])
                else:
                    assert isinstance(refusal, Exception)
                    done(refusal)
            except Exception as failure:
                done(failure)

        node.auto_create([name], created)

    def _choose(self, topic: str, partitions: list[Partition], partition: int | None, key: bytes | None) -> Partition:
        if partition is None:
            chosen = next(self._without_key) if key is None else partition_of(key, len(partitions))
            return partitions[chosen % len(partitions)]
        if not 0 <= partition < len(partitions):
            raise no_such_partition(topic, partition)
        return partitions[partition]

    def _append(
        self, partition: Partition, batch: bytearray, deadline_ms: int, done: Callable[[int | Exception], None]
    ) -> None:
        node = self._server.node
        appended, safe = node.append(partition, memoryview(batch), ALL_REPLICAS, node.now_ms)
        if safe:
            done(appended.base_offset)
            return

        def acknowledged(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                done(appended.base_offset)
            else:
                done(ProtocolError(error, f"{partition.name}: the record at {appended.base_offset}: {error.name}"))

        node.when_safe(partition, appended.last_offset, ALL_REPLICAS, deadline_ms, acknowledged)

    def _slice(self, topic: str, index: int, offset: int) -> LogSlice | ColdRead | None:
        replica = self._server.node.partition(topic, index).replica
        try:
            return replica.log.read(offset, READ_BYTES, end_offset=replica.high_watermark, minimum_one_batch=True)
        except ColdRead as cold:
            return cold
