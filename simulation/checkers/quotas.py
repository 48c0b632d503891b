"""Checks throttle times against a book of all use: who used more than a quota allows is held back for just so long.

The checker reads all quotas for each question, keeps one number for each client that a quota holds, and knows nothing
of the broker's tables.
"""

from collections.abc import Callable, Mapping

from cordwood.model.quotas import Entity, Named, Part, QuotaKey, Quotas
from cordwood.node.quotas.allowance import LONGEST_MS
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import CLIENT_ID, Exchange

ROUNDING_MS = 1


class QuotaChecker:
    def __init__(self, quotas: Callable[[], Mapping[Entity, Quotas]], burst_ms: int) -> None:
        """`quotas` reads the quotas as the broker has them in its image."""
        self._read = quotas
        self._burst_ms = burst_ms
        self._credit: dict[tuple[QuotaKey, str, str], tuple[float, int]] = {}
        """What each client may use at once, as a time, and when that was so. Debt is negative."""
        self._owed: dict[Exchange, int] = {}
        """The time for which a request holds its client back already."""
        self.throttled = 0
        self.free = 0

    def look(self) -> None:
        """Called after every step: who has no quota at all has no debt."""
        if not self._read():
            self._credit.clear()

    def arrived(self, exchange: Exchange, size: int, now_ms: int) -> None:
        """A Produce is counted when it arrives."""
        self._owed[exchange] = self._used(QuotaKey.PRODUCER_BYTE_RATE, exchange, size, now_ms)

    def answered(self, exchange: Exchange, size: int, now_ms: int) -> None:
        """A Fetch is counted when it is answered."""
        owed = self._owed.pop(exchange, None)
        if owed is None:
            owed = self._used(QuotaKey.CONSUMER_BYTE_RATE, exchange, size, now_ms)
        told = exchange.answer.throttle_time_ms
        if told != exchange.paused_ms:
            raise InvariantBroken(f"{exchange} says {told} ms, and its connection is not read for {exchange.paused_ms}")
        if abs(told - owed) > ROUNDING_MS:
            raise InvariantBroken(f"{exchange} holds {exchange.session.principal} back for {told} ms, not {owed}")
        self.throttled += told > 0
        self.free += not told

    def _used(self, key: QuotaKey, exchange: Exchange, size: int, now_ms: int) -> int:
        user = exchange.session.principal.name
        held = self._holding(key, user)
        if held is None:
            return 0
        shared_by, per_s = held
        credit_ms, at_ms = self._credit.get((key, *shared_by), (float(self._burst_ms), now_ms))
        credit_ms = min(credit_ms + now_ms - at_ms, self._burst_ms) - size * 1000 / per_s
        credit_ms = max(credit_ms, -LONGEST_MS)
        self._credit[key, *shared_by] = credit_ms, now_ms
        return round(max(0.0, -credit_ms))

    def _holding(self, key: QuotaKey, user: str) -> tuple[tuple[str, str], float] | None:
        """With whom the user shares the quota that holds, and its rate: those of users come before those of clients,
        one's own before the default."""
        quotas = self._read()
        for user_name in (user, None, ""):
            for client_name in (CLIENT_ID, None, ""):
                parts = [Part(Named.USER, user_name)] if user_name != "" else []
                parts += [Part(Named.CLIENT_ID, client_name)] if client_name != "" else []
                value = quotas.get(tuple(sorted(parts)), {}).get(key) if parts else None
                if value is not None:
                    return (user if user_name != "" else "", CLIENT_ID if client_name != "" else ""), value
        return None
