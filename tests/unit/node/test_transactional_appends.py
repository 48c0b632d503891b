"""Requests of one transactional id ask at once, start one after the other, and no start nests in another."""

from collections.abc import Callable
from functools import partial

from simulation.world.world import World

from cordwood.node.coordinators.verification import Verdict

MANY = 5_000
"""More than the interpreter's calls may nest."""


def answered_at_once(answered: Callable[[Verdict], None]) -> None:
    answered(dict)


def test_requests_that_are_through_at_once_start_in_order_and_do_not_nest(world: World) -> None:
    appends = world.node.transactional_appends
    started: list[int] = []
    under_way = deepest = 0

    def start(number: int) -> Callable[[Verdict], None]:
        def started_now(verdict: Verdict) -> None:
            nonlocal under_way, deepest
            under_way += 1
            deepest = max(deepest, under_way)
            started.append(number)
            if number:
                appends.through("writer")
            under_way -= 1

        return started_now

    for number in range(MANY):
        appends.in_turn("writer", answered_at_once, start(number))
    assert started == [0]
    assert appends.busy("writer")
    appends.through("writer")
    assert started == list(range(MANY))
    assert deepest == 1
    assert not appends.busy("writer")


def test_ids_do_not_wait_for_each_other(world: World) -> None:
    appends = world.node.transactional_appends
    started: list[str] = []
    appends.in_turn("slow", answered_at_once, lambda verdict: started.append("slow"))
    appends.in_turn("other", answered_at_once, lambda verdict: started.append("other"))
    appends.in_turn("slow", answered_at_once, lambda verdict: started.append("slow again"))
    assert started == ["slow", "other"]
    appends.through("slow")
    assert started == ["slow", "other", "slow again"]


def test_all_ask_at_once_and_start_in_the_order_of_arrival(world: World) -> None:
    appends = world.node.transactional_appends
    asked: list[Callable[[Verdict], None]] = []
    started: list[int] = []

    def start(number: int, verdict: Verdict) -> None:
        started.append(number)
        appends.through("writer")

    for number in range(3):
        appends.in_turn("writer", asked.append, partial(start, number))
    assert len(asked) == 3
    asked[2](dict)
    asked[1](dict)
    assert started == []
    asked[0](dict)
    assert started == [0, 1, 2]
    assert not appends.busy("writer")
