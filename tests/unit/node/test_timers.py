"""Timers fire once, in order, and keep their distance when the wall clock jumps."""

from cordwood.node.timers import Timers


def test_what_is_due_fires_in_order_and_the_next_deadline_is_told() -> None:
    timers, fired = Timers(), list[tuple[str, int]]()
    timers.at(30, lambda now: fired.append(("c", now)))
    timers.at(10, lambda now: fired.append(("a", now)))
    timers.at(10, lambda now: fired.append(("b", now)))
    assert timers.run(9) == 10
    assert timers.run(20) == 30
    assert fired == [("a", 20), ("b", 20)]
    assert timers.run(30) is None
    assert fired[-1] == ("c", 30)


def test_a_cancelled_timer_never_fires_and_is_no_deadline() -> None:
    timers, fired = Timers(), list[int]()
    timers.at(10, fired.append).cancel()
    timers.at(20, fired.append)
    assert timers.run(5) == 20
    assert timers.run(25) is None
    assert fired == [25]


def test_a_timer_may_set_another_that_is_due_at_once_and_others_have_their_turn_first() -> None:
    timers, fired = Timers(), list[tuple[str, int]]()

    def set_another(now_ms: int) -> None:
        fired.append(("again", now_ms))
        timers.at(now_ms - 5, set_another)

    timers.at(10, set_another)
    timers.at(11, lambda now: fired.append(("other", now)))
    assert timers.run(12) == 7
    assert fired == [("again", 12), ("other", 12)]
    assert timers.run(12) == 7
    assert fired[2:] == [("again", 12)]


def test_deadlines_follow_the_wall_clock_when_it_jumps() -> None:
    timers, fired = Timers(), list[int]()
    timers.at(1000, fired.append)
    timers.shift(-900)
    assert timers.run(99) == 100
    timers.run(100)
    assert fired == [100]


def test_cancelled_timers_do_not_add_up_however_late_their_deadlines_are() -> None:
    timers, fired = Timers(), list[int]()
    timers.at(10, fired.append)
    for number in range(10_000):
        timers.at(1_000_000 + number, fired.append).cancel()
    assert len(timers) < 2_000
    for number in range(3_000):
        timers.at(20 + number, fired.append)
    assert timers.run(10) == 20
    assert timers.run(5_000) is None
    assert len(fired) == 3_001
