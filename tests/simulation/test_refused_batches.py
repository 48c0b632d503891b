"""A producer with several batches in flight, of which the leader refuses the first one for a reason that passes."""

from collections.abc import Iterator

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import ROUND_MS, TOPIC, create, image, others, told

from cordwood.node.partitions.refused_batches import REMEMBERED_MS
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

BACK_MS = 12_000
"""Followers that were started again are in sync by then."""


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"replica.lag.time.max.ms": "2000", "auto.leader.rebalance.enable": "false"}
    world = World(seed=1, settings=settings, machines=3, clustered=True).start()
    world.advance(3_000)
    yield world
    world.kill()


def sequence_told(world: World, leader: int, sequence: int, epoch: int = 0, producer_id: int = 7) -> str:
    """What a producer is told that sends a batch with this sequence number."""
    return told(sequence_sent(world, leader, sequence, epoch, producer_id))


def sequence_sent(world: World, leader: int, sequence: int, epoch: int = 0, producer_id: int = 7) -> Exchange:
    batch = bytes(
        build_batch(
            [(world.clock.wall_ms, None, b"x", [])],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )
    entry = {"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}
    values = {"acks": -1, "timeout_ms": 1000, "topic_data": [entry]}
    exchange = world.connect(leader).request(ApiKey.PRODUCE, 8, values)
    world.settle()
    return exchange


def without_followers(world: World) -> int:
    """The leader of a partition whose followers are gone."""
    leader = create(world, min_insync_replicas="2")
    for broker_id in others(leader):
        world.machine_of(broker_id).lose_power()
    world.advance(4 * ROUND_MS + 2_000)
    assert image(world, leader).isr == (leader,)
    return leader


def followers_return(world: World, leader: int) -> None:
    for broker_id in others(leader):
        world.machine_of(broker_id).start()
    world.advance(BACK_MS)
    assert (len(image(world, leader).isr), image(world, leader).leader) == (3, leader)


def test_a_batch_behind_a_refused_one_waits_until_that_one_is_repeated(world: World) -> None:
    leader = without_followers(world)
    assert sequence_told(world, leader, 0) == "NOT_ENOUGH_REPLICAS"
    followers_return(world, leader)
    assert sequence_told(world, leader, 1) == "NOT_ENOUGH_REPLICAS"
    assert [sequence_told(world, leader, sequence) for sequence in (0, 1, 2)] == ["NONE"] * 3
    # The others stay known: a batch from before the refused one is answered as what it is.
    assert sequence_told(world, leader, 1) == "NONE"


def test_the_lowest_refused_batch_has_to_come_first(world: World) -> None:
    leader = without_followers(world)
    assert [sequence_told(world, leader, sequence) for sequence in (1, 0, 2)] == ["NOT_ENOUGH_REPLICAS"] * 3
    followers_return(world, leader)
    assert sequence_told(world, leader, 1) == "NOT_ENOUGH_REPLICAS"
    assert [sequence_told(world, leader, sequence) for sequence in (0, 1, 2)] == ["NONE"] * 3


def test_a_producer_that_gives_a_refused_batch_up_goes_on(world: World) -> None:
    leader = without_followers(world)
    assert sequence_told(world, leader, 0) == "NOT_ENOUGH_REPLICAS"
    followers_return(world, leader)
    assert sequence_told(world, leader, 0, epoch=1) == "NONE"
    assert sequence_told(world, leader, 2, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_gap_is_told_as_a_gap_when_a_refused_batch_was_not_repeated_for_long(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    assert sequence_told(world, leader, 0) == "NONE"
    for broker_id in others(leader):
        world.machine_of(broker_id).lose_power()
    world.advance(4 * ROUND_MS + 2_000)
    assert sequence_told(world, leader, 1) == "NOT_ENOUGH_REPLICAS"
    followers_return(world, leader)
    assert sequence_told(world, leader, 2) == "NOT_ENOUGH_REPLICAS"
    world.advance(REMEMBERED_MS)
    assert sequence_told(world, leader, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
