"""The log-in of one connection, and its renewal before the broker ends the session (KIP-368).

Messages of the log-in go at fixed versions, which brokers have from Apache Kafka 2.2 on: a connection may ask for
versions before its log-in, and need not.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.client.errors import ClientError, LogInFailure, error_code
from cordwood.client.tokens import token_of
from cordwood.model.credentials import PLAIN, SCRAM_NAMES
from cordwood.model.errors import ErrorCode
from cordwood.security.connection_settings import ClientLogIn, TokenSource
from cordwood.security.scram_client import ScramClient, Untrusted, client_keys
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import decode_response, encode_request

if TYPE_CHECKING:
    from cordwood.wire.message_types.sasl_authenticate import SaslAuthenticate

_VERSION: Final = 1
_RENEW_AFTER: Final = (0.85, 0.95)
"""The part of a session after which it is renewed, by chance, so that the clients of a broker do not come together."""


class Asker(Protocol):
    @property
    def name(self) -> str: ...

    def request(self, api_key: int, version: int, body: bytes) -> memoryview: ...


def log_in(broker: Asker, sasl: ClientLogIn) -> float | None:
    """Proves the user. Returns the time (`time.monotonic`) to do so again; None: the session has no end. Raises
    LogInFailure, BrokerUnreachable, or BadResponse."""
    body = encode_request(ApiKey.SASL_HANDSHAKE, _VERSION, {"mechanism": sasl.mechanism})
    handshake = decode_response(ApiKey.SASL_HANDSHAKE, _VERSION, broker.request(ApiKey.SASL_HANDSHAKE, _VERSION, body))
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise LogInFailure(f"{broker.name} does not take sasl.mechanism={sasl.mechanism}: the listener takes {offered}")
    if handshake.error_code:
        code = error_code(handshake.error_code)
        cure = (
            " (it asks for none: set security.protocol without SASL_)" if code == ErrorCode.ILLEGAL_SASL_STATE else ""
        )
        raise LogInFailure(f"{broker.name} refused to begin the log-in: {code.name}{cure}")
    began_s = time.monotonic()
    lifetime_ms = _prove(lambda token: _authenticate(broker, sasl, token), broker.name, sasl)
    return began_s + lifetime_ms / 1000 * random.uniform(*_RENEW_AFTER) if lifetime_ms > 0 else None


def _prove(send: Callable[[bytes], SaslAuthenticate.Response], name: str, sasl: ClientLogIn) -> int:
    """Takes the steps of the mechanism. Returns the session's lifetime in ms; 0: it has no end."""
    if sasl.tokens is not None:
        return _bring_token(send, name, sasl.tokens)
    if sasl.mechanism == PLAIN:
        return send(f"\0{sasl.username}\0{sasl.password}".encode()).session_lifetime_ms
    mechanism = SCRAM_NAMES[sasl.mechanism]
    client = ScramClient(mechanism, sasl.username, secrets.token_hex(16), by_token=sasl.by_token)
    try:
        salting = client.challenged(send(client.first()).auth_bytes)
        last = send(client.final(client_keys(mechanism, sasl.password, salting)))
        client.check(last.auth_bytes)
    except Untrusted as reason:
        raise LogInFailure(f"{name} is not trusted with the log-in of {sasl.username}: {reason}") from None
    return last.session_lifetime_ms


def _bring_token(send: Callable[[bytes], SaslAuthenticate.Response], name: str, source: TokenSource) -> int:
    """Logs in by a token (RFC 7628). Returns the session's lifetime in ms."""
    answer = send(f"n,,\x01auth=Bearer {token_of(source)}\x01\x01".encode())
    if answer.auth_bytes:
        # The broker's reason. The answer to the client's last word is the refusal itself.
        told = bytes(answer.auth_bytes).decode(errors="replace")
        with suppress(ClientError):
            send(b"\x01")
        raise LogInFailure(
            f"{name} does not take the token of {source.client_id}: {told[:200]!r} (the broker's log has the reason)"
        )
    return answer.session_lifetime_ms


def _authenticate(broker: Asker, sasl: ClientLogIn, token: bytes) -> SaslAuthenticate.Response:
    body = encode_request(ApiKey.SASL_AUTHENTICATE, _VERSION, {"auth_bytes": token})
    answer = decode_response(
        ApiKey.SASL_AUTHENTICATE, _VERSION, broker.request(ApiKey.SASL_AUTHENTICATE, _VERSION, body)
    )
    if answer.error_code:
        told = f": {answer.error_message}" if answer.error_message else ""
        whose = "of a delegation token that is not over" if sasl.by_token else "those of a user"
        cure = "" if sasl.tokens is not None else f" (sasl.username and sasl.password have to be {whose})"
        raise LogInFailure(
            f"{broker.name} refused the log-in of {sasl.username} by {sasl.mechanism}: "
            f"{error_code(answer.error_code).name}{told}{cure}"
        )
    return answer
