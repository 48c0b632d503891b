"""Generated from `messages/BeginQuorumEpoch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class BeginQuorumEpochRequestPartition(Entity):
    partition_index: int
    voter_directory_id: TopicId | None
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochRequestPartition]


class BeginQuorumEpochRequestLeaderEndpoint(Entity):
    name: str
    host: str
    port: int


class BeginQuorumEpochRequest(Entity):
    cluster_id: str | None
    voter_id: int
    topics: Sequence[BeginQuorumEpochRequestTopic]
    leader_endpoints: Sequence[BeginQuorumEpochRequestLeaderEndpoint]


class BeginQuorumEpochResponsePartition(Entity):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochResponseTopic(Entity):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochResponsePartition]


class BeginQuorumEpochResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int


class BeginQuorumEpochResponse(Entity):
    error_code: int
    topics: Sequence[BeginQuorumEpochResponseTopic]
    node_endpoints: Sequence[BeginQuorumEpochResponseNodeEndpoint]


class BeginQuorumEpochAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochAnswerTopic(TypedDict, total=False):
    topic_name: str
    partitions: Array[BeginQuorumEpochAnswerPartition]


class BeginQuorumEpochAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class BeginQuorumEpochAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        topics: Array[BeginQuorumEpochAnswerTopic] = ...,
        node_endpoints: Array[BeginQuorumEpochAnswerNodeEndpoint] = ...,
    ) -> None: ...


class BeginQuorumEpoch(
    ApiTypes[
        BeginQuorumEpochRequest,
        BeginQuorumEpochAnswer,
        BeginQuorumEpochResponse,
    ]
):
    pass
