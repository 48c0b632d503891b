"""Generated from `messages/EndQuorumEpoch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class EndQuorumEpochRequestPreferredCandidate(Entity):
    candidate_id: int
    candidate_directory_id: TopicId | None


class EndQuorumEpochRequestPartition(Entity):
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: Sequence[int]
    preferred_candidates: Sequence[EndQuorumEpochRequestPreferredCandidate]


class EndQuorumEpochRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[EndQuorumEpochRequestPartition]


class EndQuorumEpochRequestLeaderEndpoint(Entity):
    name: str
    host: str
    port: int


class EndQuorumEpochRequest(Entity):
    cluster_id: str | None
    topics: Sequence[EndQuorumEpochRequestTopic]
    leader_endpoints: Sequence[EndQuorumEpochRequestLeaderEndpoint]


class EndQuorumEpochResponsePartition(Entity):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class EndQuorumEpochResponseTopic(Entity):
    topic_name: str
    partitions: Sequence[EndQuorumEpochResponsePartition]


class EndQuorumEpochResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int


class EndQuorumEpochResponse(Entity):
    error_code: int
    topics: Sequence[EndQuorumEpochResponseTopic]
    node_endpoints: Sequence[EndQuorumEpochResponseNodeEndpoint]


class EndQuorumEpochAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class EndQuorumEpochAnswerTopic(TypedDict, total=False):
    topic_name: str
    partitions: Array[EndQuorumEpochAnswerPartition]


class EndQuorumEpochAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class EndQuorumEpochAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        topics: Array[EndQuorumEpochAnswerTopic] = ...,
        node_endpoints: Array[EndQuorumEpochAnswerNodeEndpoint] = ...,
    ) -> None: ...


class EndQuorumEpoch(
    ApiTypes[
        EndQuorumEpochRequest,
        EndQuorumEpochAnswer,
        EndQuorumEpochResponse,
    ]
):
    pass
