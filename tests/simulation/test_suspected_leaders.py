"""Clients are not told a leader that may be dead: they would ask for its successor only seconds later."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import ROUND_MS, TOPIC, create, elect, image, others

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

LEASE_MS = 5_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings={"broker.lease.ms": str(LEASE_MS)}, machines=3).start()
    world.settle()
    yield world
    world.kill()


def told_leader(world: World, at: int) -> tuple[int, str]:
    (topic,) = world.ask_at(at, ApiKey.METADATA, 12, topics=[{"name": TOPIC}]).topics
    (partition,) = topic.partitions
    return partition.leader_id, ErrorCode(partition.error_code).name


def test_a_leader_whose_connection_broke_is_not_told_to_clients(world: World) -> None:
    leader = create(world)
    follower, _ = others(leader)
    assert told_leader(world, follower) == (leader, "NONE")
    world.machine_of(leader).kill()
    world.advance(10)
    assert image(world, follower).leader == leader
    assert told_leader(world, follower) == (-1, "LEADER_NOT_AVAILABLE")


def break_connection(world: World, follower: int, leader: int) -> None:
    """Breaks the connection of a follower to its leader, which lives."""
    (connection,) = [each for each in world.machine_of(leader).network.connections if each.source == follower]
    connection.close()
    world.settle()


def test_a_leader_that_was_elected_in_a_new_registration_is_told_to_clients(world: World) -> None:
    leader = create(world)
    follower, _ = others(leader)
    world.machine_of(leader).kill()
    world.advance(10)
    world.machine_of(leader).start()
    world.settle()
    elect(world, leader)
    assert told_leader(world, follower) == (leader, "NONE")


def test_a_leader_that_answers_again_is_told_to_clients(world: World) -> None:
    leader = create(world)
    follower, _ = others(leader)
    break_connection(world, follower, leader)
    assert told_leader(world, follower) == (-1, "LEADER_NOT_AVAILABLE")
    world.advance(2 * ROUND_MS)
    assert told_leader(world, follower) == (leader, "NONE")


def test_a_follower_that_is_cut_off_hides_the_leader_from_clients_for_a_lease_at_most(world: World) -> None:
    leader = create(world)
    follower, _ = others(leader)
    world.links.cut(follower, leader)
    break_connection(world, follower, leader)
    world.advance(LEASE_MS - 100)
    assert told_leader(world, follower) == (-1, "LEADER_NOT_AVAILABLE")
    world.advance(200)
    assert told_leader(world, follower) == (leader, "NONE")


def told_librdkafka(world: World, at: int) -> tuple[int, str]:
    """The leader that a client on librdkafka is told."""
    connection = world.connect(at)
    connection.request(ApiKey.API_VERSIONS, 3, {"client_software_name": "librdkafka", "client_software_version": "1"})
    exchange = connection.request(ApiKey.METADATA, 12, {"topics": [{"name": TOPIC}]})
    world.settle()
    (topic,) = exchange.answer.topics
    (partition,) = topic.partitions
    return partition.leader_id, ErrorCode(partition.error_code).name


def test_a_client_on_librdkafka_is_told_the_probable_successor_of_a_leader_that_is_away(world: World) -> None:
    leader = create(world)
    follower, other = others(leader)
    assert told_librdkafka(world, follower) == (leader, "NONE")
    world.machine_of(leader).kill()
    world.advance(10)
    assert image(world, follower).leader == leader
    successor, error = told_librdkafka(world, follower)
    assert (successor in (follower, other), error) == (True, "NONE")


def test_a_client_on_librdkafka_is_told_a_successor_that_is_there(world: World) -> None:
    leader = create(world)
    follower, other = others(leader)
    world.machine_of(other).kill()
    world.advance(2 * LEASE_MS)
    assert set(image(world, follower).isr) == {leader, follower, other}
    world.machine_of(leader).kill()
    world.advance(10)
    assert told_librdkafka(world, follower) == (follower, "NONE")
