"""Generated from `messages/DescribeLogDirs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeLogDirsRequestTopic(Entity):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(Entity):
    topics: Sequence[DescribeLogDirsRequestTopic] | None


class DescribeLogDirsResponsePartition(Entity):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsResponseTopic(Entity):
    name: str
    partitions: Sequence[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponseResult(Entity):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsResponseTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponseResult]


class DescribeLogDirsAnswerPartition(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[DescribeLogDirsAnswerPartition]


class DescribeLogDirsAnswerResult(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Array[DescribeLogDirsAnswerTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: Array[DescribeLogDirsAnswerResult] = ...,
    ) -> None: ...


class DescribeLogDirs(
    ApiTypes[
        DescribeLogDirsRequest,
        DescribeLogDirsAnswer,
        DescribeLogDirsResponse,
    ]
):
    pass
