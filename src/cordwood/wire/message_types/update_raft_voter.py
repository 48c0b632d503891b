"""Generated from `messages/UpdateRaftVoter.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class UpdateRaftVoter(
    ApiTypes[
        "UpdateRaftVoter.Request",
        "UpdateRaftVoter.Answer",
        "UpdateRaftVoter.Response",
    ]
):
    class RequestListener(Entity):
        name: str
        host: str
        port: int

    class RequestKRaftVersionFeature(Entity):
        min_supported_version: int
        max_supported_version: int

    class Request(Entity):
        cluster_id: str | None
        current_leader_epoch: int
        voter_id: int
        voter_directory_id: TopicId | None
        listeners: Sequence[UpdateRaftVoter.RequestListener]
        k_raft_version_feature: UpdateRaftVoter.RequestKRaftVersionFeature

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int
        host: str
        port: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        current_leader: UpdateRaftVoter.ResponseCurrentLeader

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int
        host: str
        port: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            current_leader: UpdateRaftVoter.AnswerCurrentLeader = ...,
        ) -> None: ...
