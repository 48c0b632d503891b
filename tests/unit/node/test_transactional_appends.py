"""Requests of one transactional id start one after the other, and no start nests in another."""

from collections.abc import Callable

from cordwood.simulation.world import World

MANY = 5_000
"""More than the interpreter's calls may nest."""


def test_requests_that_are_through_at_once_start_in_order_and_do_not_nest(world: World) -> None:
    appends = world.node.transactional_appends
    started: list[int] = []
    under_way = deepest = 0

    def start(number: int) -> Callable[[], None]:
        def started_now() -> None:
            nonlocal under_way, deepest
            under_way += 1
            deepest = max(deepest, under_way)
            started.append(number)
            if number:
                appends.through("writer")
            under_way -= 1

        return started_now

    for number in range(MANY):
        appends.in_turn("writer", start(number))
    assert started == [0]
    assert appends.busy("writer")
    appends.through("writer")
    assert started == list(range(MANY))
    assert deepest == 1
    assert not appends.busy("writer")


def test_ids_do_not_wait_for_each_other(world: World) -> None:
    appends = world.node.transactional_appends
    started: list[str] = []
    appends.in_turn("slow", lambda: started.append("slow"))
    appends.in_turn("other", lambda: started.append("other"))
    appends.in_turn("slow", lambda: started.append("slow again"))
    assert started == ["slow", "other"]
    appends.through("slow")
    assert started == ["slow", "other", "slow again"]
