"""Prepares batches that need work outside of the loop before they are appended.

Two kinds of topics ask for preparation. Where compression.type names a codec, a batch with another codec is compressed
anew. Where single records matter (a compacted topic needs keys, message.timestamp.before.max.ms bounds the oldest
record), the records of a batch are checked: a few records in the loop, more in another process.

The batches of a request are prepared together. The request is appended when it has its turn (`PartitionOrder`):
requests of one connection keep their order in each partition, and requests of other connections are not held up. Acks,
sequences and transactions are decided at append, as for any other request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.log.reading.record_work import RecordWork
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.partition_order import PartitionOrder
from cordwood.records.batch import Buffer
from cordwood.records.preparing import Prepared, Task, prepare_each
from cordwood.records.recompression import codec_of, level_of, needs_recompression
from cordwood.records.record_rules import LookedAt, RecordRules, Refusal, look_briefly, rules_of
from cordwood.records.validate import refused

RECORDS_IN_LOOP = 256
BYTES_IN_LOOP = 64 * 1024
HEADERS_IN_LOOP = 256
"""The most of one request that the loop opens, in half a millisecond. A process checks larger requests."""

Outcome = memoryview | ProtocolError
"""A batch ready for the log, or the reason why it is refused."""


class _Request:
    __slots__ = ("batches", "connection_id", "outcome", "ready", "reserved_bytes", "tasks")

    def __init__(
        self, connection_id: int, batches: list[memoryview], tasks: list[Task | None], reserved_bytes: int
    ) -> None:
        self.connection_id = connection_id
        self.batches = batches
        self.tasks = tasks
        """One task for each batch; None: the batch stays as it is."""
        self.reserved_bytes = reserved_bytes
        self.outcome: list[Outcome] = []
        self.ready: Callable[[], None] = lambda: None


class Preparation:
    """The requests in preparation. At most queued.max.request.bytes are reserved for their batches."""

    def __init__(self, loop: Loop, image: ClusterImage, reports: Reports, apart: RecordWork) -> None:
        self._loop = loop
        self._image = image
        self._reports = reports
        self._apart = apart
        self._topics: set[str | TopicId] = set()
        """Topics that ask for preparation, by name and by id."""
        self._order = PartitionOrder()
        self._waiting: deque[_Request] = deque()
        self._reserved_bytes = 0

    def topic_settled(self, topic: TopicImage) -> None:
        """Notes a new or changed topic that may ask for preparation."""
        names = (topic.name, topic.topic_id)
        if _asks_for_it(topic.settings) and topic.name not in INTERNAL_TOPICS:
            self._topics.update(names)
        else:
            self._topics.difference_update(names)

    def topic_deleted(self, topic: TopicImage) -> None:
        self._topics.difference_update((topic.name, topic.topic_id))

    def may_concern(self, topics: Sequence[tuple[str | TopicId, object]]) -> bool:
        """True if a request that names these topics may need preparation. Cheap, and nearly always False."""
        if self._order.queues:
            return True
        return bool(self._topics) and any(topic in self._topics for topic, _ in topics)

    def at_once(self, connection_id: int, batches: Sequence[tuple[Partition, memoryview]]) -> list[memoryview] | None:
        """The batches of a request, ready to be appended now; None if the request needs `in_turn`."""
        if self._order.busy((partition, connection_id) for partition, _ in batches):
            return None
        records, size, headers = RECORDS_IN_LOOP, BYTES_IN_LOOP, HEADERS_IN_LOOP
        ready: list[memoryview] = []
        for partition, batch in batches:
            settings = partition.settings
            codec = codec_of(settings)
            if codec is not None and needs_recompression(batch, codec):
                return None
            if not settings.looks_at_records:
                ready.append(batch)
                continue
            rules = rules_of(settings, self._loop.now.wall_ms)
            taken = look_briefly(batch, rules, max_records=records, max_bytes=size, max_headers=headers)
            if taken is None:
                return None
            records, size, headers = (
                records - taken.records,
                size - taken.uncompressed_bytes,
                headers - taken.headers,
            )
            # A refused batch stays as it is: the log finds the same fault, after faults of the header.
            ready.append(batch if taken.refusal is not None else memoryview(LookedAt(batch)))
        return ready

    def in_turn(
        self,
        connection_id: int,
        batches: Sequence[tuple[Partition, memoryview]],
        go: Callable[[list[Outcome]], None],
    ) -> None:
        """Calls `go` with the outcome for each batch when the request has its turn. The batches are kept."""
        tasks = [self._task(partition, batch) for partition, batch in batches]
        settings = self._image.settings
        most = sum(max(task.max_bytes, len(task.batch)) for task in tasks if task is not None)
        request = _Request(
            connection_id, [batch for _, batch in batches], tasks, min(most, settings.socket_request_max_bytes)
        )

        def turn() -> None:
            self._reserved_bytes -= request.reserved_bytes
            go(request.outcome)
            self._start()

        request.ready = self._order.enter(((partition, connection_id) for partition, _ in batches), turn)
        self._waiting.append(request)
        self._start()

    def _task(self, partition: Partition, batch: Buffer) -> Task | None:
        settings = partition.settings
        rules: RecordRules | None = None
        if settings.looks_at_records:
            rules = rules_of(settings, self._loop.now.wall_ms)
        codec = codec_of(settings)
        if codec is None or not needs_recompression(batch, codec):
            return None if rules is None else Task(batch, rules, None)
        return Task(batch, rules, codec, level_of(settings, codec), settings.max_message_bytes)

    def _start(self) -> None:
        """Starts requests in the order of arrival, as far as there is memory for the prepared batches."""
        limit = self._image.settings.queued_max_request_bytes
        while self._waiting and (
            not self._reserved_bytes or self._reserved_bytes + self._waiting[0].reserved_bytes <= limit
        ):
            request = self._waiting.popleft()
            self._reserved_bytes += request.reserved_bytes
            self._prepare(request)

    def _prepare(self, request: _Request) -> None:
        tasks = [task for task in request.tasks if task is not None]
        apart = self._apart

        def done(result: list[Prepared] | Exception) -> None:
            if isinstance(result, Exception):
                self._reports.failure(result)
                request.outcome = [ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(result))] * len(request.batches)
            else:
                request.outcome = _outcome(request, result)
            request.tasks, request.batches = [], []
            request.ready()

        def work() -> list[Prepared]:
            # A request without a task goes through a thread, too: otherwise many requests behind one would be appended
            # in one turn.
            if not tasks:
                return []
            as_bytes = [task._replace(batch=bytes(task.batch)) for task in tasks]
            return apart.call(prepare_each, as_bytes, request.reserved_bytes)

        self._loop.effects.for_client(request.connection_id, work, done)


def _asks_for_it(settings: TopicSettings) -> bool:
    return settings.looks_at_records or codec_of(settings) is not None


def _outcome(request: _Request, prepared: list[Prepared]) -> list[Outcome]:
    outcome: list[Outcome] = []
    results = iter(prepared)
    for batch, task in zip(request.batches, request.tasks, strict=True):
        result = None if task is None else next(results)
        if isinstance(result, Refusal):
            outcome.append(refused(result))
        elif task is None or (result is None and task.rules is None):
            outcome.append(batch)
        else:
            new = bytearray(batch if result is None else result)
            outcome.append(memoryview(new if task.rules is None else LookedAt(new)))
    return outcome
