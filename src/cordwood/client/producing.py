"""Produce: sends ready batches to the leaders of their partitions, several requests at a time, with safe retries.

A request carries batches of many partitions and, as Kafka requires, at most one batch of each. Order holds within a
partition. Retries never store an idempotent batch twice; a batch without a producer id may be stored twice if a broker
is lost after it stored the batch and before it answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.client import transactions
from cordwood.client.answers import Produced, ProducerIdentity
from cordwood.client.brokers import Brokers, Leader
from cordwood.client.errors import BrokerUnreachable, ClientError, RequestRefused, error_code, refusal
from cordwood.client.lanes import Lane, OutgoingBatch
from cordwood.client.link import Link, Pending
from cordwood.client.retries import LEADER_MOVED, PASSING, Attempts
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from cordwood.records.batch import Buffer
from cordwood.wire.apis import ApiKey
from cordwood.wire.produce import TOPIC_IDS_FROM
from cordwood.wire.produce_request import encode_produce_request

if TYPE_CHECKING:
    from cordwood.wire.message_types.produce import Produce

MAX_REQUESTS_ON_THEIR_WAY: Final = 5
"""The most unanswered requests to one broker."""
_LAST_WITHOUT_IMPLICIT_ADD: Final = 11
_ANSWER_SLACK_MS: Final = 1_000
"""The broker gives up on slow replicas after the request's timeout; its answer needs a little longer."""


class _Request(NamedTuple):
    link: Link
    pending: Pending[Produce.Response]
    lanes: dict[tuple[str | TopicId, int], tuple[Lane, OutgoingBatch]]
    size: int


