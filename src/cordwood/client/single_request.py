"""One request to one broker, over a connection of its own: for questions to a broker, not to a cluster.

The caller chooses the version: the question is about what this broker, old or new, says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable
from cordwood.client.settings import Address, ClientSettings
from cordwood.wire.asking import BadResponse, decode_response, encode_request

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response

MAX_RESPONSE_BYTES = 64 << 20


def single_request(
    address: tuple[str, int],
    key: KeyOf[Response],
    version: int,
    values: Mapping[str, Any],
    timeout_s: float,
    client_id: str,
) -> Response:
    """The broker's answer. Raises BrokerUnreachable."""
    host, port = address
    timeout_ms = max(1, round(timeout_s * 1000))
    try:
        settings = ClientSettings(
            str(Address(host, port)),
            client_id=client_id,
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )
    except ValueError as reason:  # a broker may advertise a host that no client can look up
        raise BrokerUnreachable(str(reason)) from reason
    connection = Connection(host, port, settings)
    try:
        answer = connection.request(key, version, encode_request(key, version, values))
        return decode_response(key, version, answer)
    except BadResponse as reason:
        raise BrokerUnreachable(f"{connection.name}: {reason}") from reason
    finally:
        connection.close()
