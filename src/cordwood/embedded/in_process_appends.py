"""The way of records into the log of the broker in this process: batches are built in the caller's thread, and handed
over in the broker's loop.

`rounds` deals records to batches, one for each partition in a round, so that after a failure no partition has a record
without those before it. `append_batches` gives one round to the node, as a Produce request with acks=all would.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from cordwood.broker.server import Server
from cordwood.cluster.metadata_writer import CreatedTopic
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.node import Node
from cordwood.node.partitions.acks import ALL_REPLICAS
from cordwood.node.partitions.partition import Partition, no_such_partition
from cordwood.node.partitions.preparation import Outcome
from cordwood.records.batch import Buffer
from cordwood.records.build import NewRecord, build_batch

NO_CONNECTION: Final = 0
"""Takes the place of a connection's id, which is never 0. All threads of this process share it."""
BATCH_BYTES: Final = 1024 * 1024
"""The most bytes of a batch of several records, also where a topic takes more: the loop handles a batch in one go."""
ROUND_BYTES: Final = 4 * BATCH_BYTES
"""The most bytes of a round, which has several batches if the topic has several partitions."""
BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 32
"""No fewer bytes than the lengths, deltas and attributes of a record take."""

Content = bytes | str | None
Headers = Sequence[tuple[str, bytes | None]]
RecordToAppend = tuple[Content, Content] | tuple[Content, Content, Headers]
"""Key and value, or key, value and headers."""
Done = Callable[[list[int] | Exception], None]
"""Called with the offset of the first record of each batch, or with the reason of a failure."""


class RecordPlace(NamedTuple):
    """The partition and offset that a record got."""

    partition: int
    offset: int


class TopicBounds(NamedTuple):
    """The facts about a topic by which records are dealt to batches."""

    partition_count: int
    max_message_bytes: int


# Checks of arguments


def as_bytes(name: str, given: Content) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is not None and not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be bytes, str or None, not {type(given).__name__}")
    return given


def check_type(name: str, given: Any, *types: type) -> None:
    if not isinstance(given, types):
        raise TypeError(f"{name} must be {types[0].__name__}, not {type(given).__name__}")


def check_headers(headers: Headers) -> None:
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"headers must be pairs of a name and a value, not {type(header).__name__}")
        name, value = header
        check_type("a header's name", name, str)
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"the value of header {name!r} must be bytes or None, not {type(value).__name__}")


# In the caller's thread


class Round:
    """The records of one step: a batch for each partition, and the partition of each record."""

    def __init__(self) -> None:
        self.chosen: list[int] = []
        """The partition of each record, in the order given."""
        self._rows: dict[int, list[NewRecord]] = {}

    def batches(self) -> list[tuple[int, bytearray]]:
        return [(partition, build_batch(rows)) for partition, rows in self._rows.items()]

    def rows_of(self, partition: int) -> list[NewRecord]:
        return self._rows.setdefault(partition, [])

    def places(self, first_offsets: Sequence[int]) -> Iterator[RecordPlace]:
        """The place of each record, from the offsets of the first records of the batches."""
        following = dict(zip(self._rows, first_offsets, strict=True))
        for partition in self.chosen:
            offset = following[partition]
            following[partition] = offset + 1
            yield RecordPlace(partition, offset)


def rounds(
    records: Iterable[RecordToAppend],
    choose: Callable[[bytes | None], int],
    max_message_bytes: int,
    timestamp_ms: int | None,
) -> Iterator[Round]:
    """Deals records to rounds. Takes no more of `records` than the present round holds, and one."""
    batch_bytes = min(max_message_bytes, BATCH_BYTES)
    present, sizes, left = Round(), dict[int, int](), ROUND_BYTES
    wall_ms = _wall_ms() if timestamp_ms is None else timestamp_ms
    for record in records:
        key, value, headers = _parts(record)
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if headers:
            size += sum(RECORD_OVERHEAD + 4 * len(name) + len(content or b"") for name, content in headers)
        partition = choose(key)
        filled = sizes.get(partition, 0)
        if (filled and filled + size > batch_bytes) or (size > left and present.chosen):
            yield present
            present, sizes, left, filled = Round(), {}, ROUND_BYTES, 0
            wall_ms = _wall_ms() if timestamp_ms is None else timestamp_ms
        sizes[partition] = (filled or BATCH_OVERHEAD) + size
        left -= size
        present.chosen.append(partition)
        present.rows_of(partition).append((wall_ms, key, value, headers))
    if present.chosen:
        yield present


