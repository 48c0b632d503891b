"""Produce: appends each batch, and answers as soon as all batches are as safe as their acks ask for.

The hot path is one pass: decode, append, encode. State is kept only where an ack has to wait, where the coordinator of
a transaction has to be asked first, and where batches need work before they are appended. A request of many batches is
appended in steps: each batch has its own outcome, and the order of batches within a partition is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.node.coordinator_log import Writer
from cordwood.node.partition import Done, Partition
from cordwood.node.preparation import Outcome
from cordwood.node.request import Request, serves
from cordwood.node.transactional_appends import ADDS_FROM_VERSION
from cordwood.node.turns import Steps
from cordwood.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, Codec, read_header
from cordwood.records.validate import InvalidBatch
from cordwood.wire.apis import ApiKey
from cordwood.wire.produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce,
    encode_produce_response,
)

if TYPE_CHECKING:
    from cordwood.node.node import Node

ALL_REPLICAS = -1
NO_ACK = 0
_ATTRIBUTES_LOW_BYTE = 22
_ZSTD_FROM_VERSION = 7

Results = list[tuple[str | TopicId, list[ProducedPartition]]]

BATCHES_PER_STEP = 50
"""A batch takes some ten microseconds, and twice as much if a file has to be opened."""


class WaitingProduce:
    """A request with batches that are appended but not yet as safe as its acks ask for."""

    __slots__ = ("outstanding", "request", "results")

    def __init__(self, request: Request, results: Results) -> None:
        self.request = request
        self.results = results
        self.outstanding = 1  # the handler itself, until it has seen every partition

    def one_more(self, partitions: list[ProducedPartition]) -> Done:
        """The callback for the partition that is added next to the list: its batch is safe, or failed."""
        self.outstanding += 1
        place = len(partitions)

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                partitions[place] = ProducedPartition(partitions[place][0], error)
            self.one_less()

        return done

    def one_less(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            _respond(self.request, self.results)


def produce(node: Node, request: Request) -> Steps | None:
    body = decode_produce(request.header, request.frame)
    if node.preparation.may_concern(body.topics):
        if body.transactional_id is None and _is_wide(body):
            return _prepare_in_steps(node, request, memoryview(bytearray(request.frame)))
        if _produce_prepared(node, request, body):
            return None
    if body.transactional_id is not None:
        _produce_in_transaction(node, request, body, body.transactional_id, None)
    elif _is_wide(body):
        return _append_in_steps(node, request, memoryview(bytearray(request.frame)))
    else:
        _append_all(node, request, body, None, None)
    return None


Refusals = Mapping[TopicPartition, ErrorCode]
BatchRefusals = Mapping[tuple[str | TopicId, int], ProtocolError]
"""The reasons why batches could not be prepared, by topic and partition as the request names them."""


def _produce_prepared(node: Node, request: Request, body: ProduceRequest) -> bool:
    """Appends the batches once they are prepared. False if they can be appended at once, which is left to the
    caller."""
    preparation, connection_id = node.preparation, request.reply.connection_id
    if _ready_at_once(node, connection_id, body, _with_partitions(node, body)):
        return False
    kept = _kept(body)
    request.let_go_of_frame()
    found = _with_partitions(node, kept)
    refused = _brought_zstd(request, kept)

    def go(outcome: list[Outcome]) -> None:
        _take_over(kept, found, outcome, refused)
        request.now_ms = node.now_ms
        if body.transactional_id is not None:
            _produce_in_transaction(node, request, kept, body.transactional_id, refused)
        else:
            _append_all(node, request, kept, None, refused)

    preparation.in_turn(connection_id, [(partition, records) for _, partition, records in found], go)
    return True


def _prepare_in_steps(node: Node, request: Request, frame: memoryview) -> Steps:
    """Appends a wide request whose batches may need preparation. A piece that waits for it holds up no other piece."""
    preparation, connection_id = node.preparation, request.reply.connection_id
    # Reading so many batches was a step. The frame's copy is read again: to copy each batch would take as long.
    yield
    body = decode_produce(request.header, frame)
    refused = _brought_zstd(request, body)
    refusal = _refusal(body)
    results: Results = []
    waiting: WaitingProduce | None = None
    outstanding = 1  # the steps themselves, until they have seen every piece

    def append(piece: ProduceRequest) -> None:
        nonlocal waiting
        request.now_ms = node.now_ms
        waiting = _append(node, request, body, piece.topics, results, waiting, refusal, None, refused)

    def go(piece: ProduceRequest, found: list[Found], outcome: list[Outcome]) -> None:
        _take_over(piece, found, outcome, refused)
        append(piece)
        one_less()

    def one_less() -> None:
        nonlocal outstanding
        outstanding -= 1
        if not outstanding:
            _end(request, body, results, waiting)

    for piece in _pieces(body):
        found = _with_partitions(node, piece)
        if _ready_at_once(node, connection_id, piece, found):
            append(piece)
        else:
            outstanding += 1
            batches = [(partition, records) for _, partition, records in found]
            preparation.in_turn(connection_id, batches, partial(go, piece, found))
        yield
    one_less()


Found = tuple[tuple[int, int, int], Partition, memoryview]
"""A batch and its partition, with the places of the topic, partition and batch in the request."""


def _ready_at_once(node: Node, connection_id: int, body: ProduceRequest, found: list[Found]) -> bool:
    """Whether the batches can be appended at once. Batches whose records were checked are marked in the request."""
    batches = [(partition, records) for _, partition, records in found]
    at_once = node.preparation.at_once(connection_id, batches)
    if at_once is None:
        return False
    for ((topic, index, place), _, _), records in zip(found, at_once, strict=True):
        body.topics[topic][1][place] = (index, records)
    return True


def _take_over(
    body: ProduceRequest,
    found: list[Found],
    outcome: list[Outcome],
    refused: dict[tuple[str | TopicId, int], ProtocolError],
) -> None:
    """Puts the prepared batches into the request, and the refusals into `refused`."""
    for ((topic, index, place), _, _), result in zip(found, outcome, strict=True):
        name, batches = body.topics[topic]
        if isinstance(result, ProtocolError):
            refused[name, index] = result
        else:
            batches[place] = (index, result)


def _brought_zstd(request: Request, body: ProduceRequest) -> dict[tuple[str | TopicId, int], ProtocolError]:
    """Refuses zstd in old requests. The codec that the producer sent counts, not the codec of the topic."""
    if request.version >= _ZSTD_FROM_VERSION:
        return {}
    return {
        (topic, index): _no_zstd()
        for topic, batches in body.topics
        for index, records in batches
        if records is not None
        and len(records) >= HEADER_SIZE
        and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == Codec.ZSTD
    }


def _with_partitions(node: Node, body: ProduceRequest) -> list[Found]:
    """The batches that have a header and whose partitions exist."""
    found = []
    for number, (topic, batches) in enumerate(body.topics):
        for place, (index, records) in enumerate(batches):
            if isinstance(records, memoryview) and len(records) >= HEADER_SIZE:
                with suppress(ProtocolError):
                    found.append(((number, index, place), _find(node, topic, index), records))
    return found


def _is_wide(body: ProduceRequest) -> bool:
    count = len(body.topics)
    for _, batches in body.topics:
        count += len(batches)
    return count > BATCHES_PER_STEP


def _kept(body: ProduceRequest) -> ProduceRequest:
    """A copy of the request with its own batches: the network's frame is gone when the handler returns or pauses."""
    return body._replace(
        topics=[
            (topic, [(index, None if batch is None else memoryview(bytearray(batch))) for index, batch in batches])
            for topic, batches in body.topics
        ]
    )


