"""Generated from `messages/AlterPartition.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterPartition(
    ApiTypes[
        "AlterPartition.Request",
        "AlterPartition.Answer",
        "AlterPartition.Response",
    ]
):
    class RequestNewIsrWithEpoch(Entity):
        broker_id: int
        broker_epoch: int

    class RequestPartition(Entity):
        partition_index: int
        leader_epoch: int
        new_isr: Sequence[int]
        new_isr_with_epochs: Sequence[AlterPartition.RequestNewIsrWithEpoch]
        leader_recovery_state: int
        partition_epoch: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[AlterPartition.RequestPartition]

    class Request(Entity):
        broker_id: int
        broker_epoch: int
        topics: Sequence[AlterPartition.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: Sequence[int]
        leader_recovery_state: int
        partition_epoch: int

    class ResponseTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[AlterPartition.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        topics: Sequence[AlterPartition.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: Array[int]
        leader_recovery_state: int
        partition_epoch: int

    class AnswerTopic(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[AlterPartition.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            topics: Array[AlterPartition.AnswerTopic] = ...,
        ) -> None: ...
