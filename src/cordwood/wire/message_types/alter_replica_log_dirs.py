"""Generated from `messages/AlterReplicaLogDirs.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterReplicaLogDirs(
    ApiTypes[
        "AlterReplicaLogDirs.Request",
        "AlterReplicaLogDirs.Answer",
        "AlterReplicaLogDirs.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partitions: Sequence[int]

    class RequestDir(Entity):
        path: str
        topics: Sequence[AlterReplicaLogDirs.RequestTopic]

    class Request(Entity):
        dirs: Sequence[AlterReplicaLogDirs.RequestDir]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseResult(Entity):
        topic_name: str
        partitions: Sequence[AlterReplicaLogDirs.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[AlterReplicaLogDirs.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerResult(TypedDict, total=False):
        topic_name: str
        partitions: Array[AlterReplicaLogDirs.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[AlterReplicaLogDirs.AnswerResult] = ...,
        ) -> None: ...