def _pieces(body: ProduceRequest) -> list[ProduceRequest]:
    """Splits a wide request into narrow ones."""
    pieces: list[list[ProduceTopic]] = [[]]
    room = BATCHES_PER_STEP
    for topic, batches in body.topics:
        for start in range(0, max(len(batches), 1), BATCHES_PER_STEP):
            some = batches[start : start + BATCHES_PER_STEP]
            if len(some) >= room:
                pieces.append([])
                room = BATCHES_PER_STEP
            pieces[-1].append((topic, some))
            room -= max(len(some), 1)
    return [body._replace(topics=topics) for topics in pieces if topics]


def _produce_in_transaction(
    node: Node, request: Request, body: ProduceRequest, transactional_id: str, prepared: BatchRefusals | None
) -> None:
    """Appends to partitions that the transaction includes already; asks the coordinator about the others."""
    appends = node.transactional_appends
    wide = _is_wide(body)
    if _refusal(body) is not None:
        _append_all(node, request, body, {}, prepared)
        return
    if not wide and not appends.busy(transactional_id) and not _unverified(node, body):
        _append_all(node, request, body, {}, prepared)
        return
    kept = _kept(body) if prepared is None else body
    # The transaction may end between two pieces: the coordinator is asked about each.
    pieces = _pieces(kept) if wide else [kept]
    results: Results = []
    waiting: WaitingProduce | None = None

    def begin(place: int, now_ms: int) -> None:
        piece = pieces[place]
        writers = _unverified(node, piece)
        appends.verify(transactional_id, writers, request.version, lambda errors: verified(place, writers, errors))

    def verified(place: int, writers: dict[TopicPartition, Writer], errors: Refusals) -> None:
        nonlocal waiting
        refused: dict[TopicPartition, ErrorCode] = {
            name: error for name, error in errors.items() if error is not ErrorCode.NONE
        }
        if request.version >= ADDS_FROM_VERSION:
            refused.update(_starting_late(node, pieces[place], writers))
        request.now_ms = node.now_ms
        waiting = _append(node, request, kept, pieces[place].topics, results, waiting, None, refused, prepared)
        if place + 1 < len(pieces):
            node.in_turns.add(partial(begin, place + 1))
        else:
            _end(request, kept, results, waiting)
            appends.through(transactional_id)

    appends.in_turn(transactional_id, partial(begin, 0, request.now_ms))


