"""An allowance under random use: the rate is kept over every stretch of time, and nobody is held back for nothing."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.node.quotas.allowance import LONGEST_MS, Allowance

BURST_MS = 10_000
WINDOW_MS = 1_000
BEGIN_MS = 5_000_000

rates = st.floats(0.001, 1e6)
"""In a millisecond."""
pauses = st.lists(st.tuples(st.integers(0, 30_000), st.floats(0, 1)), max_size=60)
"""Milliseconds before each use, and its size as a share of what a client may use at once."""


@settings(max_examples=examples(300), deadline=None)
@given(rates, pauses)
def test_who_waits_as_told_keeps_the_rate_over_every_stretch(per_ms: float, steps: list[tuple[int, float]]) -> None:
    most = per_ms * (LONGEST_MS - 1)
    allowance, now_ms = Allowance(per_ms, BURST_MS, BEGIN_MS), BEGIN_MS
    used: list[tuple[int, float]] = []
    for idle_ms, share in steps:
        now_ms += idle_ms
        used.append((now_ms, share * most))
        allowance.use(share * most, now_ms)
        now_ms += allowance.debt_ms(now_ms)
    sums = [0.0, *accumulate(amount for _, amount in used)]
    for first, (begin_ms, _) in enumerate(used):
        for last in range(first, len(used)):
            # The last use of a stretch is paid for after it.
            paid = sums[last] - sums[first]
            allowed = per_ms * (used[last][0] - begin_ms + BURST_MS + (last - first))
            assert paid <= allowed * (1 + 1e-9)


@settings(max_examples=examples(300), deadline=None)
@given(rates, st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 1e9)), max_size=60))
def test_it_behaves_as_a_book_of_all_use(per_ms: float, steps: list[tuple[int, float]]) -> None:
    allowance, now_ms = Allowance(per_ms, BURST_MS, BEGIN_MS), BEGIN_MS
    credit_ms = float(BURST_MS)
    for idle_ms, amount in steps:
        now_ms += idle_ms
        # The dumb twin: credit grows with time up to the burst, and shrinks with use down to the largest debt.
        credit_ms = max(min(credit_ms + idle_ms, BURST_MS) - amount / per_ms, -LONGEST_MS)
        assert allowance.use(amount, now_ms) == allowance.debt_ms(now_ms)
        assert abs(allowance.debt_ms(now_ms) - max(0.0, -credit_ms)) <= 0.51
        assert 0 <= allowance.debt_ms(now_ms) <= LONGEST_MS
        assert allowance.is_full(now_ms + LONGEST_MS + BURST_MS)
        if credit_ms >= WINDOW_MS:
            assert abs(allowance.next_use(WINDOW_MS, now_ms) - credit_ms * per_ms) <= per_ms + 1
        assert 1 <= allowance.next_use(WINDOW_MS, now_ms) <= BURST_MS * per_ms + 1


@settings(max_examples=examples(36), deadline=None)
@given(st.integers(1, 120), st.integers(0, 99))
def test_many_who_share_an_allowance_keep_its_rate_and_all_get_on(count: int, seed: int) -> None:
    per_ms = 10_000.0
    allowance = Allowance(per_ms, BURST_MS, BEGIN_MS)
    returns_ms = [BEGIN_MS + (place * 7 + seed) % 100 for place in range(count)]
    got = [0.0] * count
    until_ms = BEGIN_MS + 400_000
    while (now_ms := min(returns_ms)) < until_ms:
        reader = returns_ms.index(now_ms)
        amount = allowance.next_use(WINDOW_MS, now_ms)
        got[reader] += amount
        allowance.use(amount, now_ms)
        returns_ms[reader] = now_ms + max(1, allowance.debt_ms(now_ms))
    assert sum(got) <= per_ms * (400_000 + BURST_MS + LONGEST_MS)
    assert sum(got) >= per_ms * 400_000 * 0.9
    assert min(got) > 0
