"""Delegation tokens (KIP-48): CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken,
DescribeDelegationToken.

Nobody asks for tokens who has not said who he is, or who is here by a token: a stolen token must not live on in
others. A secret is in answers alone: no row and no log line has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cordwood.cluster.stores.interface import OutcomeUnknown
from cordwood.model.acls import THE_CLUSTER
from cordwood.model.coordination import is_too_long
from cordwood.model.delegation_tokens import USER, DelegationToken
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, serves
from cordwood.security.sessions import ANONYMOUS, Principal
from cordwood.security.trail.port import Changed
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.security.authentications import Authentications
    from cordwood.node.security.delegation_tokens import DelegationTokens
    from cordwood.security.token_secrets import TokenSecrets
    from cordwood.wire.message_types.create_delegation_token import CreateDelegationToken
    from cordwood.wire.message_types.describe_delegation_token import DescribeDelegationToken
    from cordwood.wire.message_types.expire_delegation_token import ExpireDelegationToken
    from cordwood.wire.message_types.renew_delegation_token import RenewDelegationToken

MOST_RENEWERS = 100
LOOKED_AT_PER_STEP = 500
"""Tokens that a description looks at in one step."""
NO_TIME = -1
"""The time in an answer that refuses."""


class TokenRooms(Protocol):
    """The rooms of a node that these handlers need."""

    authentications: Authentications
    delegation_tokens: DelegationTokens
    image: ClusterImage
    loop: Loop
    reports: Reports


def _check_may_ask(request: Request[Any]) -> None:
    """Raises ProtocolError for a peer that may not ask for tokens."""
    session = request.reply.session
    if session.token_id or session.principal.kind != USER or session.principal.name == ANONYMOUS.name:
        raise ProtocolError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels.",
        )


def _secrets(rooms: TokenRooms) -> TokenSecrets:
    """Raises ProtocolError if there are no delegation tokens here."""
    if rooms.delegation_tokens.secrets is None:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled.")
    return rooms.delegation_tokens.secrets


def create_token(rooms: TokenRooms, request: Request[CreateDelegationToken]) -> Steps:
    body = yield from request.read()
    requester = request.reply.session.principal
    name = body.owner_principal_name if request.version >= 3 else None
    owner = Principal(body.owner_principal_type or USER, name) if name else requester

    def refused(problem: ProtocolError) -> None:
        _note(request, Operation.CREATE_TOKENS, ResourceKind.USER, str(owner), problem.code, "a delegation token")
        request.answer(
            error_code=problem.code,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=requester.kind,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
            token_id="",
            hmac=b"",
        )

    try:
        _check_may_ask(request)
        is_own = str(owner) == str(requester)
        if not is_own and not request.judge.is_granted(Operation.CREATE_TOKENS, ResourceKind.USER, str(owner)):
            raise ProtocolError(ResourceKind.USER.refusal, f"The right is missing: CreateTokens of the user '{owner}'.")
        secrets = _secrets(rooms)
        renewers = [Principal(each.principal_type, each.principal_name) for each in body.renewers]
        _check_principals(owner, renewers)
    except ProtocolError as problem:
        refused(problem)
        return
    issued_ms = request.now.wall_ms
    expires_ms, ends_ms = rooms.delegation_tokens.lifetimes.bounds_of(issued_ms, body.max_lifetime_ms)
    token = DelegationToken(
        rooms.authentications.new_token_id(),
        str(owner),
        str(requester),
        tuple(dict.fromkeys(map(str, renewers))),
        issued_ms,
        expires_ms,
        ends_ms,
        requester.groups if is_own else (),
    )

    def created(outcome: DelegationToken | ProtocolError | Exception) -> None:
        if isinstance(outcome, Exception):
            refused(_as_refusal(rooms, outcome))
            return
        told = f"delegation token {token.token_id}, until {token.ends_ms} at the latest"
        told += f", renewed by {', '.join(token.renewers)}" if token.renewers else ""
        _note(request, Operation.CREATE_TOKENS, ResourceKind.USER, token.owner, 0, told)
        request.answer(
            error_code=ErrorCode.NONE,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=requester.kind,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expires_ms,
            max_timestamp_ms=token.ends_ms,
            token_id=token.token_id,
            hmac=secrets.hmac_of(token.token_id),
        )

    rooms.loop.effects.metadata(lambda writer: writer.create_token(token), created)


def _check_principals(owner: Principal, renewers: list[Principal]) -> None:
    """Raises ProtocolError for principals that nobody can be."""
    for each in (owner, *renewers):
        if each.kind != USER or not each.name or "\0" in each.name or is_too_long(each.name):
            raise ProtocolError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"Owners and renewers are users, not {str(each)!r}.")
    if len(renewers) > MOST_RENEWERS:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A delegation token has at most {MOST_RENEWERS} renewers.")


def renew_token(rooms: TokenRooms, request: Request[RenewDelegationToken]) -> Steps:
    body = yield from request.read()
    now_ms, lifetimes = request.now.wall_ms, rooms.delegation_tokens.lifetimes

    def renewed(token: DelegationToken) -> DelegationToken:
        if not _is_holder(request, token):
            raise ProtocolError(
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                "Only the owner, the requester and the renewers of a delegation token can renew it.",
            )
        _check_alive(token, now_ms)
        return token.renewed(now_ms, body.renew_period_ms, lifetimes)

    yield from _change(rooms, request, bytes(body.hmac), renewed)


def expire_token(rooms: TokenRooms, request: Request[ExpireDelegationToken]) -> Steps:
    body = yield from request.read()
    now_ms, period_ms = request.now.wall_ms, body.expiry_time_period_ms

    def ending(token: DelegationToken) -> DelegationToken | None:
        # Tokens outlive their owner's password and row: somebody has to be able to end them then.
        if not _is_holder(request, token) and not request.judge.is_granted(
            Operation.ALTER, ResourceKind.CLUSTER, THE_CLUSTER
        ):
            raise ProtocolError(
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                "Only the owner, the requester and the renewers of a delegation token can end it, and who has the "
                "right Alter of the cluster.",
            )
        if period_ms < 0:
            return None
        _check_alive(token, now_ms)
        return token.ending(now_ms, period_ms)

    yield from _change(rooms, request, bytes(body.hmac), ending)


def _is_holder(request: Request[Any], token: DelegationToken) -> bool:
    return str(request.reply.session.principal) in token.holders


def _check_alive(token: DelegationToken, now_ms: int) -> None:
    if token.is_over(now_ms):
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The delegation token is over.")


def _change(
    rooms: TokenRooms,
    request: Request[RenewDelegationToken] | Request[ExpireDelegationToken],
    secret: bytes,
    change: Callable[[DelegationToken], DelegationToken | None],
) -> Steps:
    now_ms = request.now.wall_ms
    token_id: str | None = None

    def answer(outcome: DelegationToken | ProtocolError | Exception | None) -> None:
        problem = _as_refusal(rooms, outcome) if isinstance(outcome, Exception) else None
        ends_ms = outcome.expires_ms if isinstance(outcome, DelegationToken) else now_ms
        if token_id is not None:
            code = ErrorCode.NONE if problem is None else problem.code
            told = "ended" if outcome is None else f"until {ends_ms}" if problem is None else "not changed"
            _note(request, Operation.ALTER, ResourceKind.DELEGATION_TOKEN, token_id, code, told)
        if problem is not None:
            request.answer(error_code=problem.code, expiry_timestamp_ms=NO_TIME)
        else:
            request.answer(error_code=ErrorCode.NONE, expiry_timestamp_ms=ends_ms)

    try:
        _check_may_ask(request)
        _secrets(rooms)
    except ProtocolError as problem:
        answer(problem)
        return
    token_id = yield from rooms.delegation_tokens.with_secret(secret)
    if token_id is None:
        answer(ProtocolError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no delegation token with this HMAC."))
        return
    found = token_id
    rooms.loop.effects.metadata(lambda writer: writer.change_token(found, change), answer)


def describe_tokens(rooms: TokenRooms, request: Request[DescribeDelegationToken]) -> Steps:
    body = yield from request.read()
    try:
        _check_may_ask(request)
        secrets = _secrets(rooms)
    except ProtocolError as problem:
        request.answer(error_code=problem.code, tokens=())
        return
    me = str(request.reply.session.principal)
    owners = None if body.owners is None else {f"{each.principal_type}:{each.principal_name}" for each in body.owners}

    def is_told(token: DelegationToken) -> bool:
        if owners is not None and owners.isdisjoint(token.holders):
            return False
        judge = request.judge
        return (
            me in token.holders
            or judge.is_granted(Operation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.token_id)
            or judge.is_granted(Operation.DESCRIBE_TOKENS, ResourceKind.USER, token.owner)
        )

    tokens = [row.token for row in rooms.image.tokens.rows.values()]
    told: list[DelegationToken] = []
    for start in range(0, len(tokens), LOOKED_AT_PER_STEP):
        if start:
            yield
        told += filter(is_told, tokens[start : start + LOOKED_AT_PER_STEP])

    def described(token: DelegationToken) -> DescribeDelegationToken.AnswerToken:
        owner_kind, _, owner = token.owner.partition(":")
        requester_kind, _, requester = token.requester.partition(":")
        renewers: list[DescribeDelegationToken.AnswerRenewer] = [
            {"principal_type": kind, "principal_name": name}
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ]
        return {
            "principal_type": owner_kind,
            "principal_name": owner,
            "token_requester_principal_type": requester_kind,
            "token_requester_principal_name": requester,
            "issue_timestamp": token.issued_ms,
            "expiry_timestamp": token.expires_ms,
            "max_timestamp": token.ends_ms,
            "token_id": token.token_id,
            "hmac": secrets.hmac_of(token.token_id),
            "renewers": renewers,
        }

    request.answer(error_code=ErrorCode.NONE, tokens=Made(told, described))


def _as_refusal(rooms: TokenRooms, problem: Exception) -> ProtocolError:
    """A failure as its client is told it: answers about tokens have a code and no text."""
    if isinstance(problem, ProtocolError):
        return problem
    rooms.reports.failure(problem)
    code = ErrorCode.REQUEST_TIMED_OUT if isinstance(problem, OutcomeUnknown) else ErrorCode.UNKNOWN_SERVER_ERROR
    return ProtocolError(code, f"The metadata store failed: {problem}")


def _note(request: Request[Any], operation: Operation, kind: ResourceKind, name: str, code: int, told: str) -> None:
    request.changed(Changed(operation, kind, name, code, told))


HANDLERS = (
    serves(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, create_token),
    serves(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, renew_token),
    serves(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, expire_token),
    serves(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, describe_tokens),
)
