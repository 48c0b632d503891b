"""A producer with several batches in flight while its leader changes: the second one reaches the new leader first."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.simulation.test_refused_batches import sequence_sent, sequence_told
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    create,
    cut_off,
    elect,
    heal,
    image,
    log,
    others,
    told,
)

from cordwood.node.partitions.early_batches import FIRST_BATCH_WITHIN_MS, GAP_CLOSES_WITHIN_MS
from cordwood.node.partitions.refused_batches import REMEMBERED_MS

WAITS = "NOT_ENOUGH_REPLICAS"
GAP = "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3).start()
    world.settle()
    yield world
    world.kill()


def change_leader(world: World, *, lossy: bool = False) -> int:
    """Returns the next leader of the partition, which has all records."""
    world.advance(ROUND_MS)
    successor = others(image(world).leader)[0]
    elect(world, successor, lossy=lossy)
    world.advance(ROUND_MS)
    return successor


def test_a_batch_that_came_before_the_one_that_the_former_leader_lost_is_repeated_behind_it(world: World) -> None:
    former = create(world)
    assert sequence_told(world, former, 0) == "NONE"
    cut_off(world, former)
    unanswered = sequence_sent(world, former, 1)
    assert (log(world, former).offsets.end, unanswered.answered) == (2, False)
    leader = others(former)[0]
    elect(world, leader)
    assert told(unanswered) == "NOT_LEADER_OR_FOLLOWER"
    assert [sequence_told(world, leader, sequence) for sequence in (2, 3, 2)] == [WAITS] * 3
    heal(world, former)
    world.advance(ROUND_MS)
    assert [log(world, broker_id).offsets.end for broker_id in ALL] == [1, 1, 1]
    assert [sequence_told(world, leader, sequence) for sequence in (1, 2, 3)] == ["NONE"] * 3
    assert [log(world, broker_id).offsets.end for broker_id in ALL] == [4, 4, 4]


def test_the_first_batch_of_a_producer_is_waited_for_but_not_for_long(world: World) -> None:
    create(world)
    leader = change_leader(world)
    assert sequence_told(world, leader, 1) == WAITS
    assert [sequence_told(world, leader, sequence) for sequence in (0, 1)] == ["NONE"] * 2
    leader = change_leader(world)
    world.advance(FIRST_BATCH_WITHIN_MS)
    # The producer with this id may have expired.
    assert sequence_told(world, leader, 9, producer_id=8) == "NONE"


def test_the_order_of_an_unknown_producer_is_kept_at_the_end_of_the_wait(world: World) -> None:
    create(world)
    leader = change_leader(world)
    assert sequence_told(world, leader, 5) == WAITS
    world.advance(FIRST_BATCH_WITHIN_MS)
    assert sequence_told(world, leader, 6) == WAITS
    assert [sequence_told(world, leader, sequence) for sequence in (5, 6)] == ["NONE"] * 2


def test_the_first_batch_of_a_new_epoch_is_waited_for(world: World) -> None:
    leader = create(world)
    assert sequence_told(world, leader, 0) == "NONE"
    leader = change_leader(world)
    assert sequence_told(world, leader, 1, epoch=1) == WAITS
    assert [sequence_told(world, leader, sequence, epoch=1) for sequence in (0, 1)] == ["NONE"] * 2


def test_a_gap_that_does_not_close_is_told_as_a_gap(world: World) -> None:
    leader = create(world)
    assert sequence_told(world, leader, 0) == "NONE"
    leader = change_leader(world)
    world.advance(GAP_CLOSES_WITHIN_MS - 2 * ROUND_MS)
    assert sequence_told(world, leader, 2) == WAITS
    world.advance(2 * ROUND_MS + REMEMBERED_MS)
    assert sequence_told(world, leader, 2) == GAP


def test_leaders_that_did_not_take_over_without_a_loss_wait_for_nothing(world: World) -> None:
    leader = create(world)
    assert [sequence_told(world, leader, sequence) for sequence in (5, 7)] == ["NONE", GAP], "the first leader"
    elect(world, leader)
    world.advance(ROUND_MS)
    assert sequence_told(world, leader, 7) == GAP, "the same leader in its next epoch"
    leader = change_leader(world)
    assert sequence_told(world, leader, 7) == WAITS
    elect(world, leader, lossy=True)
    world.advance(ROUND_MS)
    assert sequence_told(world, leader, 8, producer_id=8) == "NONE"
    assert sequence_told(world, leader, 10, producer_id=8) == GAP, "a leader that may lack acknowledged records"


def test_batches_from_before_are_answered_as_ever_after_an_election(world: World) -> None:
    leader = create(world)
    assert [sequence_told(world, leader, sequence) for sequence in range(7)] == ["NONE"] * 7
    leader = change_leader(world)
    # The batch with sequence 5 is a duplicate; that with sequence 0 is no longer known.
    assert [sequence_told(world, leader, sequence) for sequence in (5, 0, 7)] == ["NONE", GAP, "NONE"]


def test_early_batches_have_a_name_of_their_own_in_metrics(world: World) -> None:
    create(world)
    leader = change_leader(world)
    assert sequence_told(world, leader, 1) == WAITS
    assert world.machine_of(leader).node.refused_appends == {"EARLY_BATCH": 1}
