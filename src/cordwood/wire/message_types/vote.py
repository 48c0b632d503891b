"""Generated from `messages/Vote.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class VoteRequestPartition(Entity):
    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: TopicId | None
    voter_directory_id: TopicId | None
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool


class VoteRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[VoteRequestPartition]


class VoteRequest(Entity):
    cluster_id: str | None
    voter_id: int
    topics: Sequence[VoteRequestTopic]


class VoteResponsePartition(Entity):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteResponseTopic(Entity):
    topic_name: str
    partitions: Sequence[VoteResponsePartition]


class VoteResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int


class VoteResponse(Entity):
    error_code: int
    topics: Sequence[VoteResponseTopic]
    node_endpoints: Sequence[VoteResponseNodeEndpoint]


class VoteAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteAnswerTopic(TypedDict, total=False):
    topic_name: str
    partitions: Array[VoteAnswerPartition]


class VoteAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class VoteAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        topics: Array[VoteAnswerTopic] = ...,
        node_endpoints: Array[VoteAnswerNodeEndpoint] = ...,
    ) -> None: ...


class Vote(
    ApiTypes[
        VoteRequest,
        VoteAnswer,
        VoteResponse,
    ]
):
    pass
