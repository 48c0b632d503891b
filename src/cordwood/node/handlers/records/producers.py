"""Producers: InitProducerId, DescribeProducers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.log.parts.producers import ProducerDescription
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.families import is_reserved
from cordwood.model.identifiers import check_topic_name
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, serves
from cordwood.transactions.beginning import Beginning
from cordwood.transactions.transaction import Step
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.coordinators.producer_ids import ProducerIds
    from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.wire.message_types.describe_producers import DescribeProducers
    from cordwood.wire.message_types.init_producer_id import InitProducerId


NO_PRODUCER = -1
FENCED_FROM_VERSION = 4
"""From this version on clients know PRODUCER_FENCED; older clients get INVALID_PRODUCER_EPOCH."""


class ProducerRooms(Protocol):
    """The rooms of a node that these handlers need."""

    hosted: HostedReplicas
    image: ClusterImage
    producer_ids: ProducerIds
    reports: Reports
    transactions: TransactionCoordinator


def init_producer_id(rooms: ProducerRooms, request: Request[InitProducerId]) -> None:
    """Gives a producer id and epoch: fresh ones, or those of a transactional id, whose earlier producers are fenced."""
    body = request.decode()

    def answer(error: ErrorCode, producer_id: int = NO_PRODUCER, producer_epoch: int = NO_PRODUCER) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.version < FENCED_FROM_VERSION:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        request.answer(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)

    judge = request.judge
    if body.transactional_id is None:
        refusal = judge.error(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)
        if refusal is not ErrorCode.NONE:
            answer(refusal)
            return

        def allocated(producer_id: int | ErrorCode) -> None:
            if isinstance(producer_id, ErrorCode):
                answer(producer_id)
            else:
                answer(ErrorCode.NONE, producer_id, 0)

        rooms.producer_ids.next(allocated)
    elif not body.transactional_id or (body.producer_id < 0) != (body.producer_epoch < 0):
        answer(ErrorCode.INVALID_REQUEST)
    elif is_reserved(body.transactional_id) or not judge.may(
        Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id
    ):
        # Only a family gives out its slots: a client that took a slot could end a transaction that the family decides.
        answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not 0 < body.transaction_timeout_ms <= rooms.image.settings.transaction_max_timeout_ms:
        answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    else:
        asked = Beginning(body.transactional_id, body.transaction_timeout_ms, body.producer_id, body.producer_epoch)

        def initialized(step: Step) -> None:
            if step.error is ErrorCode.NONE:
                answer(ErrorCode.NONE, step.producer_id, step.producer_epoch)
            else:
                answer(step.error)

        rooms.transactions.init_producer_id(asked, initialized)


def describe_producers(rooms: ProducerRooms, request: Request[DescribeProducers]) -> Steps:
    """Describes producers at any replica: an operator looks for a hanging transaction on one broker."""
    body = yield from request.read()
    # A partition that is asked for more than once is answered once.
    asked: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))

    judge = request.judge

    def described(name: str) -> DescribeProducers.AnswerTopic:
        refusal = judge.refusal(Operation.READ, ResourceKind.TOPIC, name)
        return {"name": name, "partitions": Made(asked[name], lambda index: _producers_of(rooms, refusal, name, index))}

    request.answer(topics=Made(asked, described))


def _producers_of(
    rooms: ProducerRooms, refusal: ProtocolError | None, topic: str, index: int
) -> DescribeProducers.AnswerPartition:
    described: DescribeProducers.AnswerPartition
    described = {"partition_index": index, "error_code": ErrorCode.NONE, "active_producers": ()}
    try:
        if refusal is not None:
            raise refusal
        check_topic_name(topic)
        states = rooms.hosted.replica(topic, index).log.replayed.producers.describe()
        described["active_producers"] = Made(states, _active_producer)
    except ProtocolError as refusal:
        described["error_code"] = refusal.code
        described["error_message"] = refusal.message
    except StorageFailure as failure:
        rooms.reports.failure(failure)
        described["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR
    return described


def _active_producer(state: ProducerDescription) -> DescribeProducers.AnswerActiveProducer:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp_ms,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": state.transaction_start_offset,
    }


HANDLERS = (
    serves(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id),
    serves(ApiKey.DESCRIBE_PRODUCERS, 0, 0, describe_producers),
)
