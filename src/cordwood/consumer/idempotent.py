"""A consumer whose effects happen exactly once: a record's effect and the position after it are one transaction.

The position that counts is in the user's database, beside the effects. On assignment the consumer takes its partitions
over there and reads from the positions that it finds. Positions are also committed to the broker, which shows the
group's lag and confirms that the consumer is still a member.

Two consumers may both believe to own a partition, one of them a zombie. Each takes the partition in the database, then
has its membership confirmed by the broker, and only then writes, with the fence that it got. A zombie is not confirmed;
a consumer that became a zombie after its confirmation finds its fence gone.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from cordwood.consumer.positions import Connection, Held, Place, SqlPositions

Handle = Callable[[Any, Message], None]
"""Takes a cursor of the connection's own driver, and a message. Any, since a handler that is typed by its driver's
cursor (`sqlite3.Cursor`) takes no other, and each driver has its own."""

TIMEOUT_S = 30.0
NOT_CONFIRMED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
        KafkaError._DESTROY,
        KafkaError._STATE,
    }
)
"""Errors of a commit by a client that is no member, or not in this generation, or whose membership is unknown now."""
PASSING = NOT_CONFIRMED | {KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED}
"""Errors that the client library reports and recovers from by itself."""

CONNECTING = (
    "bootstrap.servers",
    "metadata.broker.list",
    "security.",
    "sasl.",
    "ssl.",
    "enable.s",
    "oauth",
    "socket.",
    "broker.",
    "client.",
)
"""Prefixes of the settings for addresses of brokers and for security."""

_Partition = tuple[str, int]


class PositionLost(Exception):
    """The log no longer has the record at the stored position: retention was quicker, or the topic was cut."""


class _Fenced(Exception):
    def __init__(self, partition: _Partition) -> None:
        self.partition = partition


class IdempotentConsumer:
    """A member of a group, used from one thread. A context manager: at the end it leaves the group."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Iterable[str],
        connection: Connection,
        *,
        paramstyle: str | None = None,
    ) -> None:
        """`settings` are confluent-kafka's; `auto.offset.reset` (earliest, if not given) says where a group begins.

        `connection` is a DB-API connection that is used for nothing else meanwhile.
        """
        self._group = str(settings["group.id"])
        self._begins_at = str(settings.get("auto.offset.reset", "earliest"))
        strategy = str(settings.get("partition.assignment.strategy", ""))
        self._incremental = settings.get("group.protocol") == "consumer" or "cooperative" in strategy
        self._positions = SqlPositions(connection, paramstyle)
        self._positions.create_table()
        self._held: dict[_Partition, Held] = {}
        self._places: dict[_Partition, Place] = {}
        self._unconfirmed: set[_Partition] = set()
        self._behind: set[_Partition] = set()
        """Partitions whose last records from the client library were not handled: the library has to seek back."""
        self._flowing: set[_Partition] = set()
        """Partitions with records handled since the library's last seek: before, it may report an older position."""
        self._untaken: set[_Partition] = set()
        """Partitions that were assigned and could not be taken over yet."""
        self._lost: dict[_Partition, str] = {}
        """Partitions whose position the log does not have: raised at every poll until it is revoked."""
        # A position is always given. If the log does not have it, an error is raised, and no record is skipped
        # silently.
        own = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
        self._admin = AdminClient({name: each for name, each in settings.items() if name.startswith(CONNECTING)})
        # Altered bytes must not become effects: librdkafka checks no checksum unless it is told to.
        self._consumer = Consumer({"check.crcs": True, **settings, **own})
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group. The database connection stays open: it is the user's."""
        self._consumer.close()

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The partitions that this consumer owns now, as topic and partition, with the next offset of each."""
        return {partition: held.next_offset for partition, held in self._held.items()}

    def poll(self, handle: Handle, *, max_records: int = 500, timeout_s: float = 1.0) -> int:
        """Calls `handle(cursor, message)` for the next records, in one transaction with their positions.

        Returns how many. If `poll` or `handle` raises, the database is unchanged, and the same records come again.
        """
        messages: list[Message] | None = None
        try:
            messages = self._consumer.consume(max_records, timeout_s)
            return self._handled(messages, handle)
        except BaseException:
            # An interrupted consume may have taken any records, which are lost to the caller.
            self._behind |= self._held.keys() & (self._held if messages is None else map(_partition, messages))
            self._seek()
            raise

    def _handled(self, messages: list[Message], handle: Handle) -> int:
        if self._untaken:
            self._take_untaken()
        batches = self._batches(messages)
        self._drop_recreated(batches)
        for reason in self._lost.values():
            raise PositionLost(reason)
        after = self._confirmed(self._after(batches))
        self._seek()
        if not after:
            return 0
        handled = [message for partition in after for message in batches.get(partition, ())]
        try:
            with self._positions.transaction() as cursor:
                for partition, next_offset in after.items():
                    place, held = self._places[partition], self._held[partition]
                    if not self._positions.advance(cursor, place, held, next_offset):
                        raise _Fenced(partition)
                for message in handled:
                    handle(cursor, message)
        except _Fenced as lost:
            # A zombie took the partition, or the answer to a commit was lost: the database has the true position.
            self._behind.update(after)
            self._take(lost.partition)
            self._seek()
            return 0
        for partition, next_offset in after.items():
            self._held[partition] = self._held[partition]._replace(next_offset=next_offset)
        self._consumer.commit(offsets=_partitions(after), asynchronous=True)
        return len(handled)

    # Records

    def _batches(self, messages: list[Message]) -> dict[_Partition, list[Message]]:
        """The records to handle, by partition: only those of held partitions, and none a second time."""
        batches: dict[_Partition, list[Message]] = {}
        for message in messages:
            error, partition = message.error(), _partition(message)
            held = self._held.get(partition)
            if error is not None:
                if error.code() != KafkaError._AUTO_OFFSET_RESET:
                    _raise_if_serious(error)
                elif held is not None:
                    self._lost[partition] = f"{partition[0]}-{partition[1]}: {error.str()}"
                continue
            batch = batches.get(partition, [])
            if (
                held is None
                or partition in self._behind
                or _offset(message) < (_offset(batch[-1]) + 1 if batch else held.next_offset)
            ):
                continue
            batches.setdefault(partition, []).append(message)
        return batches

    def _drop_recreated(self, batches: dict[_Partition, list[Message]]) -> None:
        """Drops records of a topic that was created anew meanwhile: they come from its middle, and it has to be read
        from its beginning.

        The topic id is asked for after the records came: they belong to the present topic or to an earlier one.
        """
        partitions = [*batches, *(self._lost.keys() - batches.keys())]
        names = sorted({topic for topic, _ in partitions})
        described = self._admin.describe_topics(TopicCollection(names)) if names else {}
        recreated: list[_Partition] = []
        for name in names:
            try:
                topic_id = str(described[name].result(TIMEOUT_S).topic_id)
            except KafkaException as gone:
                if gone.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                continue
            for partition in partitions:
                if partition[0] != name or self._places[partition].topic_id == topic_id:
                    continue
                self._places[partition] = self._places[partition]._replace(topic_id=topic_id)
                self._take(partition, partial(self._beginning, partition))
                self._lost.pop(partition, None)
                batches.pop(partition, None)
                recreated.append(partition)
        if recreated:
            if self._incremental:
                self._consumer.incremental_unassign(_partitions(dict.fromkeys(recreated, 0)))
            self._read(recreated)

    def _after(self, batches: dict[_Partition, list[Message]]) -> dict[_Partition, int]:
        """The position of each partition after these records: behind them and the markers that follow."""
        self._flowing.update(batches)
        read = sorted((self._flowing & self._held.keys()) - self._behind)
        after: dict[_Partition, int] = {}
        for partition, reached in zip(read, self._consumer.position(_partitions(dict.fromkeys(read, 0))), strict=True):
            batch, held = batches.get(partition), self._held[partition]
            next_offset = max(_offset(batch[-1]) + 1 if batch else held.next_offset, reached.offset)
            if next_offset > held.next_offset:
                after[partition] = next_offset
        return after

    def _confirmed(self, after: dict[_Partition, int]) -> dict[_Partition, int]:
        """The positions in partitions for which the broker confirmed, after they were taken over, that this consumer is
        a member."""
        asked = self._unconfirmed & after.keys()
        if not asked:
            return after
        positions = {partition: self._held[partition].next_offset for partition in sorted(asked)}
        try:
            answers = self._consumer.commit(offsets=_partitions(positions), asynchronous=False)
        except KafkaException as refusal:
            if refusal.args[0].code() not in NOT_CONFIRMED:
                raise
            refused = asked
        else:
            refused = {(each.topic, each.partition) for each in answers or () if each.error is not None} & asked
        self._unconfirmed -= asked - refused
        self._behind |= refused
        return {partition: offset for partition, offset in after.items() if partition in self._held.keys() - refused}

    def _seek(self) -> None:
        """Seeks the library to the positions in the database."""
        self._flowing -= self._behind
        for partition in sorted(self._behind):
            try:
                self._consumer.seek(TopicPartition(*partition, self._held[partition].next_offset))
            except KafkaException:
                # The library does not read this partition now: its fetch begins, or a revocation is coming. Tried again
                # later.
                continue
            self._behind.discard(partition)

    # Partitions

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._untaken.update((each.topic, each.partition) for each in partitions)
        # An exception in librdkafka's callback would be lost there: the next poll tries again, and raises.
        with suppress(Exception):
            self._take_untaken()

    def _take_untaken(self) -> None:
        """Takes over assigned partitions as far as the database allows, and begins to read them."""
        taken: list[_Partition] = []
        try:
            names = sorted({topic for topic, _ in self._untaken})
            described = self._admin.describe_topics(TopicCollection(names)) if names else {}
            for partition in sorted(self._untaken):
                topic, index = partition
                topic_id = str(described[topic].result(TIMEOUT_S).topic_id)
                self._places[partition] = Place(self._group, topic, topic_id, index)
                self._take(partition)
                taken.append(partition)
        finally:
            self._untaken.difference_update(taken)
            self._read(taken)

    def _read(self, taken: list[_Partition]) -> None:
        """Has the library read these partitions from the positions in the database."""
        begun = taken if self._incremental else list(self._held)
        self._flowing.difference_update(begun)
        assign = self._consumer.incremental_assign if self._incremental else self._consumer.assign
        assign(_partitions({partition: self._held[partition].next_offset for partition in begun}))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            partition = each.topic, each.partition
            self._untaken.discard(partition)
            self._lost.pop(partition, None)
            self._flowing.discard(partition)
            self._held.pop(partition, None)
            self._unconfirmed.discard(partition)
            self._behind.discard(partition)
        if self._incremental:
            # By itself the library would also unassign partitions that could not be taken, and fail because it does not
            # have them.
            assigned = {(each.topic, each.partition) for each in consumer.assignment()}
            consumer.incremental_unassign([each for each in partitions if (each.topic, each.partition) in assigned])

    def _take(self, partition: _Partition, start_offset: Callable[[], int] | None = None) -> Held:
        start = start_offset or (lambda: self._start_offset(partition))
        held = self._held[partition] = self._positions.take(self._places[partition], start)
        self._unconfirmed.add(partition)
        return held

    def _start_offset(self, partition: _Partition) -> int:
        """The start offset of a group that is new to the database: its committed position at the broker, else
        auto.offset.reset."""
        (committed,) = self._consumer.committed([TopicPartition(*partition)], timeout=TIMEOUT_S)
        if committed.offset >= 0:
            return int(committed.offset)
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=TIMEOUT_S)
        return int(high if self._begins_at in ("latest", "largest", "end") else low)

    def _beginning(self, partition: _Partition) -> int:
        low, _ = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=TIMEOUT_S)
        return int(low)


def _partition(message: Message) -> _Partition:
    return message.topic() or "", message.partition() or 0


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _partitions(offsets: Mapping[_Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*partition, offset) for partition, offset in offsets.items()]


def _raise_if_serious(error: KafkaError) -> None:
    if error.fatal() or not (error.retriable() or error.code() in PASSING):
        raise KafkaException(error)
