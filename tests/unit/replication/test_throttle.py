"""The throttle of replicas that are being moved."""

import pytest

from cordwood.replication.throttle import BURST_MS, Throttle, is_listed

RATE = 1_000_000


def fetch_for(throttle: Throttle, duration_ms: int, length: int) -> int:
    """The bytes that a follower gets that always asks as soon as it may."""
    now_ms = fetched = 0
    while now_ms < duration_ms:
        wait_ms = throttle.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
        else:
            throttle.fetched(length, RATE, now_ms)
            fetched += length
    return fetched


@pytest.mark.parametrize("length", [1_000, 100_000, 5_000_000])
def test_over_a_long_time_the_bytes_are_those_of_the_rate_and_one_burst(length: int) -> None:
    duration_ms = 100_000
    fetched = fetch_for(Throttle(), duration_ms, length)
    allowed = RATE * duration_ms // 1000
    assert allowed <= fetched <= allowed + RATE * BURST_MS // 1000 + length


def test_a_fetch_larger_than_the_burst_delays_the_next_one() -> None:
    throttle = Throttle()
    assert throttle.wait_ms(0) == 0
    throttle.fetched(10 * RATE, RATE, 0)
    assert throttle.wait_ms(0) == 9_000
    assert throttle.wait_ms(8_999) == 1
    assert throttle.wait_ms(9_000) == 0


def test_time_without_fetches_is_not_saved_up() -> None:
    throttle = Throttle()
    throttle.fetched(RATE, RATE, 1_000_000)
    throttle.fetched(RATE, RATE, 1_000_000)
    assert throttle.wait_ms(1_000_000) == 1_000


def test_a_rate_of_nothing_throttles_and_does_not_fail() -> None:
    throttle = Throttle()
    throttle.fetched(10, 0, 0)
    assert throttle.wait_ms(0) > 0


def test_replicas_are_listed_by_partition_and_broker() -> None:
    assert not is_listed((), 0, 1)
    assert is_listed(("*",), 7, 3)
    assert is_listed(("0:1", "3:2"), 3, 2)
    assert not is_listed(("0:1", "3:2"), 0, 2)
