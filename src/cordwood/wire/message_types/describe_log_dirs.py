"""Generated from `messages/DescribeLogDirs.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeLogDirs(
    ApiTypes[
        "DescribeLogDirs.Request",
        "DescribeLogDirs.Answer",
        "DescribeLogDirs.Response",
    ]
):
    class RequestTopic(Entity):
        topic: str
        partitions: Sequence[int]

    class Request(Entity):
        topics: Sequence[DescribeLogDirs.RequestTopic] | None

    class ResponsePartition(Entity):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        last_epoch: int
        end_offset: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[DescribeLogDirs.ResponsePartition]

    class ResponseResult(Entity):
        error_code: int
        log_dir: str
        topics: Sequence[DescribeLogDirs.ResponseTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        results: Sequence[DescribeLogDirs.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        last_epoch: int
        end_offset: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[DescribeLogDirs.AnswerPartition]

    class AnswerResult(TypedDict, total=False):
        error_code: int
        log_dir: str
        topics: Array[DescribeLogDirs.AnswerTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            results: Array[DescribeLogDirs.AnswerResult] = ...,
        ) -> None: ...
