"""New producers get ids while the metadata store does not answer."""

from collections.abc import Iterator

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.links import STORE
from simulation.world.world import World

from cordwood.cluster.planner.registration import PRODUCER_IDS_PER_BLOCK
from cordwood.model.errors import ErrorCode
from cordwood.node.coordinators.producer_ids import FEW_IDS
from cordwood.wire.apis import ApiKey

NO_STORE_MS = 60_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def new_producers(world: World, broker_id: int, count: int) -> list[int]:
    """The ids of this many new producers."""
    answers = [
        world.ask_at(broker_id, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
        for _ in range(count)
    ]
    assert {ErrorCode(answer.error_code).name for answer in answers} == {"NONE"}
    return [answer.producer_id for answer in answers]


def lose_store(world: World) -> None:
    for machine in world.machines:
        world.links.cut(machine.broker_id, STORE)
        world.links.cut(STORE, machine.broker_id)


def test_brokers_that_gave_no_id_yet_give_ids_without_the_store(world: World) -> None:
    lose_store(world)
    world.advance(NO_STORE_MS)
    ids = [producer for machine in world.machines for producer in new_producers(world, machine.broker_id, 2)]
    assert len(set(ids)) == len(ids)


def test_the_next_block_is_reserved_before_the_present_one_is_used_up(world: World) -> None:
    before = new_producers(world, 1, PRODUCER_IDS_PER_BLOCK - FEW_IDS + 1)
    lose_store(world)
    after = new_producers(world, 1, FEW_IDS + PRODUCER_IDS_PER_BLOCK - 1)
    assert len(set(before + after)) == 2 * PRODUCER_IDS_PER_BLOCK


def test_producers_beyond_the_reserved_ids_are_refused_until_the_store_is_back(world: World) -> None:
    lose_store(world)
    given = new_producers(world, 1, PRODUCER_IDS_PER_BLOCK)
    refused = world.ask_at(1, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.links.heal_all()
    assert not set(new_producers(world, 1, 2)) & set(given)
