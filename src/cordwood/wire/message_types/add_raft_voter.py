"""Generated from `messages/AddRaftVoter.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class AddRaftVoterRequestListener(Entity):
    name: str
    host: str
    port: int


class AddRaftVoterRequest(Entity):
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: TopicId | None
    listeners: Sequence[AddRaftVoterRequestListener]
    ack_when_committed: bool


class AddRaftVoterResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None


class AddRaftVoterAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...


class AddRaftVoter(
    ApiTypes[
        AddRaftVoterRequest,
        AddRaftVoterAnswer,
        AddRaftVoterResponse,
    ]
):
    pass
