"""What an exchange of SASL messages can come to, for all mechanisms."""

from __future__ import annotations

from typing import NamedTuple

from cordwood.model.credentials import ScramMechanism


class Challenge(NamedTuple):
    """The client has to answer this."""

    token: bytes


class PasswordClaim(NamedTuple):
    """A client's claim, in plain text, that is checked outside of the loop."""

    user: str
    password: str

    def __repr__(self) -> str:
        # A password must not get into a log.
        return f"PasswordClaim({self.user!r})"


class TokenClaim(NamedTuple):
    """A client's claim by a token of an identity provider, whose signature is checked outside of the loop."""

    token: str
    user: str
    """The name by which the client wants to be known; empty: that in the token. Another name is refused."""

    def __repr__(self) -> str:
        # A token must not get into a log.
        return f"TokenClaim({self.user!r})"


class DelegationClaim(NamedTuple):
    """A client's claim to have a delegation token, by SCRAM: the keys of the token are made outside of the loop."""

    token_id: str
    mechanism: ScramMechanism


class Proof(NamedTuple):
    """The client has proved that it is this user."""

    user: str
    token: bytes
    """The last answer, by which the client knows the broker."""
    groups: tuple[str, ...] = ()
    """The groups that the identity provider puts the user in."""
    ends_ms: int | None = None
    """The end of the proof on the wall clock; None: it has none."""
    token_id: str = ""
    """The delegation token by which the client proved itself; empty: none."""


class Unproven(Exception):
    """The client has not proved who it is. The reason is for the broker's log: the peer learns nothing of it."""


class UnknownKey(Unproven):
    """The token may be good, and is signed by a key that the broker does not know yet."""


Step = Challenge | PasswordClaim | TokenClaim | DelegationClaim | Proof