def _transactional_batches(node: Node, body: ProduceRequest) -> list[tuple[Partition, Writer, int]]:
    """Partition, writer and first sequence of the batches that are marked as transactional."""
    found = []
    for topic, batches in body.topics:
        for index, records in batches:
            if records is None or len(records) < HEADER_SIZE or not records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
                continue
            try:
                partition = _find(node, topic, index)
            except ProtocolError:
                continue
            header = read_header(records)
            found.append((partition, Writer(header.producer_id, header.producer_epoch), header.base_sequence))
    return found


def _unverified(node: Node, body: ProduceRequest) -> dict[TopicPartition, Writer]:
    """The partitions that have no batch of the transaction yet, with the writer of the first."""
    writers: dict[TopicPartition, Writer] = {}
    for partition, writer, _ in _transactional_batches(node, body):
        try:
            known = partition.replica.log.producers.in_transaction(*writer)
        except StorageFailure:
            continue
        if not known and partition.name.topic not in INTERNAL_TOPICS:
            writers[partition.name] = writer
    return writers


def _starting_late(
    node: Node, body: ProduceRequest, writers: Mapping[TopicPartition, Writer]
) -> dict[TopicPartition, ErrorCode]:
    """Refuses an unknown producer that does not begin with sequence 0: a batch that overtook the first must not open a
    transaction."""
    return {
        partition.name: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for partition, writer, sequence in _transactional_batches(node, body)
        if partition.name in writers and sequence != 0 and not partition.replica.log.producers.knows(writer.producer_id)
    }


def _storage_reason(failure: StorageFailure) -> str:
    """The name of a storage failure in metrics: the protocol has one error for all failures, metrics tell a full disk
    apart."""
    return "DISK_FULL" if isinstance(failure, DiskFull) else ErrorCode.KAFKA_STORAGE_ERROR.name


def _append_all(
    node: Node,
    request: Request,
    body: ProduceRequest,
    refused: Refusals | None,
    prepared: BatchRefusals | None,
) -> None:
    results: Results = []
    waiting = _append(node, request, body, body.topics, results, None, _refusal(body), refused, prepared)
    _end(request, body, results, waiting)


