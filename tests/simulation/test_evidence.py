"""Dead brokers are replaced by evidence, before their leases end. Brokers that nobody reaches are not."""

from collections.abc import Iterator

import pytest
from simulation.checkers.replicas import ReplicasChecker
from simulation.game import FENCES_LIFTED_MS
from simulation.world.world import SHORT_LEASE_MS, World
from tests.simulation.test_replication_on_machines import create, cut_off, image, others


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def test_a_leader_that_is_killed_is_replaced_long_before_its_lease_ends(world: World) -> None:
    checker = ReplicasChecker(world)
    leader = create(world)
    world.machine_of(leader).kill()
    world.advance(SHORT_LEASE_MS // 6)
    survivor = world.machine_of(others(leader)[0])
    assert image(world, survivor.broker_id).leader not in (leader, -1)
    checker.look(survivor)
    assert checker.evidence == 2


def test_a_leader_that_is_cut_off_from_brokers_keeps_its_registration(world: World) -> None:
    checker = ReplicasChecker(world)
    leader = create(world)
    cut_off(world, leader)
    world.advance(3 * SHORT_LEASE_MS)
    survivor = world.machine_of(others(leader)[0])
    assert leader in survivor.node.image.brokers
    checker.look(survivor)
    assert checker.evidence == 0


def test_a_leader_that_is_killed_while_one_broker_is_cut_off_is_missed_when_its_lease_ends(world: World) -> None:
    """One broker alone may be the one that is cut off from all others."""
    leader = create(world)
    one, cut = others(leader)
    world.links.cut(cut, leader)
    world.machine_of(leader).kill()
    world.advance(SHORT_LEASE_MS // 2)
    assert image(world, one).leader == leader
    world.advance(2 * SHORT_LEASE_MS)
    assert image(world, one).leader not in (leader, -1)
