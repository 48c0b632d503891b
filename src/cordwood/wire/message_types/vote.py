"""Generated from `messages/Vote.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class Vote(
    ApiTypes[
        "Vote.Request",
        "Vote.Answer",
        "Vote.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        replica_epoch: int
        replica_id: int
        replica_directory_id: TopicId | None
        voter_directory_id: TopicId | None
        last_offset_epoch: int
        last_offset: int
        pre_vote: bool

    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[Vote.RequestPartition]

    class Request(Entity):
        cluster_id: str | None
        voter_id: int
        topics: Sequence[Vote.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        vote_granted: bool

    class ResponseTopic(Entity):
        topic_name: str
        partitions: Sequence[Vote.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int

    class Response(Entity):
        error_code: int
        topics: Sequence[Vote.ResponseTopic]
        node_endpoints: Sequence[Vote.ResponseNodeEndpoint]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        vote_granted: bool

    class AnswerTopic(TypedDict, total=False):
        topic_name: str
        partitions: Array[Vote.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            topics: Array[Vote.AnswerTopic] = ...,
            node_endpoints: Array[Vote.AnswerNodeEndpoint] = ...,
        ) -> None: ...
