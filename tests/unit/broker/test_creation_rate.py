"""Connections beyond the rate wait for their turn, a bounded time."""

from cordwood.broker.network.creation_rate import LONGEST_WAIT_S, CreationRate


def test_what_a_second_did_not_use_may_come_at_once() -> None:
    rate = CreationRate()
    waits = [rate.wait_s(10, 100.0) for _ in range(11)]
    assert waits == [0.0] * 11


def test_those_beyond_the_rate_wait_one_behind_the_other() -> None:
    rate = CreationRate()
    for _ in range(11):
        rate.wait_s(10, 100.0)
    waits = [rate.wait_s(10, 100.0) or 0.0 for _ in range(3)]
    assert [round(each, 3) for each in waits] == [0.1, 0.2, 0.3]
    assert rate.wait_s(10, 102.0) == 0.0


def test_who_would_wait_too_long_takes_no_turn() -> None:
    rate = CreationRate()
    waits = [rate.wait_s(10, 100.0) for _ in range(1000)]
    admitted = [each for each in waits if each is not None]
    assert max(admitted) <= LONGEST_WAIT_S
    assert len(admitted) < 115
    assert rate.wait_s(10, 101.0) is not None, "turns of refused connections are not kept"
