"""Several brokers in one world: leaders on all of them, links that are cut, pauses, power cuts, leases that end."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import Exchange, State
from simulation.world.life import DATA_DIRECTORY
from simulation.world.links import CLIENTS, STORE
from simulation.world.world import SHORT_LEASE_MS, World

from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

ONE, TWO, THREE = 1, 2, 3
TOPIC = "t"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3).start()
    world.settle()
    create(world, TOPIC)
    yield world
    world.kill()


def create(world: World, name: str, at: int = ONE, partitions: int = 3) -> Any:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    (answer,) = world.ask_at(at, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    return answer


def leader(world: World, index: int, topic: str = TOPIC, seen_by: int = ONE) -> int:
    image = world.machine_of(seen_by).node.image
    return image.leadership(image.topics[topic].partitions[index]).leader


def led_by(world: World, broker_id: int) -> int:
    return next(index for index in range(3) if leader(world, index) == broker_id)


def produce(world: World, index: int, at: int, value: bytes = b"value") -> Exchange:
    batch = bytes(build_batch([(world.clock.wall_ms, None, value, [])]))
    entry = {"name": TOPIC, "partition_data": [{"index": index, "records": batch}]}
    values = {"acks": -1, "timeout_ms": 1000, "topic_data": [entry]}
    return world.connect(at).request(ApiKey.PRODUCE, 8, values)


def error_of(exchange: Exchange) -> ErrorCode:
    assert exchange.answered, exchange.state
    return ErrorCode(exchange.answer.responses[0].partition_responses[0].error_code)


def registered(world: World, seen_by: int) -> set[int]:
    return set(world.machine_of(seen_by).node.image.brokers)


def test_partitions_of_a_topic_are_led_by_all_brokers_and_all_images_agree(world: World) -> None:
    leaders = [leader(world, index) for index in range(3)]
    assert sorted(leaders) == [ONE, TWO, THREE]
    for broker_id in (TWO, THREE):
        assert [leader(world, index, seen_by=broker_id) for index in range(3)] == leaders


def test_only_the_leader_takes_records(world: World) -> None:
    for broker_id in (ONE, TWO, THREE):
        sent = [produce(world, index, broker_id) for index in range(3)]
        world.settle()
        errors = [error_of(exchange) for exchange in sent]
        assert errors[led_by(world, broker_id)] is ErrorCode.NONE
        assert errors.count(ErrorCode.NOT_LEADER_OR_FOLLOWER) == 2


def test_a_power_cut_of_one_machine_leaves_the_others_at_work(world: World) -> None:
    world.machine_of(TWO).lose_power()
    refused, served = produce(world, led_by(world, TWO), TWO), produce(world, led_by(world, THREE), THREE)
    world.settle()
    assert (refused.state, error_of(served)) == (State.LOST, ErrorCode.NONE)
    world.machine_of(TWO).start()
    world.settle()
    again = produce(world, led_by(world, TWO), TWO)
    world.settle()
    assert error_of(again) is ErrorCode.NONE


@pytest.mark.parametrize("clock_stands_still", [False, True])
def test_a_paused_broker_loses_its_registration_and_comes_back_in_its_epoch(
    world: World, clock_stands_still: bool
) -> None:
    machine = world.machine_of(TWO)
    epoch, before_ms = machine.node.image.broker_epochs[TWO], machine.clock.boot_ms
    machine.pause(clock_stands_still=clock_stands_still)
    waiting = produce(world, led_by(world, TWO), TWO)
    world.advance(3 * SHORT_LEASE_MS)
    assert waiting.state is State.TRAVELLING
    assert registered(world, ONE) == {ONE, THREE}
    assert registered(world, TWO) == {ONE, TWO, THREE}, "a paused broker hears nothing"
    assert machine.clock.boot_ms - before_ms == (0 if clock_stands_still else 3 * SHORT_LEASE_MS)
    machine.resume()
    world.settle()
    assert error_of(waiting) is ErrorCode.NONE
    world.advance(SHORT_LEASE_MS)
    assert registered(world, ONE) == registered(world, TWO) == {ONE, TWO, THREE}
    assert machine.node.image.broker_epochs[TWO] == epoch


@pytest.mark.parametrize(("cut", "state"), [((CLIENTS, TWO), State.TRAVELLING), ((TWO, CLIENTS), State.SENT)])
def test_a_cut_holds_requests_or_answers_back_and_healing_delivers_them(
    world: World, cut: tuple[int, int], state: State
) -> None:
    world.links.cut(*cut)
    sent = produce(world, led_by(world, TWO), TWO)
    world.advance(1000)
    assert sent.state is state
    world.links.heal(*cut)
    world.settle()
    assert error_of(sent) is ErrorCode.NONE


@pytest.mark.parametrize("cut", [(TWO, STORE), (STORE, TWO)])
def test_a_broker_that_is_cut_off_from_the_store_catches_up_when_it_is_back(world: World, cut: tuple[int, int]) -> None:
    world.links.cut(*cut)
    world.advance(2 * SHORT_LEASE_MS)
    asked_nothing = cut == (TWO, STORE)
    assert registered(world, ONE) == ({ONE, THREE} if asked_nothing else {ONE, TWO, THREE})
    created = create(world, "away")
    assert created.error_code == 0
    world.links.heal(*cut)
    world.advance(2 * SHORT_LEASE_MS)
    assert registered(world, ONE) == {ONE, TWO, THREE}
    assert "away" in world.machine_of(TWO).node.image.topics


def test_topics_are_placed_on_brokers_that_are_registered(world: World) -> None:
    world.machine_of(TWO).kill()
    world.advance(2 * SHORT_LEASE_MS)
    assert create(world, "later").error_code == 0
    assert {leader(world, index, "later") for index in range(3)} == {ONE, THREE}


def test_a_broker_that_was_away_deletes_its_directories_of_a_topic_that_was_deleted_meanwhile(world: World) -> None:
    for index in range(3):
        produce(world, index, leader(world, index))
    world.settle()
    machine = world.machine_of(TWO)
    machine.kill()
    world.ask_at(ONE, ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
    world.advance(120_000)
    machine.start()
    world.settle()
    assert machine.node.logs.home.on_disk.set_aside_directories == []
    assert not any(name.startswith(TOPIC) for name in machine.disk.list_directories(DATA_DIRECTORY))


def test_an_event_of_the_world_happens_when_its_time_has_come(world: World) -> None:
    world.machine_of(TWO).pause(clock_stands_still=True)
    world.later(500, world.machine_of(TWO).resume)
    world.advance(499)
    assert world.machine_of(TWO).paused
    world.advance(1)
    assert not world.machine_of(TWO).paused
