"""The events of the security trail."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind

LONGEST_TEXT: Final = 1_000
"""Characters of a text in an event: names and reasons are written by peers."""


class What(Enum):
    CHANGE = "changed"
    FAILED_CHANGE = "not changed"
    REFUSAL = "refused"
    DRY_REFUSAL = "would be refused"
    LOG_IN = "logged in"
    FAILED_LOG_IN = "not logged in"
    FAILED_HANDSHAKE = "no TLS connection"


class Event(NamedTuple):
    what: What
    principal: str
    """Empty: the peer has not said who it is."""
    host: str
    listener: str
    action: str
    """The API, the SASL mechanism, or TLS."""
    operation: Operation | None = None
    kind: ResourceKind | None = None
    name: str = ""
    """The name of the resource."""
    error: ErrorCode = ErrorCode.NONE
    words: str = ""
    """The change, or the reason of a failure."""

    @property
    def is_counted(self) -> bool:
        """True if repeats are counted instead of told one by one. Each change is told."""
        return self.what is not What.CHANGE


class Told(NamedTuple):
    """An event, or several of the same kind, as one line tells them."""

    event: Event
    times: int
    first_ms: int
    last_ms: int
    names: tuple[str, ...] = ()
    """The names of the resources; empty: that of the event alone."""


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
