"""Requests that librdkafka does not offer, each over a separate plain connection."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.cli.connection import Connection, code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.codec import reader, writer
from cordwood.wire.schema import load

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response

_CLIENT_ID = b"cordwood-cli"
_CORRELATION_ID = 1
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_HEADER = struct.Struct(">hhih")

_RETRY_PAUSE_S = 0.2

T = TypeVar("T")
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
            "does the broker run, and offer this API without authentication?",
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
    """The addresses of the cluster's brokers, also of those that ended in the last minute: librdkafka knows both."""
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    return [(str(broker.host), int(broker.port)) for _, broker in sorted(metadata.brokers.items())]


def brokers_that_take_part(connection: Connection) -> dict[int, Address]:
    """The addresses of the brokers that serve clients now, by id, as the first broker that answers knows them."""
    _, described = first_answer(brokers(connection), lambda asked: _described_by(asked, connection.timeout_s))
    return described


def first_answer(addresses: Sequence[Address], question: Callable[[Address], T]) -> tuple[Address, T]:
    """The first broker that answers, and its answer: a dead broker is listed until its registration ends.

    Raises Failure if no broker answers.
    """
    if not addresses:
        raise Failure(
            "BROKER_NOT_REACHABLE",
            "no broker is registered in the metadata store just now",
            "ask again in some seconds; if it stays so, look at the store",
            ExitCode.NOT_REACHABLE,
        )
    *others, last = addresses
    for address in others:
        try:
            return address, question(address)
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_REACHABLE:
                raise
    return last, question(last)


def _described_by(address: Address, timeout_s: float) -> dict[int, Address]:
    told = ask(address, ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}, timeout_s)
    if told.error_code:
        raise Failure(code_name(told.error_code), told.error_message or "the broker does not describe the cluster")
    return {each.broker_id: (each.host, each.port) for each in sorted(told.brokers, key=lambda each: each.broker_id)}


def from_every_broker(connection: Connection, question: Callable[[Address], T]) -> list[T]:
    """The answers of all brokers. Asks again while one does not answer: the others soon notice that it ended. Raises
    Failure."""
    deadline_s = time.monotonic() + connection.timeout_s
    while True:
        try:
            return [question(address) for address in brokers_that_take_part(connection).values()]
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_REACHABLE or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)


def transaction_coordinator(connection: Connection, transactional_id: str) -> Address:
    return _coordinator(connection, transactional_id, 1)


def group_coordinator(connection: Connection, group: str) -> Address:
    return _coordinator(connection, group, 0)


def _coordinator(connection: Connection, key: str, key_type: int) -> Address:
    values = {"key": key, "key_type": key_type}
    _, found = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.FIND_COORDINATOR, 2, values, connection.timeout_s)
    )
    if found.error_code:
        raise Failure(code_name(found.error_code), found.error_message or "the broker knows no coordinator")
    return found.host, found.port
