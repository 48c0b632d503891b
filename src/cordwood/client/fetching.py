"""Fetch: requests to the leader of a partition, and their answers."""

from typing import NamedTuple

from cordwood.client.answers import EARLIEST, LATEST, Fetched, Isolation
from cordwood.client.batch_walk import offset_after, whole_batches
from cordwood.client.brokers import Brokers
from cordwood.client.errors import (
    BrokerUnreachable,
    ClientError,
    DamagedRecords,
    OffsetOutOfRange,
    RequestRefused,
    UnknownTopic,
    error_code,
    refusal,
)
from cordwood.client.fetch_requests import FetchRequest, Wanted, send_fetch
from cordwood.client.offsets import list_offsets
from cordwood.client.retries import LEADER_MOVED, PASSING, Attempts
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.corruption import CorruptRecords
from cordwood.wire.apis import ApiKey
from cordwood.wire.fetched import FetchedPartition

_NOTHING = memoryview(b"")


class Asked(NamedTuple):
    """A fetch on its way."""

    request: FetchRequest
    offset: int
    max_bytes: int
    shared: bool
    """True if the request names other partitions, too: their records may have taken all the room of the answer."""


class Reader:
    """Sends fetches of one partition and reads their answers."""

    def __init__(
        self,
        brokers: Brokers,
        partition: TopicPartition,
        isolation: Isolation,
        max_wait_ms: int | None = None,
    ) -> None:
        self.partition = partition
        self._brokers = brokers
        self._isolation = isolation
        self._max_wait_ms = brokers.settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        self._topic_id: TopicId | None = None

    def wanted(self, offset: int, max_bytes: int) -> Wanted:
        """The next fetch, with its leader. Raises errors for `recover`."""
        leader = self._brokers.leader(self.partition)
        # An offset has no meaning in another topic of the same name.
        if self._topic_id is not None and leader.topic_id != self._topic_id:
            name = self.partition.topic
            raise UnknownTopic(name, f"topic {name} was deleted and created again while it was being read")
        self._topic_id = leader.topic_id
        return Wanted(self.partition, leader, offset, max_bytes)

    def ask(self, offset: int, max_bytes: int) -> Asked:
        """Sends the request. Raises errors for `recover`."""
        request = send_fetch([self.wanted(offset, max_bytes)], self._isolation, self._max_wait_ms)
        return Asked(request, offset, max_bytes, shared=False)

    def take(self, asked: Asked) -> Fetched:
        """Waits for the answer. Raises errors for `recover`."""
        found = asked.request.take(self.partition)
        link = asked.request.link
        if found.error_code:
            about = link.was_asked(ApiKey.FETCH, f"of {self.partition} at offset {asked.offset}")
            raise refusal(error_code(found.error_code), about)
        try:
            return _fetched(found, asked.offset)
        except CorruptRecords as reason:
            raise ClientError(f"{link.name} sent bytes for {self.partition} that are no batches: {reason}") from None

    def recover(self, failure: ClientError, offset: int, attempts: Attempts) -> None:
        """Prepares for another attempt, or raises a final error."""
        if isinstance(failure, RequestRefused):
            if failure.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._out_of_range(offset) from failure
            if failure.code == ErrorCode.CORRUPT_MESSAGE:
                # A retry does not repair damage.
                raise DamagedRecords(self.partition, offset) from failure
            if failure.code not in PASSING:
                raise failure
            if failure.code in LEADER_MOVED:
                self._brokers.outdated([self.partition.topic])
        else:
            self._brokers.outdated([self.partition.topic])
        attempts.pause(failure)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        bounds = []
        for which in (EARLIEST, LATEST):
            found = list_offsets(self._brokers, {self.partition: which}, Isolation.READ_UNCOMMITTED)
            bounds.append(found[self.partition].offset if self.partition in found else -1)
        return OffsetOutOfRange(self.partition, offset, *bounds)


def _fetched(found: FetchedPartition, offset: int) -> Fetched:
    records = found.records
    base = next_offset = offset
    if isinstance(records, memoryview) and len(records):
        size, last = whole_batches(records)
        if size == 0:
            raise CorruptRecords(f"{len(records)} bytes without one whole batch")
        records = records[:size]
        base = int.from_bytes(records[:8], "big", signed=True)
        next_offset = offset_after(records, last)
        if next_offset <= offset:
            raise CorruptRecords(f"batches that end before offset {offset}, which was asked for")
    else:
        records = _NOTHING
    return Fetched(
        records,
        base,
        next_offset,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        tuple(found.aborted_transactions or ()),
    )


def fetch(
    brokers: Brokers,
    partition: TopicPartition,
    offset: int,
    *,
    max_bytes: int | None,
    max_wait_ms: int | None,
    isolation: Isolation,
) -> Fetched:
    """Fetches one answer, which may hold no batch."""
    reader = Reader(brokers, partition, isolation, max_wait_ms)
    attempts = Attempts(brokers.settings)
    while True:
        try:
            return reader.take(reader.ask(offset, max_bytes or brokers.settings.fetch_max_bytes))
        except (BrokerUnreachable, RequestRefused) as failure:
            reader.recover(failure, offset, attempts)
