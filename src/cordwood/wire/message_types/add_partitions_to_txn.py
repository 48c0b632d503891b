"""Generated from `messages/AddPartitionsToTxn.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AddPartitionsToTxn(
    ApiTypes[
        "AddPartitionsToTxn.Request",
        "AddPartitionsToTxn.Answer",
        "AddPartitionsToTxn.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partitions: Sequence[int]
        topic_id: TopicId | None

    class RequestTransaction(Entity):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: Sequence[AddPartitionsToTxn.RequestTopic]

    class RequestV3AndBelowTopic(Entity):
        name: str
        partitions: Sequence[int]

    class Request(Entity):
        transactions: Sequence[AddPartitionsToTxn.RequestTransaction]
        v3_and_below_transactional_id: str
        v3_and_below_producer_id: int
        v3_and_below_producer_epoch: int
        v3_and_below_topics: Sequence[AddPartitionsToTxn.RequestV3AndBelowTopic]

    class ResponseResultsByPartition(Entity):
        partition_index: int
        partition_error_code: int

    class ResponseTopicResult(Entity):
        name: str
        results_by_partition: Sequence[AddPartitionsToTxn.ResponseResultsByPartition]

    class ResponseResultsByTransaction(Entity):
        transactional_id: str
        topic_results: Sequence[AddPartitionsToTxn.ResponseTopicResult]
        coordinator_epoch: int

    class ResponseResultsByTopicV3AndBelow(Entity):
        name: str
        results_by_partition: Sequence[AddPartitionsToTxn.ResponseResultsByPartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        results_by_transaction: Sequence[AddPartitionsToTxn.ResponseResultsByTransaction]
        results_by_topic_v3_and_below: Sequence[AddPartitionsToTxn.ResponseResultsByTopicV3AndBelow]

    class AnswerResultsByPartition(TypedDict, total=False):
        partition_index: int
        partition_error_code: int

    class AnswerTopicResult(TypedDict, total=False):
        name: str
        results_by_partition: Array[AddPartitionsToTxn.AnswerResultsByPartition]

    class AnswerResultsByTransaction(TypedDict, total=False):
        transactional_id: str
        topic_results: Array[AddPartitionsToTxn.AnswerTopicResult]
        coordinator_epoch: int

    class AnswerResultsByTopicV3AndBelow(TypedDict, total=False):
        name: str
        results_by_partition: Array[AddPartitionsToTxn.AnswerResultsByPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            results_by_transaction: Array[AddPartitionsToTxn.AnswerResultsByTransaction] = ...,
            results_by_topic_v3_and_below: Array[AddPartitionsToTxn.AnswerResultsByTopicV3AndBelow] = ...,
        ) -> None: ...
