"""Appends the batches of a Produce request, and answers as soon as all are as safe as their acks ask for.

Each batch has its own outcome. The caller has decoded the request and, where needed, prepared its batches and asked the
transaction's coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
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

    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.acks import Acks
    from cordwood.node.partitions.appends import Appends
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.requests.leader_hints import LeaderHints


NO_ACK = 0
ATTRIBUTES_LOW_BYTE = 22
ZSTD_FROM_VERSION = 7

Results = list[tuple[str | TopicId, list[ProducedPartition]]]
Refusals = Mapping[TopicPartition, ErrorCode]
BatchRefusals = Mapping[tuple[str | TopicId, int], ProtocolError]
"""The reasons why batches could not be prepared, by topic and partition as the request names them."""


class AppendingRooms(Protocol):
    """The rooms of a node that these handlers need."""

    acks: Acks
    appends: Appends
    hosted: HostedReplicas
    leader_hints: LeaderHints
    refused_appends: Counter[str]
    reports: Reports


class WaitingProduce:
    """A request with batches that are appended but not yet as safe as its acks ask for."""

    __slots__ = ("hints", "hosted", "outstanding", "request", "results")

    def __init__(self, hints: LeaderHints, hosted: HostedReplicas, request: Request, results: Results) -> None:
        self.hints = hints
        self.hosted = hosted
        self.request = request
        self.results = results
        self.outstanding = 1  # the handler itself, until it has seen every partition

    def one_more(self, partition: Partition, topic: str | TopicId, partitions: list[ProducedPartition]) -> Done:
        """The callback for the partition that is added next to the list: its batch is safe, or failed."""
        self.outstanding += 1
        place = len(partitions)

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not self.hosted.serves(partition):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if error is not ErrorCode.NONE:
                index = partitions[place][0]
                hint = self.hints.hint(topic, index, error)
                partitions[place] = ProducedPartition(index, error, current_leader=hint)
            self.one_less()

        return done

    def one_less(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            _respond(self.hints, self.request, self.results)


def append_all(
    rooms: AppendingRooms,
    request: Request,
    body: ProduceRequest,
    refused: Refusals | None,
    prepared: BatchRefusals | None,
) -> None:
    results: Results = []
    waiting = append(rooms, request, body, body.topics, results, None, refusal_of(body), refused, prepared)
    end(rooms, request, body, results, waiting)


def append(
    rooms: AppendingRooms,
    request: Request,
    body: ProduceRequest,
    topics: list[ProduceTopic],
    results: Results,
    waiting: WaitingProduce | None,
    refusal: ProtocolError | None,
    refused: Refusals | None,
    prepared: BatchRefusals | None,
) -> WaitingProduce | None:
    """Appends these batches of a request and adds their outcomes to `results`. Returns the state of waiting acks, if
    any.

    `refusal` concerns the whole request. `refused` has the partitions that the transaction's coordinator refused; None:
    there is no transaction.
    """
    acks = body.acks
    zstd_allowed = prepared is not None or request.version >= ZSTD_FROM_VERSION
    for topic, batches in topics:
        # A topic that spans two steps has one entry.
        if not results or results[-1][0] is not topic:
            results.append((topic, []))
        partitions = results[-1][1]
        for index, records in batches:
            try:
                if refusal is not None:
                    # The shared exception must not gather a traceback for each batch.
                    raise refusal.with_traceback(None)
                partition = rooms.hosted.leader_in(topic, index)
                if prepared and (topic, index) in prepared:
                    raise prepared[topic, index]
                _check(records, partition, zstd_allowed=zstd_allowed, transactional=refused is not None)
                if refused and partition.name in refused:
                    raise ProtocolError(refused[partition.name], "The transaction's coordinator refused the batch.")
                assert isinstance(records, memoryview)
                appended, safe = rooms.appends.append(partition, records, acks, request.now)
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
                if waiting is None:
                    waiting = WaitingProduce(rooms.leader_hints, rooms.hosted, request, results)
                done = waiting.one_more(partition, topic, partitions)
                rooms.acks.when_safe(partition, appended.last_offset, acks, request.now.boot_ms + body.timeout_ms, done)
            log_start = partition.replica.log.offsets.start
            partitions.append(ProducedPartition(index, 0, appended.base_offset, appended.append_time_ms, log_start))
    return waiting


def _reason(refusal: ProtocolError) -> str:
    """The name of a refusal in metrics, which distinguish early batches; a producer gets the code of another error."""
    return "EARLY_BATCH" if isinstance(refusal, EarlyBatch) else refusal.code.name


def _storage_reason(failure: StorageFailure) -> str:
    """The name of a storage failure in metrics, which distinguish a full disk; the protocol has one error for all."""
    return "DISK_FULL" if isinstance(failure, DiskFull) else ErrorCode.KAFKA_STORAGE_ERROR.name


def end(
    rooms: AppendingRooms, request: Request, body: ProduceRequest, results: Results, waiting: WaitingProduce | None
) -> None:
    """Answers after the last batch was appended or refused."""
    if body.acks == NO_ACK:
        for _, partitions in results:
            for partition in partitions:
                if partition.error_code:
                    request.reply.hang_up("a batch sent with acks=0 was refused, and there is no other way to say so")
                    return
        request.reply.nothing()
    elif waiting is not None:
        waiting.one_less()
    else:
        _respond(rooms.leader_hints, request, results)


def _respond(hints: LeaderHints, request: Request, results: Results) -> None:
    header = request.header
    hinted = [each.current_leader for _, partitions in results for each in partitions if each.error_code]
    endpoints = hints.endpoints(hinted, request.reply.entrance.name) if hinted else ()
    request.reply.send(
        encode_produce_response(header.api_version, header.correlation_id, results, node_endpoints=endpoints)
    )


def refusal_of(body: ProduceRequest) -> ProtocolError | None:
    """The refusal of the whole request, which holds for each of its partitions."""
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
