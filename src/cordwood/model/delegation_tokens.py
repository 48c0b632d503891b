"""Delegation tokens (KIP-48): who may log in as whom by a token, and until when. The rules are pure functions.

A token has two ends. It is over at `expires_ms`, unless it is renewed before, and never lasts longer than `ends_ms`.
Its secret is an HMAC of its id under a key that only brokers have (`security/token_secrets.py`): no value here has it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"
"""The kind of principal that can own and renew a token."""
AT_ONCE: Final = -1
"""The period of a request that ends a token now."""


class DelegationToken(NamedTuple):
    """A token. Principals are texts, as `User:alice`; times are on the wall clock."""

    token_id: str
    owner: str
    """Who logs in by the token acts as this principal."""
    requester: str
    """The principal that had the token made."""
    renewers: tuple[str, ...]
    """They may renew and end the token, too, and see its secret."""
    issued_ms: int
    expires_ms: int
    ends_ms: int
    groups: tuple[str, ...] = ()
    """The groups of the owner when he had the token made, as `Group:traders`: a rule that denies them denies the
    token."""

    @property
    def user(self) -> str:
        """The owner's name."""
        return self.owner.partition(":")[2]

    def is_over(self, now_ms: int) -> bool:
        return now_ms >= self.expires_ms

    @property
    def holders(self) -> tuple[str, ...]:
        """The principals that may renew, end and see the token without any right."""
        return self.owner, self.requester, *self.renewers

    def renewed(self, now_ms: int, period_ms: int, lifetimes: Lifetimes) -> DelegationToken:
        """The token, to be over after the period: at most the cluster's, which also stands for none (0 or less)."""
        lasts_ms = min(period_ms, lifetimes.renewal_ms) if period_ms > 0 else lifetimes.renewal_ms
        return self._replace(expires_ms=min(self.ends_ms, now_ms + lasts_ms))

    def ending(self, now_ms: int, period_ms: int) -> DelegationToken:
        """The token, to be over after the period, which may be longer than one renewal."""
        return self._replace(expires_ms=min(self.ends_ms, now_ms + period_ms))


class Lifetimes(NamedTuple):
    """The bounds that a cluster sets."""

    longest_ms: int
    """From a token's issue to its end."""
    renewal_ms: int
    """From its issue, or a renewal, until it is over."""

    def bounds_of(self, issued_ms: int, wanted_ms: int) -> tuple[int, int]:
        """When a new token is over, and when it ends. `wanted_ms`: the life that its requester wants; 0 or less: the
        longest."""
        ends_ms = issued_ms + (min(wanted_ms, self.longest_ms) if wanted_ms > 0 else self.longest_ms)
        return min(ends_ms, issued_ms + self.renewal_ms), ends_ms
