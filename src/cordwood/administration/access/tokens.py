"""Delegation tokens for operators: made, listed, renewed and ended, with failures that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.client import delegation
from cordwood.client.brokers import Brokers
from cordwood.client.delegation import HeldToken
from cordwood.client.errors import ClientError, RequestRefused
from cordwood.model.delegation_tokens import USER
from cordwood.model.errors import ErrorCode
from cordwood.model.failure import ExitCode, Failure, near_names

if TYPE_CHECKING:
    from cordwood.client.bootstrap import Bootstrap

T = TypeVar("T")

_HINTS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "brokers need delegation.token.secret.key.file, the same key on all",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in by a password, a token of an identity provider or a "
    "certificate (--client-config): a listener that asks nobody gives no tokens, and neither does a token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "its owner, its requester and its renewers can do this; who has "
    "Alter of the cluster can end it, too",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "a rule has to allow CreateTokens of the user",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "a token that is over cannot be renewed: `cordwood token create` makes another",
    ErrorCode.POLICY_VIOLATION: "there are too many tokens: end some, or give them shorter lives",
    ErrorCode.UNSUPPORTED_VERSION: "`cordwood cluster upgrade` finalises the version of the metadata",
}


def _asked(bootstrap: Bootstrap, timeout_s: float, ask: Callable[[Brokers], T]) -> T:
    """Asks one of the brokers. Raises Failure."""
    timeout_ms = max(1, int(timeout_s * 1000))
    settings = bootstrap.settings(
        connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, retry_timeout_ms=timeout_ms
    )
    brokers = Brokers(settings)
    try:
        return ask(brokers)
    except RequestRefused as refused:
        raise Failure(refused.code.name, str(refused), _HINTS.get(refused.code, "")) from None
    except ClientError as failure:
        raise Failure("UNREACHABLE", str(failure)) from None
    finally:
        brokers.close()


def create_token(
    bootstrap: Bootstrap, timeout_s: float, owner: str, renewers: Collection[str], max_lifetime_ms: int
) -> HeldToken:
    return _asked(bootstrap, timeout_s, lambda brokers: delegation.create(brokers, renewers, owner, max_lifetime_ms))


def tokens(bootstrap: Bootstrap, timeout_s: float, owners: Collection[str] | None = None) -> list[HeldToken]:
    """The tokens that the caller may see, those that are over soonest first. Raises Failure."""
    found = _asked(bootstrap, timeout_s, lambda brokers: delegation.describe(brokers, owners))
    return sorted(found, key=lambda held: (held.token.expires_ms, held.token.token_id))


def check_may_ask(bootstrap: Bootstrap, timeout_s: float) -> None:
    """Raises Failure if the cluster has no tokens for the caller."""
    _asked(bootstrap, timeout_s, lambda brokers: delegation.describe(brokers, ()))


def tokens_left(bootstrap: Bootstrap, timeout_s: float, user: str) -> list[HeldToken] | None:
    """The tokens by which somebody may go on as this user after the password has changed, or the user is gone, as far
    as the caller may see them; None: the caller is told nothing about tokens. Raises Failure."""
    try:
        found = tokens(bootstrap, timeout_s, [user])
    except Failure as failure:
        if failure.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED.name:
            return []
        if failure.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.name:
            return None
        raise
    return [held for held in found if held.token.owner == f"{USER}:{user}"]


def existing_token(bootstrap: Bootstrap, timeout_s: float, token_id: str) -> HeldToken:
    """Raises Failure if the caller cannot see the token."""
    return _asked(bootstrap, timeout_s, lambda brokers: _existing(brokers, token_id))


def _existing(brokers: Brokers, token_id: str) -> HeldToken:
    seen = {held.token.token_id: held for held in delegation.describe(brokers)}
    if token_id not in seen:
        raise Failure(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND.name,
            f"there is no delegation token {token_id!r} that you may see",
            near_names(token_id, seen) or "`cordwood token list` lists them",
            ExitCode.NOT_FOUND,
        )
    return seen[token_id]


def renew_token(bootstrap: Bootstrap, timeout_s: float, token_id: str, period_ms: int) -> int:
    """Returns the time at which the token is over. Raises Failure."""
    return _asked(
        bootstrap, timeout_s, lambda brokers: delegation.renew(brokers, _existing(brokers, token_id).secret, period_ms)
    )


def expire_token(bootstrap: Bootstrap, timeout_s: float, token_id: str, period_ms: int) -> int:
    """Returns the time at which the token is over. A negative period ends it now. Raises Failure."""
    return _asked(
        bootstrap, timeout_s, lambda brokers: delegation.expire(brokers, _existing(brokers, token_id).secret, period_ms)
    )


def as_json(held: HeldToken, *, with_secret: bool) -> dict[str, Any]:
    token = held.token
    told: dict[str, Any] = {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "ends_ms": token.ends_ms,
    }
    return told | ({"hmac": held.password} if with_secret else {})
