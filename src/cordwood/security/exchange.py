"""What an exchange of SASL messages can come to, for all mechanisms."""

from __future__ import annotations

from typing import NamedTuple


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


class Proof(NamedTuple):
    """The client has proved that it is this user."""

    user: str
    token: bytes
    """The last answer, by which the client knows the broker."""


class Unproven(Exception):
    """The client has not proved who it is. The reason is for the broker's log: the peer learns nothing of it."""


Step = Challenge | PasswordClaim | Proof
