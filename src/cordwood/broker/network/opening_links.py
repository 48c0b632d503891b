"""Opens a connection to another broker: TLS, the log-in, and the question which versions the peer serves.

The key of the registration is sent only once the peer has proved, by its certificate or in the log-in, that it belongs
to the cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from cordwood.broker.network.peer_link import LinkOwner, PeerLink
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import BadResponse, correlation_id_of, decode_response, encode_request, request_start
from cordwood.wire.requests import Sender

if TYPE_CHECKING:
    import ssl

_ASK_WITH: Final = 3
_ONLY_ONE: Final = 0
"""The correlation id of requests of which only one is under way."""
_RENEW_AFTER: Final = (0.85, 0.95)
"""The part of a session after which it is renewed, by chance, so that connections do not all pause together."""


Ask = Callable[[ApiKey, int, Mapping[str, Any]], Awaitable[Any]]
"""Sends a request, and returns its decoded answer. Raises OSError, BadResponse."""


class LogInFailed(Exception):
    """The peer did not take the log-in, or did not prove that it knows the user. The reason has no secret."""


class LogIn(Protocol):
    """How this broker proves to others who it is."""

    async def log_in(self, ask: Ask) -> int:
        """Returns the session's length in ms; 0: it has no end. Raises LogInFailed, and what `ask` raises."""


class Security(NamedTuple):
    """How brokers speak among themselves; by itself in plain text, and nobody is asked."""

    context_of: Callable[[], ssl.SSLContext | None] = lambda: None
    """The context of the next connection; None: there is no TLS."""
    log_in: LogIn | None = None

    @property
    def is_plain(self) -> bool:
        return self.log_in is None and self.context_of() is None


IN_PLAIN_TEXT: Final = Security()


class Opened(NamedTuple):
    """A connection that takes requests."""

    link: PeerLink
    versions: dict[int, tuple[int, int]]
    renew_s: float | None
    """The time, by the loop's clock, at which the log-in is to be renewed; None: never."""


class LinkOpening:
    """Opens connections of one broker to others. Belongs to one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: bytes,
        sender: Callable[[], Sender],
        security: Security,
        max_answer_bytes: int,
    ) -> None:
        self._security = security
        self._loop = loop
        self._client_id = client_id
        self._sender = sender
        self._max_answer_bytes = max_answer_bytes

    @property
    def speaks_tls(self) -> bool:
        return self._security.context_of() is not None

    async def open(self, owner: LinkOwner, host: str, port: int) -> Opened:
        """Raises OSError, BadResponse, LogInFailed."""
        context = self._security.context_of()
        _, link = await self._loop.create_connection(
            lambda: PeerLink(owner, self._max_answer_bytes),
            host,
            port,
            ssl=context,
            server_hostname=None if context is None else host,
        )
        try:
            renew_s = await self.log_in(link)
            versions = await self._ask_versions(link)
            if link.lost is not None:
                raise ConnectionError(link.lost)
        except BaseException:
            link.abort()
            raise
        return Opened(link, versions, renew_s)

    async def log_in(self, link: PeerLink) -> float | None:
        """Logs in, for the first time or again. Returns the time at which to do so again; None: never. Raises OSError,
        BadResponse, LogInFailed."""
        if self._security.log_in is None:
            return None
        began_s = self._loop.time()
        lifetime_ms = await self._security.log_in.log_in(
            lambda api_key, version, values: self._ask(link, api_key, version, values, None)
        )
        return began_s + lifetime_ms / 1000 * random.uniform(*_RENEW_AFTER) if lifetime_ms > 0 else None

    async def _ask_versions(self, link: PeerLink) -> dict[int, tuple[int, int]]:
        values = {"client_software_name": "cordwood", "client_software_version": "1"}
        answer = await self._ask(link, ApiKey.API_VERSIONS, _ASK_WITH, values, self._sender())
        if answer.error_code != ErrorCode.NONE:
            raise BadResponse(f"ApiVersions was refused with error {answer.error_code}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def _ask(
        self, link: PeerLink, api_key: ApiKey, version: int, values: Mapping[str, Any], sender: Sender | None
    ) -> Any:
        body = encode_request(api_key, version, values)
        start = request_start(api_key, version, _ONLY_ONE, self._client_id, len(body), sender=sender)
        frame = await link.ask(start + body)
        if correlation_id_of(frame) != _ONLY_ONE:
            raise BadResponse("an answer came that belongs to no request")
        return decode_response(api_key, version, frame)
