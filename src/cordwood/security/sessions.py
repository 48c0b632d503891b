"""The session of a connection: where the peer came in, who it is, and until when."""

from __future__ import annotations

from typing import Final, NamedTuple

from cordwood.model.moment import Moment
from cordwood.model.settings.listeners import LOOPBACK, Entrance
from cordwood.security.exchange import Proof


class Principal(NamedTuple):
    """The owner of a session, in Kafka's form: a kind and a name; and the groups whose rules hold for it, too."""

    kind: str
    name: str
    groups: tuple[str, ...] = ()
    """Kind and name of each, as `Group:traders`, in order. The same user with other groups is another principal for all
    that is kept of decisions and fetch sessions."""

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
    token_id: str = ""
    """The delegation token by which the peer logged in; empty: it did not by one."""

    def is_over(self, now_ms: int) -> bool:
        """True if the peer may only say who it is, for the first time or again."""
        return self.ends_ms is not None and now_ms >= self.ends_ms

    def bound_ms(self, wait_ms: int, now_ms: int) -> int:
        """How long a request may wait that would wait for `wait_ms`: not beyond the end of the session."""
        return wait_ms if self.ends_ms is None else min(wait_ms, self.ends_ms - now_ms)

    def proved(self, proof: Proof, mechanism: str, now: Moment) -> Session:
        """The session of the same connection, after the peer has proved who it is. It ends with the proof, or after the
        listener's time for a session, whichever is sooner."""
        asks = self.entrance.asks
        assert asks is not None
        ends = [now.boot_ms + asks.session_ms] if asks.session_ms else []
        if proof.ends_ms is not None:
            ends.append(now.boot_ms + proof.ends_ms - now.wall_ms)
        principal = Principal("User", proof.user, tuple(f"Group:{name}" for name in proof.groups))
        return self._replace(
            principal=principal, mechanism=mechanism, ends_ms=min(ends, default=None), token_id=proof.token_id
        )


def session_at(entrance: Entrance, host: str) -> Session:
    """The session of a new connection. Where peers are asked who they are, it is over before it begins: until a peer
    has proved its user, and after the time for which this holds, it may do the same."""
    return Session(entrance, host, ends_ms=None if entrance.asks is None else 0)


OF_THIS_BROKER: Final = Session(LOOPBACK, "localhost", THIS_BROKER)
