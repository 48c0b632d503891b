"""Fetch: one answer, or all of a range of offsets with the next request on its way while the caller decodes.

Order is that of the partition. What a range no longer holds (compaction, aborted and control batches are passed on as
they are) is no loss and no reason to wait; what it does not hold yet is waited for, for `retry_timeout_ms`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.client.answers import EARLIEST, LATEST, Fetched, Isolation
from cordwood.client.batch_walk import bytes_before, offset_after, whole_batches
from cordwood.client.brokers import Brokers
from cordwood.client.errors import (
    BrokerUnreachable,
    ClientError,
    EndNotReached,
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


class _Asked(NamedTuple):
    """A fetch on its way."""

    link: Link
    pending: Pending
    partition: TopicPartition
    offset: int


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

    def ask(self, offset: int, max_bytes: int) -> _Asked:
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
        return _Asked(link, pending, self._partition, offset)

    def _check_same_topic(self, topic_id: TopicId | None) -> None:
        # Offsets mean nothing in another topic of the same name.
        if self._topic_id is not None and topic_id != self._topic_id:
            name = self._partition.topic
            raise UnknownTopic(name, f"topic {name} was deleted and created again while it was being read")
        self._topic_id = topic_id

    def take(self, asked: _Asked) -> Fetched:
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
                f"{asked.link.name} sent bytes for {asked.partition} that are no batches: {reason}"
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


_FIRST_GUESS_BYTES = 1024
_LEAST_ASKED_BYTES = 64 * 1024


class _Appetite:
    """How many bytes to ask for. The end of a range may lie in the middle of a large partition, and whatever is sent
    beyond it is thrown away, so that near the end only about as much is asked for as should be left."""

    def __init__(self, end_offset: int, max_bytes: int) -> None:
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._bytes_per_offset = float(_FIRST_GUESS_BYTES)

    def learn(self, size: int, offsets: int) -> None:
        self._bytes_per_offset = size / offsets

    def at(self, position: int) -> int:
        left = (self._end_offset - position) * self._bytes_per_offset
        return min(self._max_bytes, max(_LEAST_ASKED_BYTES, int(left * 1.0625)))


def stream(
    brokers: Brokers,
    partition: TopicPartition,
    start_offset: int,
    end_offset: int,
    *,
    isolation: Isolation,
    max_bytes: int | None,
    read_ahead: int,
) -> Iterator[Fetched]:
    """The batches of [start_offset, end_offset), in order; the first and the last may reach beyond it."""
    reader = Reader(brokers, partition, isolation)
    attempts = Attempts(brokers.settings)
    appetite = _Appetite(end_offset, max_bytes or brokers.settings.fetch_max_bytes)
    position = start_offset
    asked: _Asked | None = None
    try:
        while position < end_offset:
            try:
                if asked is None:
                    asked = reader.ask(position, appetite.at(position))
                taken, asked = asked, None
                fetched = reader.take(taken)
            except (BrokerUnreachable, RequestRefused) as failure:
                reader.recover(failure, position, attempts)
                continue
            if not fetched.records:
                reached = _readable_end(fetched, isolation)
                if reached >= end_offset and _holds_nothing(brokers, partition, position, reached, isolation):
                    return
                attempts.pause(_end_not_reached(partition, position, end_offset, fetched, isolation))
                continue
            attempts.progress()
            appetite.learn(len(fetched.records), fetched.next_offset - max(fetched.base, position))
            position = fetched.next_offset
            if position >= end_offset:
                fetched = _cut(fetched, end_offset)
                if fetched.records:
                    yield fetched
                return
            if read_ahead:
                asked = _ask_ahead(reader, position, appetite)
            yield fetched
    finally:
        if asked is not None:
            asked.pending.forget()


def _ask_ahead(reader: Reader, position: int, appetite: _Appetite) -> _Asked | None:
    try:
        return reader.ask(position, appetite.at(position))
    except ClientError:
        # What is at hand comes first; the next round meets the same trouble, and deals with it.
        return None


def _cut(fetched: Fetched, end_offset: int) -> Fetched:
    """Without the batches from this offset on. The one that holds the offset before it stays whole."""
    records = fetched.records[: bytes_before(fetched.records, end_offset)]
    if len(records) == len(fetched.records):
        return fetched
    next_offset = offset_after(records, whole_batches(records)[1]) if records else fetched.base
    return fetched._replace(records=records, next_offset=next_offset)


def _holds_nothing(brokers: Brokers, partition: TopicPartition, position: int, end: int, isolation: Isolation) -> bool:
    """Whether there is no batch from `position` to `end`, where the log ends for this reader: compaction has removed
    the tail.

    A fetch without records is no proof of it, since a broker that throttles, or that waits for remote storage, answers
    so too. Then the last offset still has its batch, which is in the part of the log that no broker waits for.
    """
    for offset in (end - 1, position):
        if fetch(brokers, partition, offset, max_bytes=None, max_wait_ms=None, isolation=isolation).records:
            return False
    return True


def _readable_end(fetched: Fetched, isolation: Isolation) -> int:
    committed = isolation == Isolation.READ_COMMITTED
    return fetched.last_stable_offset if committed else fetched.high_watermark


def _end_not_reached(
    partition: TopicPartition, reached: int, asked: int, fetched: Fetched, isolation: Isolation
) -> EndNotReached:
    if isolation == Isolation.READ_COMMITTED and fetched.high_watermark > fetched.last_stable_offset:
        reason = (
            f"an open transaction holds back what lies beyond offset {fetched.last_stable_offset} "
            "(last stable offset): it has to be committed or aborted first"
        )
    elif fetched.high_watermark < asked:
        reason = f"the partition ends at offset {fetched.high_watermark} (high watermark)"
    else:
        reason = f"the broker has records up to offset {fetched.high_watermark} and does not send them"
    return EndNotReached(
        partition,
        reached,
        asked,
        f"{partition} was to be read up to offset {asked} and could be up to {reached}: {reason}",
    )
