"""Generated from `messages/BrokerRegistration.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class BrokerRegistration(
    ApiTypes[
        "BrokerRegistration.Request",
        "BrokerRegistration.Answer",
        "BrokerRegistration.Response",
    ]
):
    class RequestListener(Entity):
        name: str
        host: str
        port: int
        security_protocol: int

    class RequestFeature(Entity):
        name: str
        min_supported_version: int
        max_supported_version: int

    class Request(Entity):
        broker_id: int
        cluster_id: str
        incarnation_id: TopicId | None
        listeners: Sequence[BrokerRegistration.RequestListener]
        features: Sequence[BrokerRegistration.RequestFeature]
        rack: str | None
        is_migrating_zk_broker: bool
        log_dirs: Sequence[TopicId | None]
        previous_broker_epoch: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        broker_epoch: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            broker_epoch: int = ...,
        ) -> None: ...
