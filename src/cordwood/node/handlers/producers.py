"""Producers as the broker knows them: InitProducerId, DescribeProducers."""

from typing import TYPE_CHECKING, Any

from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.node.request import Request, by_topic, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.node import Node

NO_PRODUCER = -1


def init_producer_id(node: "Node", request: Request) -> None:
    """A fresh producer id: what makes a producer's retries recognisable."""
    body = request.decode()
    if body.transactional_id is not None:
        # This broker does not advertise the rest of the transaction APIs, so only a confused client comes here.
        error = ErrorCode.INVALID_REQUEST
        request.answer(error_code=error, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
        return

    def allocated(producer_id: int | ErrorCode) -> None:
        if isinstance(producer_id, ErrorCode):
            request.answer(error_code=producer_id, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
        else:
            request.answer(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)

    node.producer_ids.next(allocated)


def describe_producers(node: "Node", request: Request) -> None:
    body = request.decode()
    results = []
    for topic in body.topics:
        for index in topic.partition_indexes:
            described: dict[str, Any] = {"partition_index": index, "error_code": ErrorCode.NONE, "active_producers": ()}
            try:
                described["active_producers"] = _active_producers(node, topic.name, index)
            except ProtocolError as refusal:
                described["error_code"] = refusal.code
                described["error_message"] = refusal.message
            except StorageFailure as failure:
                node.report_storage_failure(failure)
                described["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR
            results.append((topic.name, described))
    request.answer(topics=by_topic(results))


def _active_producers(node: "Node", topic: str, index: int) -> list[dict[str, Any]]:
    return [
        {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "last_sequence": state.last_sequence,
            "last_timestamp": state.last_timestamp_ms,
            "coordinator_epoch": state.coordinator_epoch,
            "current_txn_start_offset": state.transaction_start_offset,
        }
        for state in node.partition(topic, index).replica.log.producers.describe()
    ]


HANDLERS = (
    serves(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id),
    serves(ApiKey.DESCRIBE_PRODUCERS, 0, 0, describe_producers),
)
