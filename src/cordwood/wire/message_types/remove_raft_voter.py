"""Generated from `messages/RemoveRaftVoter.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class RemoveRaftVoter(
    ApiTypes[
        "RemoveRaftVoter.Request",
        "RemoveRaftVoter.Answer",
        "RemoveRaftVoter.Response",
    ]
):
    class Request(Entity):
        cluster_id: str | None
        voter_id: int
        voter_directory_id: TopicId | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...
