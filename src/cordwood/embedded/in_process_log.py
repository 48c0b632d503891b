"""Appends to and reads from the broker in this process, without a client and without a socket.

Partitions, checks, acks and durability are the same as for a Kafka client with acks=all. Kafka clients read records
that were appended here, and the other way round. Methods may be called from any thread but the broker's own.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

from cordwood.broker.server import Server
from cordwood.embedded.client_rules import partition_of
from cordwood.embedded.in_process_appends import (
    Content,
    Headers,
    RecordPlace,
    RecordToAppend,
    TopicBounds,
    append_batches,
    as_bytes,
    check_headers,
    check_type,
    rounds,
    with_topic,
)
from cordwood.embedded.loop_calls import BrokerStopped as BrokerStopped
from cordwood.embedded.loop_calls import LoopCalls
from cordwood.log.log import ColdRead
from cordwood.log.reading.lookup import LogSlice
from cordwood.model.errors import DamagedLog, ErrorCode, ProtocolError
from cordwood.node.partitions.partition import Partition, no_such_partition
from cordwood.records.batch import batches_in, crc_is_right
from cordwood.records.build import build_batch
from cordwood.records.control import AbortedRecords
from cordwood.records.records import records_in

READ_BYTES: Final = 1024 * 1024
DEFAULT_TIMEOUT_S: Final = 30.0


class LogRecord(NamedTuple):
    """One record from `InProcessLog.read`."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int


