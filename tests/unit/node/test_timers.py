"""Timers fire once, in order, by the boot clock."""

from tests.moments import at

from cordwood.model.moment import Moment
from cordwood.node.loop.timers import Timers


def test_what_is_due_fires_in_order_and_the_next_deadline_is_told() -> None:
    timers, fired = Timers(), list[tuple[str, Moment]]()
    timers.at(30, lambda now: fired.append(("c", now)))
    timers.at(10, lambda now: fired.append(("a", now)))
    timers.at(10, lambda now: fired.append(("b", now)))
    assert timers.run(at(9)) == 10
    assert timers.run(at(20)) == 30
    assert fired == [("a", at(20)), ("b", at(20))]
    assert timers.run(at(30)) is None
    assert fired[-1] == ("c", at(30))


def test_a_cancelled_timer_never_fires_and_is_no_deadline() -> None:
    timers, fired = Timers(), list[Moment]()
    timers.at(10, fired.append).cancel()
    timers.at(20, fired.append)
    assert timers.run(at(5)) == 20
    assert timers.run(at(25)) is None
    assert fired == [at(25)]


def test_a_timer_may_set_another_that_is_due_at_once_and_others_have_their_turn_first() -> None:
    timers, fired = Timers(), list[tuple[str, Moment]]()

    def set_another(now: Moment) -> None:
        fired.append(("again", now))
        timers.at(now.boot_ms - 5, set_another)

    timers.at(10, set_another)
    timers.at(11, lambda now: fired.append(("other", now)))
    assert timers.run(at(12)) == 7
    assert fired == [("again", at(12)), ("other", at(12))]
    assert timers.run(at(12)) == 7
    assert fired[2:] == [("again", at(12))]


def test_a_wall_clock_that_is_set_moves_no_deadline() -> None:
    timers, fired = Timers(), list[Moment]()
    timers.at(1000, fired.append)
    assert timers.run(Moment(boot_ms=999, wall_ms=5_000_000)) == 1000
    timers.run(Moment(boot_ms=1000, wall_ms=3))
    assert fired == [Moment(1000, 3)]


def test_cancelled_timers_do_not_add_up_however_late_their_deadlines_are() -> None:
    timers, fired = Timers(), list[Moment]()
    timers.at(10, fired.append)
    for number in range(10_000):
        timers.at(1_000_000 + number, fired.append).cancel()
    assert len(timers) < 2_000
    for number in range(3_000):
        timers.at(20 + number, fired.append)
    assert timers.run(at(10)) == 20
    assert timers.run(at(5_000)) is None
    assert len(fired) == 3_001
