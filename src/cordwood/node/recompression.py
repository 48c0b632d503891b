"""Batches on their way into topics whose compression.type names a codec: compressed anew outside of the loop.

A batch that has that codec already is not touched. Batches of a request are compressed together, in a thread; the
request is appended when it has its turn in all its partitions (`PartitionOrder`), so acks, sequences and
transactions are decided at append, as for any other request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.partition import Partition
from cordwood.node.partition_order import PartitionOrder
from cordwood.records.batch import Buffer, Codec
from cordwood.records.recompression import codec_of, level_of, needs_recompression, recompress

if TYPE_CHECKING:
    from cordwood.cluster.image import TopicImage
    from cordwood.node.node import Node

Recompressed = memoryview | ProtocolError
"""A batch as the log is to take it, or why it is refused."""


class _Task(NamedTuple):
    """One batch and what is to be made of it; without a codec it stays as it is."""

    batch: memoryview
    codec: Codec | None
    level: int | None
    max_bytes: int


class _Request:
    __slots__ = ("outcome", "ready", "reserved_bytes", "tasks")

    def __init__(self, tasks: list[_Task], reserved_bytes: int) -> None:
        self.tasks = tasks
        self.reserved_bytes = reserved_bytes
        self.outcome: list[Recompressed] = []
        self.ready: Callable[[], None] = lambda: None


class Recompression:
    """At most queued.max.request.bytes are reserved for compressed batches that are made or wait for their turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics: set[str] = set()
        """Those with a codec of their own."""
        self._order = PartitionOrder()
        self._waiting: deque[_Request] = deque()
        self._reserved_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no request needs to come here: no topic wants it, and nobody waits who might be overtaken."""
        return not self._topics and not self._order

    def topic_settled(self, topic: TopicImage) -> None:
        """The topic was created or its settings changed."""
        if codec_of(topic.settings) is None:
            self._topics.discard(topic.name)
        else:
            self._topics.add(topic.name)

    def topic_deleted(self, name: str) -> None:
        self._topics.discard(name)

    def concerns(self, batches: Sequence[tuple[Partition, Buffer]]) -> bool:
        """Whether these batches, of one request, cannot be appended right now."""
        return self._order.busy(partition for partition, _ in batches) or any(
            codec is not None and needs_recompression(batch, codec)
            for partition, batch in batches
            if (codec := codec_of(partition.settings)) is not None
        )

    def in_turn(
        self, batches: Sequence[tuple[Partition, memoryview]], go: Callable[[list[Recompressed]], None]
    ) -> None:
        """Calls `go` with what became of each batch, when it is the turn of their request. The batches are kept."""
        tasks = [_task(partition, batch) for partition, batch in batches]
        settings = self._node.settings
        most = sum(max(task.max_bytes, len(task.batch)) for task in tasks if task.codec is not None)
        request = _Request(tasks, min(most, settings.socket_request_max_bytes))

        def turn() -> None:
            self._reserved_bytes -= request.reserved_bytes
            go(request.outcome)
            self._start()

        request.ready = self._order.enter((partition for partition, _ in batches), turn)
        self._waiting.append(request)
        self._start()

    def _start(self) -> None:
        """Begins with requests, in the order in which they came, as far as there is memory for what they become."""
        limit = self._node.settings.queued_max_request_bytes
        while self._waiting and (
            not self._reserved_bytes or self._reserved_bytes + self._waiting[0].reserved_bytes <= limit
        ):
            request = self._waiting.popleft()
            self._reserved_bytes += request.reserved_bytes
            self._compress(request)

    def _compress(self, request: _Request) -> None:
        if all(task.codec is None for task in request.tasks):
            request.outcome = [task.batch for task in request.tasks]
            request.ready()
            return

        def done(result: list[Recompressed] | Exception) -> None:
            if isinstance(result, Exception):
                self._node.report_storage_failure(result)
                failure = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The batch could not be compressed: {result}")
                result = [failure] * len(request.tasks)
            request.outcome = result
            request.tasks = []
            request.ready()

        self._node.effects.compressing(lambda: _compress_all(request.tasks, request.reserved_bytes), done)


def _task(partition: Partition, batch: memoryview) -> _Task:
    settings = partition.settings
    codec = codec_of(settings)
    if codec is None or not needs_recompression(batch, codec):
        return _Task(batch, None, None, 0)
    return _Task(batch, codec, level_of(settings, codec), settings.max_message_bytes)


def _compress_all(tasks: list[_Task], left_bytes: int) -> list[Recompressed]:
    """Runs in a thread. Small batches can grow a thousandfold; together they get no larger than a request may be."""
    outcome: list[Recompressed] = []
    for batch, codec, level, max_bytes in tasks:
        if codec is None:
            outcome.append(batch)
            continue
        try:
            renewed = memoryview(recompress(batch, codec, level, min(max_bytes, max(left_bytes, len(batch)))))
        except ProtocolError as refusal:
            outcome.append(refusal)
            continue
        left_bytes -= len(renewed)
        outcome.append(renewed)
    return outcome
