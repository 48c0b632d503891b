"""Generated from `messages/AddRaftVoter.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class AddRaftVoter(
    ApiTypes[
        "AddRaftVoter.Request",
        "AddRaftVoter.Answer",
        "AddRaftVoter.Response",
    ]
):
    class RequestListener(Entity):
        name: str
        host: str
        port: int

    class Request(Entity):
        cluster_id: str | None
        timeout_ms: int
        voter_id: int
        voter_directory_id: TopicId | None
        listeners: Sequence[AddRaftVoter.RequestListener]
        ack_when_committed: bool

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
