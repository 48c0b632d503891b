"""The batches of a Produce request on their way to the log: kept, prepared, vouched for by their coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.node.coordinators.coordinator_log import Writer
from cordwood.node.coordinators.transactional_appends import ADDS_FROM_VERSION
from cordwood.node.handlers.records.appending import ATTRIBUTES_LOW_BYTE, ZSTD_FROM_VERSION, Refusals, no_zstd
from cordwood.node.partitions.early_batches import is_early
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.preparation import Outcome
from cordwood.node.requests.request import Request
from cordwood.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, Buffer, Codec, read_header
from cordwood.wire.produce import ProduceRequest

if TYPE_CHECKING:
    from cordwood.node.coordinators.transactional_appends import TransactionalAppends
    from cordwood.node.coordinators.verification import Verdict
    from cordwood.node.loop.loop import Loop
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.preparation import Preparation


Found = tuple[tuple[int, int, int], Partition, memoryview]
"""A batch and its partition, with the places of the topic, partition and batch in the request."""


class BatchRooms(Protocol):
    """The rooms of a node that these handlers need."""

    loop: Loop
    hosted: HostedReplicas
    preparation: Preparation
    transactional_appends: TransactionalAppends


def kept_batches(body: ProduceRequest) -> ProduceRequest:
    """A copy of the request with its own batches: the network's frame is gone when the handler returns or pauses."""
    return body._replace(
        topics=[
            (topic, [(index, None if batch is None else memoryview(bytearray(batch))) for index, batch in batches])
            for topic, batches in body.topics
        ]
    )


def with_partitions(rooms: BatchRooms, body: ProduceRequest) -> list[Found]:
    """The batches that have a header and whose partitions this broker leads."""
    found = []
    for number, (topic, batches) in enumerate(body.topics):
        for place, (index, records) in enumerate(batches):
            if isinstance(records, memoryview) and len(records) >= HEADER_SIZE:
                with suppress(ProtocolError):
                    found.append(((number, index, place), rooms.hosted.leader_in(topic, index), records))
    return found


def ready_at_once(rooms: BatchRooms, connection_id: int, body: ProduceRequest, found: list[Found]) -> bool:
    """True if the batches can be appended at once. Batches whose records were checked are marked in the request."""
    batches = [(partition, records) for _, partition, records in found]
    at_once = rooms.preparation.at_once(connection_id, batches)
    if at_once is None:
        return False
    for ((topic, index, place), _, _), records in zip(found, at_once, strict=True):
        body.topics[topic][1][place] = (index, records)
    return True


def take_over(
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


def brought_zstd(request: Request, body: ProduceRequest) -> dict[tuple[str | TopicId, int], ProtocolError]:
    """Refuses zstd in old requests. The codec that the producer sent counts, not the codec of the topic."""
    if request.version >= ZSTD_FROM_VERSION:
        return {}
    return {
        (topic, index): no_zstd()
        for topic, batches in body.topics
        for index, records in batches
        if records is not None
        and len(records) >= HEADER_SIZE
        and records[ATTRIBUTES_LOW_BYTE] & CODEC_MASK == Codec.ZSTD
    }


# Transactions


Verified = Callable[[], Refusals]
"""Returns the partitions that the coordinator refuses, for the present event. Called exactly once."""


def verify(
    rooms: BatchRooms, request: Request, body: ProduceRequest, transactional_id: str, start: Callable[[Verified], None]
) -> None:
    """Asks the coordinator, and calls `start` when all earlier requests of the transactional id are through."""
    writers = unverified(rooms, body)
    appends, version = rooms.transactional_appends, request.version

    def verified(verdict: Verdict) -> Refusals:
        refused: dict[TopicPartition, ErrorCode] = {
            name: error for name, error in verdict().items() if error is not ErrorCode.NONE
        }
        if len(writers) < sum(len(batches) for _, batches in body.topics):
            for name in unverified(rooms, body).keys() - writers.keys():
                # The transaction was open there when the request came, and has ended.
                refused[name] = ErrorCode.NOT_ENOUGH_REPLICAS
        if version >= ADDS_FROM_VERSION:
            refused.update(_starting_late(rooms, body, writers))
        return refused

    appends.in_turn(
        transactional_id,
        partial(appends.verify, transactional_id, writers, version),
        lambda verdict: start(partial(verified, verdict)),
    )


def unverified(rooms: BatchRooms, body: ProduceRequest) -> dict[TopicPartition, Writer]:
    """The partitions that have no batch of the transaction yet, with the writer of the first."""
    writers: dict[TopicPartition, Writer] = {}
    for partition, writer, *_ in _transactional_batches(rooms, body):
        try:
            known = partition.replica.log.replayed.producers.in_transaction(*writer)
        except StorageFailure:
            continue
        if not known and partition.name.topic not in INTERNAL_TOPICS:
            writers[partition.name] = writer
    return writers


def _starting_late(
    rooms: BatchRooms, body: ProduceRequest, writers: Mapping[TopicPartition, Writer]
) -> dict[TopicPartition, ErrorCode]:
    """Refuses unknown producers that begin above sequence 0: a batch that overtook the first opens no transaction. The
    append refuses early ones."""
    return {
        partition.name: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for partition, writer, sequence, batch in _transactional_batches(rooms, body)
        if partition.name in writers
        and sequence != 0
        and not partition.replica.log.replayed.producers.knows(writer.producer_id)
        and not is_early(partition, partition.replica.log, batch, rooms.loop.now)
    }


def _transactional_batches(rooms: BatchRooms, body: ProduceRequest) -> list[tuple[Partition, Writer, int, Buffer]]:
    """Partition, writer, first sequence and bytes of the batches that are marked as transactional."""
    found: list[tuple[Partition, Writer, int, Buffer]] = []
    for topic, batches in body.topics:
        for index, records in batches:
            if records is None or len(records) < HEADER_SIZE or not records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
                continue
            try:
                partition = rooms.hosted.leader_in(topic, index)
            except ProtocolError:
                continue
            header = read_header(records)
            found.append((partition, Writer(header.producer_id, header.producer_epoch), header.base_sequence, records))
    return found
