"""Generated from `messages/UpdateRaftVoter.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class UpdateRaftVoterRequestListener(Entity):
    name: str
    host: str
    port: int


class UpdateRaftVoterRequestKRaftVersionFeature(Entity):
    min_supported_version: int
    max_supported_version: int


class UpdateRaftVoterRequest(Entity):
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: TopicId | None
    listeners: Sequence[UpdateRaftVoterRequestListener]
    k_raft_version_feature: UpdateRaftVoterRequestKRaftVersionFeature


class UpdateRaftVoterResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int
    host: str
    port: int


class UpdateRaftVoterResponse(Entity):
    throttle_time_ms: int
    error_code: int
    current_leader: UpdateRaftVoterResponseCurrentLeader


class UpdateRaftVoterAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int
    host: str
    port: int


class UpdateRaftVoterAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        current_leader: UpdateRaftVoterAnswerCurrentLeader = ...,
    ) -> None: ...


class UpdateRaftVoter(
    ApiTypes[
        UpdateRaftVoterRequest,
        UpdateRaftVoterAnswer,
        UpdateRaftVoterResponse,
    ]
):
    pass