def _append_in_steps(node: Node, request: Request, frame: memoryview) -> Steps:
    results: Results = []
    waiting: WaitingProduce | None = None
    # Reading so many batches was a step. The frame's copy is read again: to copy each batch would take as long.
    yield
    body = decode_produce(request.header, frame)
    refusal = _refusal(body)
    for piece in _pieces(body):
        request.now_ms = node.now_ms
        waiting = _append(node, request, body, piece.topics, results, waiting, refusal, None, None)
        yield
    _end(request, body, results, waiting)


def _append(
    node: Node,
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
    zstd_allowed = prepared is not None or request.version >= _ZSTD_FROM_VERSION
    for topic, batches in topics:
        # A topic that spans two steps has one entry.
        if not results or results[-1][0] is not topic:
            results.append((topic, []))
        partitions = results[-1][1]
        for index, records in batches:
            try:
                if refusal is not None:
                    raise refusal
                partition = _find(node, topic, index)
                if prepared and (topic, index) in prepared:
                    raise prepared[topic, index]
                _check(records, partition, zstd_allowed=zstd_allowed, transactional=refused is not None)
                if refused and partition.name in refused:
                    raise ProtocolError(refused[partition.name], "The transaction's coordinator refused the batch.")
                assert isinstance(records, memoryview)
                appended, safe = node.append(partition, records, acks, request.now_ms)
            except ProtocolError as error:
                node.refused_appends[error.code.name] += 1
                errors = error.record_errors if isinstance(error, InvalidBatch) else ()
                # The Java producer needs the log's start to begin anew; without it the producer retries for ever.
                begins = error.code is ErrorCode.UNKNOWN_PRODUCER_ID
                partitions.append(
                    ProducedPartition(
                        index,
                        error.code,
                        log_start_offset=partition.replica.log.log_start_offset if begins else -1,
                        record_errors=errors,
                        error_message=error.message or None,
                    )
                )
                continue
            except StorageFailure as failure:
                node.refused_appends[_storage_reason(failure)] += 1
                node.report_storage_failure(failure)
                message = str(failure) if isinstance(failure, DiskFull) else None
                partitions.append(ProducedPartition(index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=message))
                continue
            if not safe and acks != NO_ACK:
                if waiting is None:
                    waiting = WaitingProduce(request, results)
                done = waiting.one_more(partitions)
                node.when_safe(partition, appended.last_offset, acks, request.now_ms + body.timeout_ms, done)
            log_start = partition.replica.log.log_start_offset
            partitions.append(ProducedPartition(index, 0, appended.base_offset, appended.append_time_ms, log_start))
    return waiting


def _end(request: Request, body: ProduceRequest, results: Results, waiting: WaitingProduce | None) -> None:
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
        _respond(request, results)


def _respond(request: Request, results: Results) -> None:
    header = request.header
    request.reply.send(encode_produce_response(header.api_version, header.correlation_id, results))


def _refusal(body: ProduceRequest) -> ProtocolError | None:
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


def _find(node: Node, topic: str | TopicId, index: int) -> Partition:
    if isinstance(topic, str):
        return node.partition(topic, index)
    name = node.topic_name(topic)
    if name is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {topic}.")
    return node.partition(name, index)


def _check(
    records: memoryview | bytes | None, partition: Partition, *, zstd_allowed: bool, transactional: bool
) -> None:
    """Checks what depends on the request; the log checks the rest."""
    if partition.name.topic in INTERNAL_TOPICS:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by brokers only.")
    if records is None or len(records) <= _ATTRIBUTES_LOW_BYTE:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"{partition.name}: there is no record batch.")
    attributes = records[_ATTRIBUTES_LOW_BYTE]
    if not zstd_allowed and attributes & CODEC_MASK == Codec.ZSTD:
        raise _no_zstd()
    if attributes & TRANSACTIONAL_BIT and not transactional:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, "A batch of a transaction needs a transactional id.")


def _no_zstd() -> ProtocolError:
    return ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later.")


HANDLERS = (serves(ApiKey.PRODUCE, 3, 13, produce),)
