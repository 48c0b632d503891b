"""Generated from `messages/AssignReplicasToDirs.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AssignReplicasToDirs(
    ApiTypes[
        "AssignReplicasToDirs.Request",
        "AssignReplicasToDirs.Answer",
        "AssignReplicasToDirs.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[AssignReplicasToDirs.RequestPartition]

    class RequestDirectory(Entity):
        id: TopicId | None
        topics: Sequence[AssignReplicasToDirs.RequestTopic]

    class Request(Entity):
        broker_id: int
        broker_epoch: int
        directories: Sequence[AssignReplicasToDirs.RequestDirectory]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[AssignReplicasToDirs.ResponsePartition]

    class ResponseDirectory(Entity):
        id: TopicId | None
        topics: Sequence[AssignReplicasToDirs.ResponseTopic]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        directories: Sequence[AssignReplicasToDirs.ResponseDirectory]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[AssignReplicasToDirs.AnswerPartition]

    class AnswerDirectory(TypedDict, total=False):
        id: TopicId | None
        topics: Array[AssignReplicasToDirs.AnswerTopic]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            directories: Array[AssignReplicasToDirs.AnswerDirectory] = ...,
        ) -> None: ...
