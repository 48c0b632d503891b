"""Wide requests that are handled at one time are bounded by their bytes: further ones wait, narrow ones never do."""

from collections.abc import Iterator

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, fetch_values
from tests.unit.node.test_turns import settle_network_first

from cordwood.node.requests import wide_requests
from cordwood.wire.apis import ApiKey

ENTRIES = 300
"""Partitions that a wide fetch names: some 12 KB."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A broker that handles two wide requests at one time."""
    monkeypatch.setattr(wide_requests, "LINES", ((100_000, 25_000), (16_000_000, 1)))
    world = World(seed=1).start()
    create_topic(world, "orders", 3)
    yield world
    world.kill()


def ask(world: World, entries: int = ENTRIES) -> Exchange:
    partitions = [number % 3 for number in range(entries)]
    return world.connect().request(ApiKey.FETCH, 12, fetch_values(*(("orders", each, 0) for each in partitions)))


def begun(world: World, count: int) -> list[Exchange]:
    """Wide requests, of which as many have begun as there is room for."""
    exchanges = [ask(world) for _ in range(count)]
    while len(world.node.turns) + len(world.node.wide_requests) < count:
        world.do(world.steps()[-1][1])
    return exchanges


def test_wide_requests_wait_until_there_is_room_and_a_narrow_one_does_not(world: World) -> None:
    ended: list[Exchange] = []
    wide = begun(world, 6)
    assert len(world.node.wide_requests) == 4
    assert world.node.wide_requests.begun_bytes <= 25_000
    narrow = ask(world, 3)
    for each in (*wide, narrow):
        each.on_end = ended.append
    settle_network_first(world)
    assert ended[0] is narrow
    assert all(each.answered for each in wide)
    assert not world.node.wide_requests.begun_bytes
    assert not len(world.node.wide_requests)


def test_connections_that_close_leave_their_place_to_others(world: World) -> None:
    first, second, third, fourth = begun(world, 4)
    world.network.drop(third.connection)
    assert len(world.node.wide_requests) == 1
    world.network.drop(first.connection)
    world.network.drop(second.connection)
    assert not len(world.node.wide_requests)
    world.settle()
    assert fourth.answered
    assert not any(each.replies for each in (first, second, third))
    assert not world.node.wide_requests.begun_bytes


def test_a_request_beyond_the_bound_is_handled_alone(world: World) -> None:
    exchanges = [ask(world, 4000) for _ in range(3)]
    world.settle()
    assert all(each.answered for each in exchanges)
    assert not world.node.wide_requests.begun_bytes
