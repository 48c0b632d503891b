"""Generated from `messages/AlterReplicaLogDirs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterReplicaLogDirsRequestTopic(Entity):
    name: str
    partitions: Sequence[int]


class AlterReplicaLogDirsRequestDir(Entity):
    path: str
    topics: Sequence[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequest(Entity):
    dirs: Sequence[AlterReplicaLogDirsRequestDir]


class AlterReplicaLogDirsResponsePartition(Entity):
    partition_index: int
    error_code: int


class AlterReplicaLogDirsResponseResult(Entity):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirsResponsePartition]


class AlterReplicaLogDirsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirsResponseResult]


class AlterReplicaLogDirsAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class AlterReplicaLogDirsAnswerResult(TypedDict, total=False):
    topic_name: str
    partitions: Array[AlterReplicaLogDirsAnswerPartition]


class AlterReplicaLogDirsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[AlterReplicaLogDirsAnswerResult] = ...,
    ) -> None: ...


class AlterReplicaLogDirs(
    ApiTypes[
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsAnswer,
        AlterReplicaLogDirsResponse,
    ]
):
    pass
