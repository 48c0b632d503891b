"""Generated from `messages/AlterPartition.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterPartitionRequestNewIsrWithEpoch(Entity):
    broker_id: int
    broker_epoch: int


class AlterPartitionRequestPartition(Entity):
    partition_index: int
    leader_epoch: int
    new_isr: Sequence[int]
    new_isr_with_epochs: Sequence[AlterPartitionRequestNewIsrWithEpoch]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[AlterPartitionRequestPartition]


class AlterPartitionRequest(Entity):
    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionRequestTopic]


class AlterPartitionResponsePartition(Entity):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionResponseTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[AlterPartitionResponsePartition]


class AlterPartitionResponse(Entity):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[AlterPartitionResponseTopic]


class AlterPartitionAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Array[int]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionAnswerTopic(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[AlterPartitionAnswerPartition]


class AlterPartitionAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: Array[AlterPartitionAnswerTopic] = ...,
    ) -> None: ...


class AlterPartition(
    ApiTypes[
        AlterPartitionRequest,
        AlterPartitionAnswer,
        AlterPartitionResponse,
    ]
):
    pass
