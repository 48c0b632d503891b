"""A broker that stops: its followers hear which of their records are committed, and save that."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ROUND_MS,
    begin_produce,
    create,
    cut_off,
    elect,
    heal,
    hosted,
    log,
    others,
    told,
)

from cordwood.node.replication.last_news import LAST_NEWS_MS


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3).start()
    world.settle()
    yield world
    world.kill()


def just_acknowledged(world: World) -> tuple[int, int]:
    """A topic whose only record is committed, which no follower knows yet. Returns its leader and a follower."""
    leader = create(world)
    follower = others(leader)[0]
    assert told(begin_produce(world, leader, b"v")) == "NONE"
    assert (log(world, follower).offsets.end, hosted(world, follower).high_watermark) == (1, 0)
    return leader, follower


def ask(world: World, broker_id: int) -> list[str]:
    heard: list[str] = []
    machine = world.machine_of(broker_id)
    assert machine.life is not None
    machine.life.driver.run(lambda: machine.node.last_news.ask(lambda: heard.append("heard")))
    world.settle()
    return heard


def test_a_follower_that_stops_just_after_an_ack_hears_that_the_record_is_committed(world: World) -> None:
    _, follower = just_acknowledged(world)
    assert ask(world, follower) == ["heard"]
    assert hosted(world, follower).high_watermark == 1
    assert not hosted(world, follower).waits.readers


def test_a_broker_whose_followers_know_everything_waits_for_nothing(world: World) -> None:
    leader, follower = just_acknowledged(world)
    world.advance(ROUND_MS)
    assert ask(world, follower) == ask(world, leader) == ["heard"]


def test_a_record_that_is_committed_only_after_the_broker_asked_is_heard_of(world: World) -> None:
    leader = create(world)
    follower, late = others(leader)
    cut_off(world, late)
    produced = begin_produce(world, leader, b"v")
    world.advance(10)
    assert log(world, follower).offsets.end == 1
    heard = ask(world, follower)
    assert not heard
    elect(world, leader, isr=(leader, follower))
    world.advance(LAST_NEWS_MS // 2)
    assert told(produced) == "NONE"
    assert heard == ["heard"]
    assert hosted(world, follower).high_watermark == 1


def test_a_broker_that_stops_waits_no_longer_for_a_leader_that_is_away(world: World) -> None:
    leader, follower = just_acknowledged(world)
    cut_off(world, leader)
    assert not ask(world, follower)
    machine = world.machine_of(follower)
    assert machine.life is not None
    machine.life.driver.run(lambda: machine.node.stop_waiting(machine.node.now))
    heal(world, leader)
    world.advance(ROUND_MS)
    assert not hosted(world, follower).waits.readers
