"""Generated from `messages/AddPartitionsToTxn.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AddPartitionsToTxnRequestTopic(Entity):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequestTransaction(Entity):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnRequestV3AndBelowTopic(Entity):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequest(Entity):
    transactions: Sequence[AddPartitionsToTxnRequestTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequestV3AndBelowTopic]


class AddPartitionsToTxnResponseResultsByPartition(Entity):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnResponseTopicResult(Entity):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponseResultsByTransaction(Entity):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnResponseTopicResult]


class AddPartitionsToTxnResponseResultsByTopicV3AndBelow(Entity):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponse(Entity):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponseResultsByTransaction]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponseResultsByTopicV3AndBelow]


class AddPartitionsToTxnAnswerResultsByPartition(TypedDict, total=False):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnAnswerTopicResult(TypedDict, total=False):
    name: str
    results_by_partition: Array[AddPartitionsToTxnAnswerResultsByPartition]


class AddPartitionsToTxnAnswerResultsByTransaction(TypedDict, total=False):
    transactional_id: str
    topic_results: Array[AddPartitionsToTxnAnswerTopicResult]


class AddPartitionsToTxnAnswerResultsByTopicV3AndBelow(TypedDict, total=False):
    name: str
    results_by_partition: Array[AddPartitionsToTxnAnswerResultsByPartition]


class AddPartitionsToTxnAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: Array[AddPartitionsToTxnAnswerResultsByTransaction] = ...,
        results_by_topic_v3_and_below: Array[AddPartitionsToTxnAnswerResultsByTopicV3AndBelow] = ...,
    ) -> None: ...


class AddPartitionsToTxn(
    ApiTypes[
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnAnswer,
        AddPartitionsToTxnResponse,
    ]
):
    pass
