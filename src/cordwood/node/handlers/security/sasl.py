"""SASL: SaslHandshake, SaslAuthenticate. The exchange is a machine (`security/authentication.py`).

The machine is imported when somebody logs in: most brokers on a laptop ask nobody, and start quickly.

SaslHandshake 0 is offered and refused. Librdkafka of some years (2.0.2 of Debian 12) logs in only where it is offered,
and then uses version 1. Behind version 0 SASL messages would follow as bare bytes: only clients from before Kafka 1.0
(2017) ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import encode_response

if TYPE_CHECKING:
    from cordwood.node.security.authentications import Authentications
    from cordwood.security.authentication import Authentication, Refused
    from cordwood.security.exchange import DelegationClaim, PasswordClaim, Proof, TokenClaim, Unproven
    from cordwood.security.scram import FoundKeys
    from cordwood.wire.message_types.sasl_authenticate import SaslAuthenticate
    from cordwood.wire.message_types.sasl_handshake import SaslHandshake

_NOBODY_IS_ASKED = "The listener asks nobody who it is: set security.protocol without SASL."


class SaslRooms(Protocol):
    """The rooms of a node that these handlers need."""

    authentications: Authentications


def sasl_handshake(rooms: SaslRooms, request: Request[SaslHandshake]) -> None:
    body = request.decode()
    if request.version == 0:
        request.answer(error_code=ErrorCode.UNSUPPORTED_VERSION, mechanisms=())
        return
    asks = request.reply.session.entrance.asks
    authentication = rooms.authentications.of(request.reply)
    if authentication is None or asks is None:
        request.answer(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
        return
    from cordwood.security.authentication import Refused

    try:
        authentication.choose(body.mechanism, rooms.authentications.new_nonce())
    except Refused as refused:
        frame = encode_response(request.header, {"error_code": refused.code, "mechanisms": asks.mechanisms})
        rooms.authentications.refuse(request.reply, frame, refused)
        return
    request.answer(error_code=ErrorCode.NONE, mechanisms=asks.mechanisms)


def sasl_authenticate(rooms: SaslRooms, request: Request[SaslAuthenticate]) -> None:
    body = request.decode()
    authentication = rooms.authentications.of(request.reply)
    if authentication is None:
        request.answer(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOBODY_IS_ASKED, auth_bytes=b"")
        return
    from cordwood.security.authentication import Refused
    from cordwood.security.exchange import Challenge, DelegationClaim, PasswordClaim, Proof, TokenClaim

    try:
        step = authentication.take(bytes(body.auth_bytes))
    except Refused as refused:
        _refuse(rooms, request, refused)
        return
    match step:
        case Challenge(token):
            _challenge(request, token)
        case PasswordClaim():
            _check(rooms, request, authentication, step)
        case TokenClaim():
            _verify(rooms, request, authentication, step)
        case DelegationClaim():
            _find_keys(rooms, request, authentication, step)
        case Proof():
            _prove(rooms, request, authentication, step)


def _check(
    rooms: SaslRooms, request: Request[SaslAuthenticate], authentication: Authentication, claim: PasswordClaim
) -> None:
    from cordwood.security.authentication import Refused

    request.let_go_of_frame()

    def checked(is_password: bool) -> None:
        try:
            proof = authentication.checked(is_password=is_password)
        except Refused as refused:
            _refuse(rooms, request, refused)
        else:
            _prove(rooms, request, authentication, proof)

    rooms.authentications.check(request.reply, claim, checked)


def _verify(
    rooms: SaslRooms, request: Request[SaslAuthenticate], authentication: Authentication, claim: TokenClaim
) -> None:
    from cordwood.security.authentication import Refused
    from cordwood.security.exchange import Challenge

    request.let_go_of_frame()

    def verified(verdict: Proof | Unproven) -> None:
        try:
            step = authentication.verified(verdict)
        except Refused as refused:
            _refuse(rooms, request, refused)
            return
        if isinstance(step, Challenge):
            _challenge(request, step.token)
        else:
            _prove(rooms, request, authentication, step)

    rooms.authentications.verify(request.reply, claim, verified)


def _find_keys(
    rooms: SaslRooms, request: Request[SaslAuthenticate], authentication: Authentication, claim: DelegationClaim
) -> None:
    request.let_go_of_frame()

    def found(keys: FoundKeys) -> None:
        _challenge(request, authentication.keyed(keys).token)

    rooms.authentications.find_keys(request.reply, claim, found)


def _challenge(request: Request[SaslAuthenticate], token: bytes) -> None:
    request.answer(error_code=ErrorCode.NONE, error_message=None, auth_bytes=token)


def _prove(rooms: SaslRooms, request: Request[SaslAuthenticate], authentication: Authentication, proof: Proof) -> None:
    assert authentication.mechanism is not None
    lifetime_ms = rooms.authentications.prove(request.reply, proof, authentication.mechanism)
    request.answer(
        error_code=ErrorCode.NONE, error_message=None, auth_bytes=proof.token, session_lifetime_ms=lifetime_ms
    )


def _refuse(rooms: SaslRooms, request: Request[SaslAuthenticate], refused: Refused) -> None:
    values = {"error_code": refused.code, "error_message": refused.message, "auth_bytes": b""}
    rooms.authentications.refuse(request.reply, encode_response(request.header, values), refused)


HANDLERS = (
    serves(ApiKey.SASL_HANDSHAKE, 0, 1, sasl_handshake),
    serves(ApiKey.SASL_AUTHENTICATE, 0, 2, sasl_authenticate),
)
