"""One broker: its address, a connection that is made when needed, and its API versions.

A `Link` speaks the highest version that both sides know. `single_request` asks at a version of the caller's choice,
over a connection of its own: for questions about what this broker, old or new, says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from cordwood.client.connection import Bytes, Connection
from cordwood.client.errors import Asked, BrokerUnreachable
from cordwood.client.settings import Address, ClientSettings
from cordwood.client.versions import BrokerVersions, negotiate
from cordwood.security.connection_settings import PLAIN_TEXT, Security
from cordwood.wire.api_types import Response
from cordwood.wire.apis import APIS
from cordwood.wire.asking import BadResponse, decode_response, encode_request

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf


SINGLE_RESPONSE_MAX_BYTES = 64 << 20


class Pending(NamedTuple, Generic[Response]):
    """A request on its way. The request fails if its connection breaks."""

    connection: Connection
    token: int
    api_key: KeyOf[Response]
    version: int
    wait_ms: int

    def frame(self) -> memoryview:
        """Waits for the answer's bytes."""
        return self.connection.receive(self.token, wait_ms=self.wait_ms)

    def answer(self) -> Response:
        """Waits for the answer, and decodes it."""
        return self.decoded(self.frame())

    def decoded(self, frame: memoryview) -> Response:
        try:
            return decode_response(self.api_key, self.version, frame)
        except BadResponse as reason:
            raise self.unreadable(reason) from reason

    def unreadable(self, reason: BadResponse) -> BrokerUnreachable:
        """Closes the connection after an unreadable answer: its further bytes cannot be trusted."""
        self.connection.close()
        return BrokerUnreachable(f"{self.connection.name}: {reason}")

    def has_arrived(self) -> bool:
        return self.connection.has_arrived(self.token)

    def forget(self) -> None:
        self.connection.forget(self.token)


class Link:
    def __init__(self, address: Address, settings: ClientSettings, node_id: int | None = None) -> None:
        self.address = address
        self.node_id = node_id
        self.name = f"broker at {address}" if node_id is None else f"broker {node_id} ({address})"
        self._settings = settings
        self._connection: Connection | None = None
        self._versions: BrokerVersions | None = None
        self._connect_failed = False

    def adopt(self, other: Link) -> None:
        """Takes over the connection of a link that turned out to lead to the same broker."""
        if self._connection is None and other._connection is not None and other._versions is not None:
            self._connection, other._connection = other._connection, None
            self._connection.name = self.name
            self._versions = replace(other._versions, name=self.name)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def is_doubtful(self) -> bool:
        """True if the last connection broke or could not be made: the broker may hang, and cost a timeout to ask."""
        return self._connect_failed or (self._connection is not None and not self._connection.is_open)

    def connect(self) -> Connection:
        """The open connection, or a new one. Raises BrokerUnreachable."""
        if self._connection is None or not self._connection.is_open:
            self._connection = None
            self._connect_failed = True
            connection = Connection(self.address.host, self.address.port, self._settings, self.name)
            self._versions = negotiate(connection)
            self._connection = connection
            self._connect_failed = False
        return self._connection

    @property
    def versions(self) -> BrokerVersions:
        self.connect()
        assert self._versions is not None
        return self._versions

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin(
        self, api_key: KeyOf[Response], values: Mapping[str, Any], *, at_most: int | None = None, wait_ms: int = 0
    ) -> Pending[Response]:
        """Sends a request, at the highest version that both sides speak."""
        version = self.versions.pick(api_key, at_most)
        return self.begin_encoded(api_key, version, encode_request(api_key, version, values), wait_ms=wait_ms)

    def begin_encoded(
        self,
        api_key: KeyOf[Response],
        version: int,
        body: Bytes | Sequence[Bytes],
        *,
        wait_ms: int = 0,
        answered: bool = True,
    ) -> Pending[Response]:
        connection = self.connect()
        return Pending(
            connection, connection.send(api_key, version, body, answered=answered), api_key, version, wait_ms
        )

    def ask(
        self, api_key: KeyOf[Response], values: Mapping[str, Any], *, at_most: int | None = None, wait_ms: int = 0
    ) -> Response:
        return self.begin(api_key, values, at_most=at_most, wait_ms=wait_ms).answer()

    def was_asked(self, api_key: int, about: str) -> Asked:
        """A request that the broker refused."""
        return Asked(api_key, f"{self.name} refused {APIS[api_key].name} {about}")


def single_request(
    address: Address,
    key: KeyOf[Response],
    version: int,
    values: Mapping[str, Any],
    timeout_s: float,
    client_id: str,
    security: Security = PLAIN_TEXT,
) -> Response:
    """The broker's answer. Raises BrokerUnreachable, SecurityFailure."""
    timeout_ms = max(1, round(timeout_s * 1000))
    try:
        settings = ClientSettings(
            str(address),
            client_id=client_id,
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            max_response_bytes=SINGLE_RESPONSE_MAX_BYTES,
            security=security,
        )
    except ValueError as reason:  # a broker may advertise a host that no client can look up
        raise BrokerUnreachable(str(reason)) from reason
    connection = Connection(address.host, address.port, settings)
    try:
        answer = connection.request(key, version, encode_request(key, version, values))
        return decode_response(key, version, answer)
    except BadResponse as reason:
        raise BrokerUnreachable(f"{connection.name}: {reason}") from reason
    finally:
        connection.close()