def _parts(record: RecordToAppend) -> tuple[bytes | None, bytes | None, Headers]:
    if not isinstance(record, tuple | list) or not 2 <= len(record) <= 3:
        raise TypeError(
            "a record must be a tuple of key and value, or of key, value and headers, not "
            + (f"{len(record)} elements" if isinstance(record, tuple | list) else type(record).__name__)
        )
    headers: Headers = record[2] if len(record) == 3 else ()
    if headers:
        check_headers(headers)
    return as_bytes("key", record[0]), as_bytes("value", record[1]), headers


def _wall_ms() -> int:
    return int(time.time() * 1000)


# In the loop


def with_topic(
    server: Server, name: str, use: Callable[[TopicBounds], None], failed: Callable[[Exception], None]
) -> None:
    """Calls `use` with the bounds of the topic, and creates the topic if needed."""
    node = server.node
    topics = node.image.topics

    def bounds() -> TopicBounds:
        return TopicBounds(len(topics[name].partitions), topics[name].settings.max_message_bytes)

    if name in topics:
        use(bounds())
        return
    if not node.settings.auto_create_topics_enable:
        raise no_such_partition(name, 0)

    def created(results: dict[str, CreatedTopic | ProtocolError] | Exception) -> None:
        refusal = results if isinstance(results, Exception) else results[name]
        try:
            if name in topics:
                use(bounds())
            else:
                assert isinstance(refusal, Exception)
                failed(refusal)
        except Exception as failure:
            failed(failure)

    node.loop.effects.metadata(lambda writer: writer.create_topics([NewTopic(name)]), created)


def append_batches(
    server: Server, topic: str, batches: Sequence[tuple[int, Buffer]], timeout_s: float, done: Done
) -> None:
    """Appends a batch to each of these partitions of a topic, and calls `done` when all are as safe as the topic asks
    for, or with the first failure."""
    node = server.node
    deadline_ms = node.now.boot_ms + int(timeout_s * 1000)
    sent = [(node.hosted.leader(topic, partition), memoryview(batch)) for partition, batch in batches]
    at_once = node.preparation.at_once(NO_CONNECTION, sent)
    if at_once is not None:
        _append_all(node, [partition for partition, _ in sent], at_once, deadline_ms, done)
        return

    def append_in_turn(outcome: Sequence[Outcome]) -> None:
        try:
            _append_all(node, [partition for partition, _ in sent], outcome, deadline_ms, done)
        except Exception as failure:
            done(failure)

    node.preparation.in_turn(NO_CONNECTION, sent, append_in_turn)


def _append_all(
    node: Node, partitions: Sequence[Partition], batches: Sequence[Outcome], deadline_ms: int, done: Done
) -> None:
    """Appends batches that their topic accepts, now that their turn has come."""
    first_offsets = [-1] * len(batches)
    waiting = len(batches)

    def safe(index: int, offset: int) -> None:
        nonlocal waiting
        first_offsets[index] = offset
        waiting -= 1
        if not waiting:
            done(first_offsets)

    for index, (partition, batch) in enumerate(zip(partitions, batches, strict=True)):
        if isinstance(batch, ProtocolError):
            raise batch
        if not node.hosted.hosts(partition):
            raise no_such_partition(*partition.name)
        appended, is_safe = node.appends.append(partition, batch, ALL_REPLICAS, node.now)
        if is_safe:
            safe(index, appended.base_offset)
            continue

        def acknowledged(
            error: ErrorCode, index: int = index, partition: Partition = partition, offset: int = appended.base_offset
        ) -> None:
            if error is ErrorCode.NONE:
                safe(index, offset)
            else:
                done(ProtocolError(error, f"{partition.name}: the record at {offset}: {error.name}"))

        node.acks.when_safe(partition, appended.last_offset, ALL_REPLICAS, deadline_ms, acknowledged)
