"""Requests by their fields over a socket, responses as entities: for versions and mistakes that no library makes."""

from __future__ import annotations

import secrets
import socket
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from cordwood.model.credentials import ScramMechanism
from cordwood.security.scram_client import ScramClient, client_keys
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.codec import Read, Write, reader, writer
from cordwood.wire.encoding.schema import load

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response

SESSION_MS = 10_000


@cache
def _writer(key: ApiKey, version: int) -> Write:
    return writer(load(APIS[key].name)["request"], version)


@cache
def _reader(key: ApiKey, version: int) -> Read:
    return reader(load(APIS[key].name)["response"], version)


class RawClient:
    """One connection. A version that the API does not have becomes the nearest that it has."""

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def send(self, key: KeyOf[Response], version: int, /, **fields: Any) -> Response:
        version = max(APIS[key].min_version, min(version, APIS[key].max_version))
        self.request(key, version, **fields)
        return self.answer(key, version)

    def request(self, key: ApiKey, version: int, /, **fields: Any) -> None:
        parts = [struct.pack(">hhih", key, version, 7, 3) + b"raw"]
        if flexible(key, version):
            parts.append(b"\0")
        _writer(key, version)(fields, parts.append)
        request = b"".join(parts)
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def answer(self, key: KeyOf[Response], version: int) -> Response:
        """The answer to the oldest request that has none yet."""
        response = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        entity, end = _reader(key, version)(response, 5 if flexible(key, version) else 4)
        assert end == len(response)
        return entity  # type: ignore[no-any-return]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker hung up"
            data += part
        return data

    def close(self) -> None:
        self._socket.close()

    def log_in(self, user: str, password: str) -> bool:
        """By SCRAM-SHA-256. False: the broker does not take the password, and the connection is of no use."""
        mechanism = ScramMechanism.SHA_256
        scram = ScramClient(mechanism, user, secrets.token_hex(12))
        assert self.send(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism.sasl_name).error_code == 0
        challenge = self.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=scram.first()).auth_bytes
        proof = scram.final(client_keys(mechanism, password, scram.challenged(bytes(challenge))))
        answer = self.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=proof)
        if answer.error_code:
            return False
        scram.check(bytes(answer.auth_bytes))
        return True

    def join(self, version: int, group: str, member_id: str = "", **fields: Any) -> Any:
        values = {
            "group_id": group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\0\0\0\0"}],
            **fields,
        }
        return self.send(ApiKey.JOIN_GROUP, version, **values)
