"""Appends the batches of a Produce request, and answers as soon as all are as safe as their acks ask for.

Each batch has its own outcome. The caller has decoded the request and, where needed, prepared its batches and asked the
transaction's coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.partitions.acks import ALL_REPLICAS
from cordwood.node.partitions.early_batches import EarlyBatch
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.waits import Done
from cordwood.node.requests.request import Request
from cordwood.records.batch import CODEC_MASK, TRANSACTIONAL_BIT, Codec
from cordwood.records.validate import InvalidBatch
from cordwood.wire.produce import ProducedPartition, ProduceRequest, ProduceTopic, encode_produce_response

if TYPE_CHECKING:
    from collections import Counter

    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.acks import Acks
    from cordwood.node.partitions.appends import Appends
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.requests.access import Judge
    from cordwood.node.requests.astray_producers import AstrayProducers
    from cordwood.node.requests.leader_hints import LeaderHints


WRITE, TOPIC = Operation.WRITE, ResourceKind.TOPIC
"""Each batch asks by them, and an enumeration looks its members up in Python."""
NO_ACK = 0
ATTRIBUTES_LOW_BYTE = 22
ZSTD_FROM_VERSION = 7

Refusals = Mapping[TopicPartition, ErrorCode]


class AppendingRooms(Protocol):
    """The rooms of a node that these handlers need."""

    acks: Acks
    appends: Appends
    hosted: HostedReplicas
    astray_producers: AstrayProducers
    image: ClusterImage
    leader_hints: LeaderHints
    loop: Loop
    refused_appends: Counter[str]
    reports: Reports


class Appending:
    """A Produce request whose batches are appended, in one piece or in several: their outcomes, and the answer.

    The batches are not kept: they may be in the network's buffer.
    """

    __slots__ = (
        "_acks",
        "_judge",
        "_results",
        "_rooms",
        "_timeout_ms",
        "outstanding",
        "refusal",
        "refused_batches",
        "request",
        "wide",
    )

    def __init__(self, rooms: AppendingRooms, request: Request, body: ProduceRequest, *, wide: bool = False) -> None:
        """`wide`: the request has several pieces, whose number the caller adds to `outstanding`."""
        self._rooms = rooms
        self.request = request
        self._acks = body.acks
        self._timeout_ms = body.timeout_ms
        self.wide = wide
        self._judge = request.judge
        self.refusal = refusal_of(body, self._judge)
        """The refusal of the whole request."""
        self.refused_batches: dict[tuple[str | TopicId, int], ProtocolError] = {}
        """The reasons why batches could not be prepared, by topic and partition as the request names them."""
        self._results: list[tuple[str | TopicId, list[ProducedPartition]]] = []
        self.outstanding = 1
        """Pieces that are not appended yet, and batches that are not as safe as the request asks for; also the caller
        of a wide request until it has begun every piece. The answer leaves when none is outstanding."""

    def append(self, topics: list[ProduceTopic], refused: Refusals | None = None, *, prepared: bool = False) -> None:
        """Appends the batches of one piece.

        `refused` has the partitions that the transaction's coordinator refused; None: there is no transaction.
        `prepared`: the batches may have another codec than the producer's.
        """
        rooms, acks, refusal, refused_batches = self._rooms, self._acks, self.refusal, self.refused_batches
        results, now, judge = self._results, rooms.loop.now, self._judge
        asks = judge.asks and refusal is None
        zstd_allowed = prepared or self.request.version >= ZSTD_FROM_VERSION
        for topic, batches in topics:
            # A topic that spans two steps has one entry.
            if not results or results[-1][0] is not topic:
                results.append((topic, []))
            partitions = results[-1][1]
            if asks:
                denied = judge.refusal(WRITE, TOPIC, topic) if isinstance(topic, str) else self._denial(topic)
                if denied is not None:
                    self._deny(partitions, batches, denied)
                    continue
            for index, records in batches:
                try:
                    if refusal is not None:
                        # The shared exception must not gather a traceback for each batch.
                        raise refusal.with_traceback(None)
                    partition = rooms.hosted.leader_in(topic, index)
                    if refused_batches and (topic, index) in refused_batches:
                        raise refused_batches[topic, index]
                    _check(records, partition, zstd_allowed=zstd_allowed, transactional=refused is not None)
                    if refused and partition.name in refused:
                        raise ProtocolError(refused[partition.name], "The transaction's coordinator refused the batch.")
                    assert isinstance(records, memoryview)
                    appended, safe = rooms.appends.append(partition, records, acks, now)
                except ProtocolError as error:
                    rooms.refused_appends[_reason(error)] += 1
                    errors = error.record_errors if isinstance(error, InvalidBatch) else ()
                    # The Java producer needs the log's start to begin anew; without it the producer retries for ever.
                    begins = error.code is ErrorCode.UNKNOWN_PRODUCER_ID
                    partitions.append(
                        ProducedPartition(
                            index,
                            error.code,
                            log_start_offset=partition.replica.log.offsets.start if begins else -1,
                            record_errors=errors,
                            error_message=error.message or None,
                            current_leader=rooms.leader_hints.hint(topic, index, error.code),
                        )
                    )
                    continue
                except StorageFailure as failure:
                    rooms.refused_appends[_storage_reason(failure)] += 1
                    rooms.reports.failure(failure)
                    message = str(failure) if isinstance(failure, DiskFull) else None
                    partitions.append(ProducedPartition(index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=message))
                    continue
                if not safe and acks != NO_ACK:
                    done = self._one_more(partition, topic, partitions)
                    rooms.acks.when_safe(partition, appended.last_offset, acks, now.boot_ms + self._timeout_ms, done)
                log_start = partition.replica.log.offsets.start
                partitions.append(ProducedPartition(index, 0, appended.base_offset, appended.append_time_ms, log_start))
        self.one_less()

    def allowed(self, piece: ProduceRequest) -> ProduceRequest:
        """The piece without the topics that the principal may not write, which are answered here."""
        if not self._judge.asks or self.refusal is not None:
            return piece
        topics: list[ProduceTopic] = []
        for topic, batches in piece.topics:
            denied = self._denial(topic)
            if denied is None:
                topics.append((topic, batches))
            else:
                self._results.append((topic, []))
                self._deny(self._results[-1][1], batches, denied)
        return piece._replace(topics=topics)

    def _denial(self, topic: str | TopicId) -> ProtocolError | None:
        """The answer for a topic that the principal may not write now, or None."""
        if isinstance(topic, str):
            return self._judge.refusal(WRITE, TOPIC, topic)
        name = self._rooms.image.topic_name(topic)
        return None if name is None else self._judge.records_refusal(WRITE, name, topic)

    def _deny(self, partitions: list[ProducedPartition], batches: list[tuple[int, Any]], denied: ProtocolError) -> None:
        self._rooms.refused_appends[denied.code.name] += len(batches)
        for index, _ in batches:
            partitions.append(ProducedPartition(index, denied.code, error_message=denied.message))

    def _one_more(self, partition: Partition, topic: str | TopicId, partitions: list[ProducedPartition]) -> Done:
        """The callback for the partition that is added next to the list: its batch is safe, or failed."""
        self.outstanding += 1
        place = len(partitions)

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not self._rooms.hosted.serves(partition):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if error is not ErrorCode.NONE:
                index = partitions[place][0]
                hint = self._rooms.leader_hints.hint(topic, index, error)
                partitions[place] = ProducedPartition(index, error, current_leader=hint)
            self.one_less()

        return done

    def one_less(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            self._answer()

    def _answer(self) -> None:
        request, results = self.request, self._results
        if self._acks == NO_ACK:
            if any(partition.error_code for _, partitions in results for partition in partitions):
                request.reply.hang_up("a batch sent with acks=0 was refused, and there is no other way to say so")
            else:
                request.reply.nothing()
            return
        header, hints = request.header, self._rooms.leader_hints
        hinted = []
        for topic, partitions in results:
            for each in partitions:
                if each.current_leader is not None:
                    hinted.append(each.current_leader)
                    self._rooms.astray_producers.refused(
                        request.reply.connection_id, topic, each.partition, each.current_leader
                    )
        endpoints = hints.endpoints(hinted, request.reply.session.entrance.name) if hinted else ()
        request.send(
            encode_produce_response(header.api_version, header.correlation_id, results, node_endpoints=endpoints)
        )


def _reason(refusal: ProtocolError) -> str:
    """The name of a refusal in metrics, which distinguish early batches; a producer gets the code of another error."""
    return "EARLY_BATCH" if isinstance(refusal, EarlyBatch) else refusal.code.name


def _storage_reason(failure: StorageFailure) -> str:
    """The name of a storage failure in metrics, which distinguish a full disk; the protocol has one error for all."""
    return "DISK_FULL" if isinstance(failure, DiskFull) else ErrorCode.KAFKA_STORAGE_ERROR.name


def refusal_of(body: ProduceRequest, judge: Judge) -> ProtocolError | None:
    """The refusal of the whole request, which holds for each of its partitions."""
    if body.transactional_id is not None and judge.asks:
        refusal = judge.refusal(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
        if refusal is not None:
            return refusal
    if body.acks not in (NO_ACK, 1, ALL_REPLICAS):
        return ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {body.acks}.")
    if body.transactional_id is not None and body.acks != ALL_REPLICAS:
        return ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS, f"A transaction needs acks=all, not {body.acks}.")
    if body.transactional_id is not None:
        # The coordinator is asked once for each partition: a second batch must not get in with the first batch's
        # answer.
        named = [(topic, index) for topic, batches in body.topics for index, _ in batches]
        if len(set(named)) < len(named):
            return ProtocolError(ErrorCode.INVALID_REQUEST, "In a transaction a request names each partition once.")
    return None


def _check(
    records: memoryview | bytes | None, partition: Partition, *, zstd_allowed: bool, transactional: bool
) -> None:
    """Checks the parts that depend on the request; the log checks the rest."""
    if partition.name.topic in INTERNAL_TOPICS:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by brokers only.")
    if records is None or len(records) <= ATTRIBUTES_LOW_BYTE:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"{partition.name}: there is no record batch.")
    attributes = records[ATTRIBUTES_LOW_BYTE]
    if not zstd_allowed and attributes & CODEC_MASK == Codec.ZSTD:
        raise no_zstd()
    if attributes & TRANSACTIONAL_BIT and not transactional:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, "A batch of a transaction needs a transactional id.")


def no_zstd() -> ProtocolError:
    return ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later.")
