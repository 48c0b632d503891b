"""Generated from `messages/WatchReport.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class WatchReport(
    ApiTypes[
        "WatchReport.Request",
        "WatchReport.Answer",
        "WatchReport.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int
        position: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[WatchReport.RequestPartition]

    class RequestGroup(Entity):
        group_id: str
        topics: Sequence[WatchReport.RequestTopic]

    class RequestTrafficPartition(Entity):
        partition: int
        bytes_per_second: float

    class RequestTraffic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[WatchReport.RequestTrafficPartition]

    class Request(Entity):
        broker_id: int
        broker_epoch: int
        valid_for_ms: int
        groups: Sequence[WatchReport.RequestGroup]
        traffic: Sequence[WatchReport.RequestTraffic]

    class ResponseTopic(Entity):
        topic_id: TopicId | None
        bytes_per_second: float

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        topics: Sequence[WatchReport.ResponseTopic]

    class AnswerTopic(TypedDict, total=False):
        topic_id: TopicId | None
        bytes_per_second: float

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            topics: Array[WatchReport.AnswerTopic] = ...,
        ) -> None: ...
