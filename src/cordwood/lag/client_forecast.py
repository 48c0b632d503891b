"""The standing of a reader in a partition, from facts that any Kafka client can see.

A client does not see segments. It sees a log's start, end and size, the topic's settings, and the timestamps of the
first unread and of the newest record. `lag/estimate.py` spreads records evenly between the two and cuts them into
segments as the settings say. The forecast over segments is the same as in the broker's metrics.
"""

from typing import NamedTuple

from cordwood.lag.arrival import Mark
from cordwood.lag.data_loss import Growth, RetentionRules
from cordwood.lag.estimate import estimated_span
from cordwood.lag.position import PositionLag, Standing, evaluate
from cordwood.lag.rates import Sample, rate_per_s, with_sample

Place = tuple[str, int]
"""Topic and partition."""


class LogFacts(NamedTuple):
    """The facts that a client knows about one partition."""

    start: int
    end: int
    size_bytes: int | None
    newest_ms: int


class Forecast(NamedTuple):
    lag: PositionLag
    foreseen: bool
    """True if the time to data loss is known. If it is known and None, no data will be lost."""


class ClientForecasts:
    """Judges the positions of one reader again and again. Rates come from all looks so far."""

    def __init__(self) -> None:
        self._ends: dict[Place, tuple[Sample, ...]] = {}
        self._positions: dict[Place, tuple[Sample, ...]] = {}

    def judge(
        self,
        place: Place,
        position: int | None,
        facts: LogFacts,
        rules: RetentionRules,
        *,
        first_unread_ms: int,
        now_ms: int,
    ) -> Forecast:
        """`first_unread_ms`: the timestamp of the first unread record, -1 if it is unknown or there is none."""
        self._ends[place] = with_sample(self._ends.get(place, ()), Sample(now_ms, facts.end))
        drain_per_s = None
        if position is not None:
            samples = with_sample(self._positions.get(place, ()), Sample(now_ms, position))
            self._positions[place] = samples
            drain_per_s = rate_per_s(samples)
        first_unread = facts.start if position is None else max(position, facts.start)
        records = max(facts.end - facts.start, 1)
        record_bytes = (facts.size_bytes or 0) / records
        records_per_ms = (rate_per_s(self._ends[place]) or 0.0) / 1000
        lag = evaluate(
            estimated_span(
                facts.start, facts.end, facts.size_bytes, first_unread, first_unread_ms, facts.newest_ms, rules
            ),
            position,
            marks=[Mark(first_unread + 1, first_unread_ms)] if first_unread_ms >= 0 else [],
            growth=Growth(records_per_ms, records_per_ms * record_bytes),
            drain_per_s=drain_per_s,
            wall_ms=now_ms,
        )
        return Forecast(lag, _can_be_foreseen(lag, rules, first_unread_ms, facts))


def _can_be_foreseen(lag: PositionLag, rules: RetentionRules, first_ms: int, facts: LogFacts) -> bool:
    if lag.standing in (Standing.NEVER_COMMITTED, Standing.AHEAD):
        return False
    if not rules.deletes or not lag.lag_records:
        return True
    ages_known = rules.retention_ms < 0 or first_ms >= 0
    return ages_known and (rules.retention_bytes < 0 or facts.size_bytes is not None)
