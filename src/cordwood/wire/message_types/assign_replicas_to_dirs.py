"""Generated from `messages/AssignReplicasToDirs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AssignReplicasToDirsRequestPartition(Entity):
    partition_index: int


class AssignReplicasToDirsRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[AssignReplicasToDirsRequestPartition]


class AssignReplicasToDirsRequestDirectory(Entity):
    id: TopicId | None
    topics: Sequence[AssignReplicasToDirsRequestTopic]


class AssignReplicasToDirsRequest(Entity):
    broker_id: int
    broker_epoch: int
    directories: Sequence[AssignReplicasToDirsRequestDirectory]


class AssignReplicasToDirsResponsePartition(Entity):
    partition_index: int
    error_code: int


class AssignReplicasToDirsResponseTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[AssignReplicasToDirsResponsePartition]


class AssignReplicasToDirsResponseDirectory(Entity):
    id: TopicId | None
    topics: Sequence[AssignReplicasToDirsResponseTopic]


class AssignReplicasToDirsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    directories: Sequence[AssignReplicasToDirsResponseDirectory]


class AssignReplicasToDirsAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class AssignReplicasToDirsAnswerTopic(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[AssignReplicasToDirsAnswerPartition]


class AssignReplicasToDirsAnswerDirectory(TypedDict, total=False):
    id: TopicId | None
    topics: Array[AssignReplicasToDirsAnswerTopic]


class AssignReplicasToDirsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        directories: Array[AssignReplicasToDirsAnswerDirectory] = ...,
    ) -> None: ...


class AssignReplicasToDirs(
    ApiTypes[
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsAnswer,
        AssignReplicasToDirsResponse,
    ]
):
    pass