class ProducePipeline:
    """`send` returns once all batches are handed to the system, so that the caller can encode the next batches while
    brokers work; `finish` waits for all answers. An error ends the whole pipeline: nothing more is sent, and unanswered
    batches may have been stored or not."""

    def __init__(self, brokers: Brokers, *, acks: int, transactional_id: str | None) -> None:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1, 0 or 1, not {acks}")
        if transactional_id is not None and acks != -1:
            raise ValueError(f"a transaction needs acks=-1, not {acks}")
        self._brokers = brokers
        self._settings = brokers.settings
        self._acks = acks
        self._transactional_id = transactional_id
        self._announced: set[TopicPartition] | None = None
        """Partitions that the coordinator knows of; None if the coordinator need not be told."""
        self._lanes: dict[TopicPartition, Lane] = {}
        self._requests: deque[_Request] = deque()
        self._on_their_way_bytes = 0
        self._attempts = Attempts(brokers.settings)
        self._failed = False

    def send(self, batches: Mapping[TopicPartition, Sequence[Buffer]]) -> None:
        """Takes batches for their partitions, in order. The memory belongs to the pipeline until `finish` returns, or
        until the pipeline fails. Waits only while more than `max_in_flight_bytes`, or too many requests, are on their
        way."""
        added = {
            partition: [OutgoingBatch.of(data, partition) for data in of_partition]
            for partition, of_partition in batches.items()
        }
        self._attempts.progress()
        with _Failing(self):
            self._announce(added)
            for partition, of_partition in added.items():
                lane = self._lanes.setdefault(partition, Lane(partition))
                lane.waiting.extend(of_partition)
            while self._requests and self._requests[0].pending.has_arrived():
                self._take_answer()
            while any(lane.waiting for lane in self._lanes.values()):
                if not self._send_some():
                    self._take_answer()

    def finish(self) -> dict[TopicPartition, Produced]:
        """Waits for all answers. Returns the offsets of the stored batches by partition."""
        self._attempts.progress()
        with _Failing(self):
            while not all(lane.is_done for lane in self._lanes.values()):
                if not self._send_some():
                    self._take_answer()
        produced = {partition: lane.produced for partition, lane in self._lanes.items()}
        self._lanes.clear()
        return produced

    def abandon(self) -> None:
        """Gives up: drops all batches and answers."""
        self._failed = True
        for request in self._requests:
            request.pending.forget()
        self._requests.clear()
        self._lanes.clear()

    @property
    def failed(self) -> bool:
        return self._failed

    def _announce(self, added: Mapping[TopicPartition, Sequence[OutgoingBatch]]) -> None:
        """Tells the coordinator of new partitions, in clusters where a Produce does not."""
        if self._transactional_id is None:
            return
        if self._announced is None:
            if transactions.adds_partitions_itself(self._brokers):
                return
            self._announced = set()
        by_producer: dict[ProducerIdentity, list[TopicPartition]] = {}
        for partition, batches in added.items():
            if batches and partition not in self._announced:
                producer = ProducerIdentity(batches[0].producer_id, batches[0].producer_epoch)
                by_producer.setdefault(producer, []).append(partition)
        for producer, partitions in by_producer.items():
            transactions.add_partitions(self._brokers, self._transactional_id, producer, partitions)
            self._announced.update(partitions)

    # Sending.

    def _send_some(self) -> bool:
        """Sends one request to every broker that may get one. False: an answer has to be taken first."""
        if not all(request.pending.connection.is_open for request in self._requests):
            # Batches of a broken connection are sent again before new batches.
            return False
        by_leader: dict[Link, list[tuple[Lane, Leader]]] = {}
        failure: ClientError | None = None
        for lane in self._lanes.values():
            if lane.may_send:
                try:
                    leader = self._brokers.leader(lane.partition)
                except (BrokerUnreachable, RequestRefused) as reason:
                    failure = _if_passing(reason)
                else:
                    by_leader.setdefault(leader.link, []).append((lane, leader))
        sent = False
        for link, lanes in by_leader.items():
            on_their_way = sum(request.link is link for request in self._requests)
            if on_their_way >= MAX_REQUESTS_ON_THEIR_WAY:
                continue
            try:
                sent |= self._send_to(link, lanes)
            except BrokerUnreachable as reason:
                failure = reason
                self._brokers.outdated_at(link)
        if failure is not None and not sent and not self._requests:
            self._attempts.pause(failure)
            return True
        return sent

    def _send_to(self, link: Link, lanes: Sequence[tuple[Lane, Leader]]) -> bool:
        version = link.versions.pick(ApiKey.PRODUCE, self._at_most(lanes))
        by_id = version >= TOPIC_IDS_FROM
        topics: dict[str | TopicId, list[tuple[int, Buffer]]] = {}
        chosen: list[tuple[str | TopicId, Lane]] = []
        size = 0
        for lane, leader in lanes:
            batch_size = len(lane.waiting[0].data)
            if size and size + batch_size > self._settings.max_request_bytes:
                continue
            if self._on_their_way_bytes and (
                self._on_their_way_bytes + size + batch_size > self._settings.max_in_flight_bytes
            ):
                continue
            topic: str | TopicId = lane.partition.topic
            if by_id:
                assert leader.topic_id is not None
                topic = leader.topic_id
            topics.setdefault(topic, []).append((lane.partition.partition, lane.waiting[0].data))
            chosen.append((topic, lane))
            size += batch_size
        if not chosen:
            return False
        body = encode_produce_request(
            version,
            list(topics.items()),
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
        )
        pending = link.begin_encoded(ApiKey.PRODUCE, version, body, wait_ms=_ANSWER_SLACK_MS, answered=self._acks != 0)
        sent = {(topic, lane.partition.partition): (lane, lane.sent()) for topic, lane in chosen}
        if self._acks == 0:
            for lane, batch in sent.values():
                lane.answered(batch, ErrorCode.NONE, -1)
        else:
            self._requests.append(_Request(link, pending, sent, size))
            self._on_their_way_bytes += size
        return True

    def _at_most(self, lanes: Sequence[tuple[Lane, Leader]]) -> int | None:
        if self._announced is not None:
            return _LAST_WITHOUT_IMPLICIT_ADD
        if any(leader.topic_id is None for _, leader in lanes):
            return TOPIC_IDS_FROM - 1
        return None

    # Answers.

    def _take_answer(self) -> None:
        """Waits for the answer to the oldest request."""
        assert self._requests, "nothing is on its way, and nothing could be sent"
        request = self._requests.popleft()
        self._on_their_way_bytes -= request.size
        try:
            response = request.pending.answer()
        except BrokerUnreachable as failure:
            self._lost(request, failure)
            return
        self._read_answer(request, response)

    def _read_answer(self, request: _Request, response: Produce.Response) -> None:
        by_id = request.pending.version >= TOPIC_IDS_FROM
        passing: ClientError | None = None
        unanswered = dict(request.lanes)
        for topic in response.responses:
            name = (topic.topic_id or ZERO_TOPIC_ID) if by_id else topic.name
            for row in topic.partition_responses:
                found = unanswered.pop((name, row.index), None)
                if found is None:
                    continue
                lane, batch = found
                code = error_code(row.error_code)
                about = request.link.was_asked(ApiKey.PRODUCE, f"of {len(batch.data)} bytes to {lane.partition}")
                if not lane.answered(batch, code, row.base_offset):
                    raise refusal(code, about, row.error_message)
                if code in LEADER_MOVED:
                    self._brokers.outdated([lane.partition.topic])
                if code in PASSING:
                    passing = refusal(code, about, row.error_message)
                else:
                    self._attempts.progress()
        if unanswered:
            partitions = ", ".join(str(lane.partition) for lane, _ in unanswered.values())
            raise ClientError(f"{request.link.name} answered a Produce without results for {partitions}")
        if passing is not None:
            self._attempts.pause(passing)

    def _lost(self, request: _Request, failure: BrokerUnreachable) -> None:
        """Marks all batches of a broken connection to be sent again, in order."""
        self._brokers.outdated_at(request.link)
        lost = [request]
        for other in list(self._requests):
            if other.pending.connection is request.pending.connection:
                self._requests.remove(other)
                self._on_their_way_bytes -= other.size
                lost.append(other)
        for each in lost:
            for lane, batch in each.lanes.values():
                lane.lost(batch)
        for each in lost:
            for lane, _ in each.lanes.values():
                lane.settle()
        self._attempts.pause(failure)


def _if_passing(reason: ClientError) -> ClientError:
    if isinstance(reason, RequestRefused) and reason.code not in PASSING:
        raise reason
    return reason


class _Failing:
    """A context that ends the pipeline on any exception."""

    def __init__(self, pipeline: ProducePipeline) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> None:
        if self._pipeline.failed:
            raise ClientError("the pipeline has failed before, or was abandoned: batches may be missing after it")

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self._pipeline.abandon()
