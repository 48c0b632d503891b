"""The session of a connection: where the peer came in, who it is, and until when."""

from __future__ import annotations

from typing import Final, NamedTuple

from cordwood.model.settings.listeners import LOOPBACK, Entrance


class Principal(NamedTuple):
    """The owner of a session, in Kafka's form: a kind and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A peer at a listener that asks nobody who it is."""

THIS_BROKER: Final = Principal("Broker", "this")
"""A broker that asks itself. No user has this kind, so no rule for users names it."""


class Session(NamedTuple):
    entrance: Entrance
    host: str
    """The address of the peer."""
    principal: Principal = ANONYMOUS
    mechanism: str | None = None
    """How the peer proved who it is; None: it was not asked."""
    ends_ms: int | None = None
    """The end on the boot clock; None: the session lasts as long as its connection."""


OF_THIS_BROKER: Final = Session(LOOPBACK, "localhost", THIS_BROKER)
