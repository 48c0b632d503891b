"""Generated from `messages/BeginQuorumEpoch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class BeginQuorumEpoch(
    ApiTypes[
        "BeginQuorumEpoch.Request",
        "BeginQuorumEpoch.Answer",
        "BeginQuorumEpoch.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        voter_directory_id: TopicId | None
        leader_id: int
        leader_epoch: int

    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[BeginQuorumEpoch.RequestPartition]

    class RequestLeaderEndpoint(Entity):
        name: str
        host: str
        port: int

    class Request(Entity):
        cluster_id: str | None
        voter_id: int
        topics: Sequence[BeginQuorumEpoch.RequestTopic]
        leader_endpoints: Sequence[BeginQuorumEpoch.RequestLeaderEndpoint]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int

    class ResponseTopic(Entity):
        topic_name: str
        partitions: Sequence[BeginQuorumEpoch.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int

    class Response(Entity):
        error_code: int
        topics: Sequence[BeginQuorumEpoch.ResponseTopic]
        node_endpoints: Sequence[BeginQuorumEpoch.ResponseNodeEndpoint]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int

    class AnswerTopic(TypedDict, total=False):
        topic_name: str
        partitions: Array[BeginQuorumEpoch.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            topics: Array[BeginQuorumEpoch.AnswerTopic] = ...,
            node_endpoints: Array[BeginQuorumEpoch.AnswerNodeEndpoint] = ...,
        ) -> None: ...
