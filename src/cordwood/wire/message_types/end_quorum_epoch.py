"""Generated from `messages/EndQuorumEpoch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class EndQuorumEpoch(
    ApiTypes[
        "EndQuorumEpoch.Request",
        "EndQuorumEpoch.Answer",
        "EndQuorumEpoch.Response",
    ]
):
    class RequestPreferredCandidate(Entity):
        candidate_id: int
        candidate_directory_id: TopicId | None

    class RequestPartition(Entity):
        partition_index: int
        leader_id: int
        leader_epoch: int
        preferred_successors: Sequence[int]
        preferred_candidates: Sequence[EndQuorumEpoch.RequestPreferredCandidate]

    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[EndQuorumEpoch.RequestPartition]

    class RequestLeaderEndpoint(Entity):
        name: str
        host: str
        port: int

    class Request(Entity):
        cluster_id: str | None
        topics: Sequence[EndQuorumEpoch.RequestTopic]
        leader_endpoints: Sequence[EndQuorumEpoch.RequestLeaderEndpoint]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int

    class ResponseTopic(Entity):
        topic_name: str
        partitions: Sequence[EndQuorumEpoch.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int

    class Response(Entity):
        error_code: int
        topics: Sequence[EndQuorumEpoch.ResponseTopic]
        node_endpoints: Sequence[EndQuorumEpoch.ResponseNodeEndpoint]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int

    class AnswerTopic(TypedDict, total=False):
        topic_name: str
        partitions: Array[EndQuorumEpoch.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            topics: Array[EndQuorumEpoch.AnswerTopic] = ...,
            node_endpoints: Array[EndQuorumEpoch.AnswerNodeEndpoint] = ...,
        ) -> None: ...
