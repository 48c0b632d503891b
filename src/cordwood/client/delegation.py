"""Delegation tokens, as their owners ask for them: made, described, renewed and ended by requests to any broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from cordwood.client.brokers import Brokers
from cordwood.client.errors import error_code, refusal
from cordwood.model.delegation_tokens import USER, DelegationToken
from cordwood.security.token_secrets import password_of
from cordwood.wire.apis import ApiKey

LONGEST: Final = -1
"""In place of a life or a period: the longest that the cluster gives."""


class HeldToken(NamedTuple):
    """A token with its secret."""

    token: DelegationToken
    secret: bytes

    def __repr__(self) -> str:
        # The secret must not get into a log.
        return f"HeldToken({self.token!r})"

    @property
    def password(self) -> str:
        """The password by which a client logs in; its user is the token's id."""
        return password_of(self.secret)


def create(
    brokers: Brokers, renewers: Collection[str] = (), owner: str = "", max_lifetime_ms: int = LONGEST
) -> HeldToken:
    """Has a token made. Owner and renewers are names of users; without an owner it is the client's own. Raises
    RequestRefused, and other ClientErrors."""
    values = {
        "owner_principal_type": USER if owner else None,
        "owner_principal_name": owner or None,
        "renewers": [{"principal_type": USER, "principal_name": name} for name in renewers],
        "max_lifetime_ms": max_lifetime_ms,
    }
    # Not tried again: of an answer that is lost nobody knows whether there is a token.
    link = brokers.any()
    answer = link.ask(ApiKey.CREATE_DELEGATION_TOKEN, values)
    if answer.error_code:
        whose = f"for {owner}" if owner else "for its own user"
        raise refusal(error_code(answer.error_code), link.was_asked(ApiKey.CREATE_DELEGATION_TOKEN, whose))
    token = DelegationToken(
        answer.token_id,
        f"{answer.principal_type}:{answer.principal_name}",
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        tuple(f"{USER}:{name}" for name in renewers),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )
    return HeldToken(token, bytes(answer.hmac))


def describe(brokers: Brokers, owners: Collection[str] | None = None) -> list[HeldToken]:
    """The tokens that the client may see; of these users alone, as owners, requesters or renewers. Raises
    RequestRefused, and other ClientErrors."""
    named = None if owners is None else [{"principal_type": USER, "principal_name": name} for name in owners]

    def attempt() -> list[HeldToken]:
        link = brokers.any()
        answer = link.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": named})
        if answer.error_code:
            raise refusal(error_code(answer.error_code), link.was_asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, "of users"))
        return [
            HeldToken(
                DelegationToken(
                    each.token_id,
                    f"{each.principal_type}:{each.principal_name}",
                    f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
                    tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                ),
                bytes(each.hmac),
            )
            for each in answer.tokens
        ]

    return brokers.retried(attempt)


def renew(brokers: Brokers, secret: bytes, period_ms: int = LONGEST) -> int:
    """Renews a token. Returns the time at which it is over. Raises RequestRefused, and other ClientErrors."""

    def attempt() -> int:
        link = brokers.any()
        answer = link.ask(ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": secret, "renew_period_ms": period_ms})
        if answer.error_code:
            raise refusal(error_code(answer.error_code), link.was_asked(ApiKey.RENEW_DELEGATION_TOKEN, "of a token"))
        return answer.expiry_timestamp_ms

    return brokers.retried(attempt)


def expire(brokers: Brokers, secret: bytes, period_ms: int) -> int:
    """Lets a token be over after the period; a negative one ends it now. Returns the time. Raises RequestRefused, and
    other ClientErrors."""

    def attempt() -> int:
        link = brokers.any()
        answer = link.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": secret, "expiry_time_period_ms": period_ms})
        if answer.error_code:
            raise refusal(error_code(answer.error_code), link.was_asked(ApiKey.EXPIRE_DELEGATION_TOKEN, "of a token"))
        return answer.expiry_timestamp_ms

    return brokers.retried(attempt)
