"""Fetch: a request to the leader of a partition, and what its answer holds."""

from typing import NamedTuple

from cordwood.client.answers import EARLIEST, LATEST, Fetched, Isolation
from cordwood.client.batch_walk import offset_after, whole_batches
from cordwood.client.brokers import Brokers
from cordwood.client.errors import (
    BrokerUnreachable,
    ClientError,
    OffsetOutOfRange,
    RequestRefused,
    UnknownTopic,
    error_code,
    refusal,
)
from cordwood.client.link import Link, Pending
from cordwood.client.offsets import list_offsets
from cordwood.client.retries import LEADER_MOVED, PASSING, Attempts
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.corruption import CorruptRecords
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import BadResponse, encode_request
from cordwood.wire.fetch import TOPIC_IDS_FROM, FetchedPartition
from cordwood.wire.fetch_response import decode_fetch_response

_NOTHING = memoryview(b"")


class Asked(NamedTuple):
    """A fetch on its way."""

    link: Link
    pending: Pending
    offset: int
    max_bytes: int


class Reader:
    """Fetches of one partition, with what they have in common."""

    def __init__(
        self,
        brokers: Brokers,
        partition: TopicPartition,
        isolation: Isolation,
        max_wait_ms: int | None = None,
    ) -> None:
        self._brokers = brokers
        self._partition = partition
        self._isolation = isolation
        self._max_wait_ms = brokers.settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        self._topic_id: TopicId | None = None

    def ask(self, offset: int, max_bytes: int) -> Asked:
        """Sends the request. Raises what `recover` understands."""
        link, topic_id, leader_epoch = self._brokers.leader(self._partition)
        self._check_same_topic(topic_id)
        at_most = None if topic_id is not None else TOPIC_IDS_FROM - 1
        version = link.versions.pick(ApiKey.FETCH, at_most)
        row = {
            "partition": self._partition.partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
        }
        values = {
            "max_wait_ms": self._max_wait_ms,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "isolation_level": int(self._isolation),
            "topics": [{"topic": self._partition.topic, "topic_id": topic_id, "partitions": [row]}],
        }
        body = encode_request(ApiKey.FETCH, version, values)
        pending = link.begin_encoded(ApiKey.FETCH, version, body, wait_ms=self._max_wait_ms)
        return Asked(link, pending, offset, max_bytes)

    def _check_same_topic(self, topic_id: TopicId | None) -> None:
        # Offsets mean nothing in another topic of the same name.
        if self._topic_id is not None and topic_id != self._topic_id:
            name = self._partition.topic
            raise UnknownTopic(name, f"topic {name} was deleted and created again while it was being read")
        self._topic_id = topic_id

    def take(self, asked: Asked) -> Fetched:
        """Waits for the answer. Raises what `recover` understands."""
        frame = asked.pending.frame()
        try:
            response = decode_fetch_response(asked.pending.version, frame)
        except BadResponse as reason:
            raise asked.pending.unreadable(reason) from reason
        about = asked.link.was_asked(ApiKey.FETCH, f"of {self._partition} at offset {asked.offset}")
        if response.error_code:
            raise refusal(error_code(response.error_code), about)
        found = next((partition for _, partitions in response.topics for partition in partitions), None)
        if found is None or found.partition != self._partition.partition:
            raise asked.pending.unreadable(BadResponse(f"the answer to a fetch of {self._partition} is about another"))
        if found.error_code:
            raise refusal(error_code(found.error_code), about)
        try:
            return _fetched(found, asked.offset)
        except CorruptRecords as reason:
            raise ClientError(
                f"{asked.link.name} sent bytes for {self._partition} that are no batches: {reason}"
            ) from None

    def recover(self, failure: ClientError, offset: int, attempts: Attempts) -> None:
        """Prepares for another attempt, or raises what cannot be helped."""
        if isinstance(failure, RequestRefused):
            if failure.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._out_of_range(offset) from failure
            if failure.code not in PASSING:
                raise failure
            if failure.code in LEADER_MOVED:
                self._brokers.outdated([self._partition.topic])
        else:
            self._brokers.outdated([self._partition.topic])
        attempts.pause(failure)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        bounds = []
        for which in (EARLIEST, LATEST):
            found = list_offsets(self._brokers, {self._partition: which}, Isolation.READ_UNCOMMITTED)
            bounds.append(found[self._partition].offset if self._partition in found else -1)
        return OffsetOutOfRange(self._partition, offset, *bounds)


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
    """One answer, which may hold no batch."""
    reader = Reader(brokers, partition, isolation, max_wait_ms)
    attempts = Attempts(brokers.settings)
    while True:
        try:
            return reader.take(reader.ask(offset, max_bytes or brokers.settings.fetch_max_bytes))
        except (BrokerUnreachable, RequestRefused) as failure:
            reader.recover(failure, offset, attempts)