class _Part(NamedTuple):
    """The result of one look into a partition's log."""

    offset: int
    """The first wanted offset."""
    found: LogSlice | ColdRead | None
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions, for a reader of committed records."""


class InProcessLog:
    def __init__(self, calls: LoopCalls) -> None:
        self._calls = calls
        self._without_key = count()

    def __repr__(self) -> str:
        return f"<InProcessLog of a broker {self._calls.where}>"

    def append(
        self,
        topic: str,
        key: Content,
        value: Content,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Appends one record and returns its offset once the record is as durable as the topic asks for.

        Without `partition` the key decides, as in the Java client; records without a key go to the partitions in turn.
        An unknown topic is created if `auto.create.topics.enable` is true. Raises ProtocolError or TypeError.
        """
        check_type("topic", topic, str)
        check_type("partition", partition, int, type(None))
        check_type("timestamp_ms", timestamp_ms, int, type(None))
        key_bytes, value_bytes = as_bytes("key", key), as_bytes("value", value)
        check_headers(headers)
        wall_ms = int(time.time() * 1000)
        batch = build_batch([(wall_ms if timestamp_ms is None else timestamp_ms, key_bytes, value_bytes, headers)])

        def start(server: Server, done: Callable[[list[int] | Exception], None]) -> None:
            def append(bounds: TopicBounds) -> None:
                chosen = self._choose(bounds.partition_count, partition, key_bytes)
                append_batches(server, topic, [(chosen, batch)], timeout_s, done)

            with_topic(server, topic, append, done)

        [offset] = self._calls.ask(start, timeout_s + 1)
        return offset

    def append_many(
        self,
        topic: str,
        records: Iterable[RecordToAppend],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> list[RecordPlace]:
        """Appends records in batches, and returns the partition and offset of each once all are as durable as the topic
        asks for. A record is a tuple of key and value, or of key, value and headers.

        Partitions are chosen as by `append`, and the records of one partition keep their order. Records of other
        writers may stand between two batches, not within one. A batch has at most `max.message.bytes`, and at most 1
        MiB unless a single record is larger. `records` may be a generator: no more than 4 MiB of it are held, or one
        larger record. `timeout_s` bounds the wait for one acknowledgement.

        Raises what `append` raises. Some of the records may be in the log then: of each partition the first ones, and
        none after one that is missing.
        """
        check_type("topic", topic, str)
        check_type("partition", partition, int, type(None))
        check_type("timestamp_ms", timestamp_ms, int, type(None))

        def find(server: Server, done: Callable[[TopicBounds | Exception], None]) -> None:
            with_topic(server, topic, done, done)

        bounds = self._calls.ask(find, timeout_s + 1)
        places: list[RecordPlace] = []

        def choose(key: bytes | None) -> int:
            return self._choose(bounds.partition_count, partition, key)

        for each in rounds(records, choose, bounds.max_message_bytes, timestamp_ms):
            batches = each.batches()

            def start(
                server: Server,
                done: Callable[[list[int] | Exception], None],
                batches: list[tuple[int, bytearray]] = batches,
            ) -> None:
                append_batches(server, topic, batches, timeout_s, done)

            places.extend(each.places(self._calls.ask(start, timeout_s + 1)))
        return places

    def read(
        self, topic: str, partition: int | None = None, offset: int | None = None, *, committed: bool = False
    ) -> Iterator[LogRecord]:
        """The records of a partition from `offset` on, or from the log's start.

        Without `partition`: the records of all partitions, one partition after the other. Records of one partition are
        in order; between partitions there is no order. A partition ends at the high watermark that it has when the read
        reaches it.

        With `committed`: the records that a consumer with `read_committed` gets. They end before the first open
        transaction, and leave aborted transactions out. Without it: all records, as with `read_uncommitted`.

        Raises ProtocolError for an unknown topic, partition or offset, and DamagedLog if the bytes on disk have changed
        since they were written.
        """
        check_type("topic", topic, str)
        check_type("partition", partition, int, type(None))
        check_type("offset", offset, int, type(None))
        if partition is None and offset is not None:
            raise ValueError("offset needs partition: an offset is a place in one partition")
        return self._read(topic, partition, offset, committed)

    def _read(self, topic: str, partition: int | None, offset: int | None, committed: bool) -> Iterator[LogRecord]:
        if partition is not None:
            yield from self._read_partition(topic, partition, offset, committed)
            return
        for index in range(self._partition_count(topic)):
            yield from self._read_partition(topic, index, None, committed)

    def _read_partition(self, topic: str, index: int, offset: int | None, committed: bool) -> Iterator[LogRecord]:
        while True:
            part = self._look(topic, index, offset, committed)
            found = part.found.finish() if isinstance(part.found, ColdRead) else part.found
            if found is None:
                return
            offset = position = part.offset
            aborted = AbortedRecords(part.aborted)
            data = memoryview(found.file.read(found.position, found.length))
            for start_of_batch, header in batches_in(data):
                batch = data[start_of_batch : start_of_batch + header.size]
                if not crc_is_right(batch, 0, header.size):
                    raise _damaged(found, topic, index, header.base_offset, header.last_offset, "the CRC is wrong")
                if not aborted.skips(header, batch) and not header.control:
                    for record in records_in(batch):
                        if record.offset >= offset:
                            yield LogRecord(*record, index)
                offset = max(offset, header.next_offset)
            if offset == position:
                raise _damaged(found, topic, index, offset, offset, "no whole batch is there")

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        """The number of partitions of each topic, sorted by name. With `internal`, also of the broker's own topics."""

        def start(server: Server, done: Callable[[dict[str, int] | Exception], None]) -> None:
            topics = server.node.image.sorted_topics()
            done({topic.name: len(topic.partitions) for topic in topics if internal or not topic.internal})

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def start_offset(self, topic: str, partition: int) -> int:
        """The partition's first offset, at which `read` begins."""
        return self._ask_partition(topic, partition, lambda found: found.replica.log.offsets.start)

    def end_offset(self, topic: str, partition: int) -> int:
        """The partition's high watermark, at which `read` ends."""
        return self._ask_partition(topic, partition, lambda found: found.replica.high_watermark)

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads the partition, as this broker knows it; -1: none."""
        _, leader = self.leader_at_revision(topic, partition)
        if leader is None:
            raise no_such_partition(topic, partition)
        return leader

    def leader_at_revision(self, topic: str, partition: int) -> tuple[int, int | None]:
        """The revision of the metadata that this broker knows, and the leader at that revision: -1 without a leader,
        None without the partition."""
        check_type("topic", topic, str)
        check_type("partition", partition, int)

        def start(server: Server, done: Callable[[tuple[int, int | None] | Exception], None]) -> None:
            image = server.node.image
            found = image.partition_of(topic, partition)
            done((image.revision, None if found is None else image.leadership(found).leader))

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def brokers(self) -> list[int]:
        """The ids of the brokers that can lead partitions, as this broker knows them, sorted."""

        def start(server: Server, done: Callable[[list[int] | Exception], None]) -> None:
            done(server.node.image.electable_brokers())

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def _ask_partition(self, topic: str, partition: int, question: Callable[[Partition], int]) -> int:
        check_type("topic", topic, str)
        check_type("partition", partition, int)

        def start(server: Server, done: Callable[[int | Exception], None]) -> None:
            done(question(server.node.hosted.leader(topic, partition)))

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def _partition_count(self, topic: str) -> int:
        def start(server: Server, done: Callable[[int | Exception], None]) -> None:
            found = server.node.image.topics.get(topic)
            if found is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}.")
            done(len(found.partitions))

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def _look(self, topic: str, index: int, offset: int | None, committed: bool) -> _Part:
        def start(server: Server, done: Callable[[_Part | Exception], None]) -> None:
            done(_part(server.node.hosted.leader(topic, index), offset, committed))

        return self._calls.ask(start, DEFAULT_TIMEOUT_S)

    def _choose(self, count: int, partition: int | None, key: bytes | None) -> int:
        """The partition for a record, of `count` partitions."""
        if partition is not None:
            return partition
        return next(self._without_key) % count if key is None else partition_of(key, count)


# In the loop


def _damaged(found: LogSlice, topic: str, index: int, first: int, last: int, reason: str) -> DamagedLog:
    return DamagedLog(
        f"{topic}-{index}: offsets {first} to {max(first, last)} are damaged ({found.file.path}: {reason}); "
        f"what follows can be read from offset {max(first, last) + 1} on"
    )


def _part(partition: Partition, offset: int | None, committed: bool) -> _Part:
    replica = partition.replica
    log = replica.log
    if offset is None:
        offset = log.offsets.start
    end_offset = replica.last_stable_offset if committed else replica.high_watermark
    found: LogSlice | ColdRead | None
    try:
        found = log.read(offset, READ_BYTES, end_offset=end_offset, minimum_one_batch=True)
    except ColdRead as cold:
        found = cold
    if not committed or found is None:
        return _Part(offset, found, [])
    if isinstance(found, LogSlice):
        return _Part(offset, found, log.aborts.in_slice(found, offset, end_offset))
    return _Part(offset, found, log.aborts.between(offset, end_offset))
