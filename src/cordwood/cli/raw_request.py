"""Requests that librdkafka does not offer, each over a plain connection of its own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordwood.cli.connection import Connection, code_name
from cordwood.cli.failure import ExitCode, Failure
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.codec import reader, writer
from cordwood.wire.schema import load

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response

_CLIENT_ID = b"cordwood-cli"
_CORRELATION_ID = 1
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_HEADER = struct.Struct(">hhih")

Address = tuple[str, int]


def ask(address: Address, key: KeyOf[Response], version: int, values: Mapping[str, Any], timeout_s: float) -> Response:
    """The response as an entity with Kafka's field names. Raises Failure if there is no response."""
    messages = load(APIS[key].name)
    is_flexible = flexible(key, version)
    parts = [_HEADER.pack(key, version, _CORRELATION_ID, len(_CLIENT_ID)), _CLIENT_ID, b"\x00" if is_flexible else b""]
    writer(messages["request"], version)(values, parts.append)
    request = b"".join(parts)
    host, port = address
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 4 <= size <= _MAX_RESPONSE_BYTES:
                raise OSError(f"a frame of {size} bytes")
            response = _receive(connection, size)
    except OSError as error:
        raise Failure(
            "BROKER_NOT_REACHABLE",
            f"{host}:{port} did not answer {APIS[key].name}: {error}",
            "does this broker offer the API, and without authentication?",
            ExitCode.NOT_REACHABLE,
        ) from error
    # The header of an ApiVersions response has no tagged fields in any version.
    header_bytes = 5 if is_flexible and key != ApiKey.API_VERSIONS else 4
    entity, _ = reader(messages["response"], version)(memoryview(response), header_bytes)
    return entity  # type: ignore[no-any-return]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise OSError("the broker closed the connection")
        received += part
    return bytes(received)


def brokers(connection: Connection) -> list[Address]:
    """The addresses of the cluster's brokers."""
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    return [(str(broker.host), int(broker.port)) for _, broker in sorted(metadata.brokers.items())]


def transaction_coordinator(connection: Connection, transactional_id: str) -> Address:
    return _coordinator(connection, transactional_id, 1)


def group_coordinator(connection: Connection, group: str) -> Address:
    return _coordinator(connection, group, 0)


def _coordinator(connection: Connection, key: str, key_type: int) -> Address:
    values = {"key": key, "key_type": key_type}
    found = ask(brokers(connection)[0], ApiKey.FIND_COORDINATOR, 2, values, connection.timeout_s)
    if found.error_code:
        raise Failure(code_name(found.error_code), found.error_message or "the broker knows no coordinator")
    return found.host, found.port
