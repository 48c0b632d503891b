"""The role of a partition: its moves, and the claim to write segments for its log."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic

from cordwood.node.partitions.partition import Partition


@pytest.fixture
def led() -> Iterator[Partition]:
    world = World(seed=1).start()
    create_topic(world, "orders")
    yield world.node.hosted.leader("orders", 0)
    world.kill()


def followed(partition: Partition) -> Partition:
    partition.follow(2, partition.role.leader_epoch + 1, partition.image)
    return partition


def test_a_leader_s_log_is_never_cut(led: Partition) -> None:
    with pytest.raises(AssertionError, match="orders-0 cannot move from LEADING to BEING_CUT"):
        led.begin_cut()
    assert led.role.leads


def test_a_partition_neither_leads_nor_goes_offline_while_its_log_is_cut(led: Partition) -> None:
    partition = followed(led)
    following = partition.begin_following()
    partition.begin_cut()
    epoch = partition.role.leader_epoch
    with pytest.raises(AssertionError, match="from BEING_CUT to OFFLINE"):
        partition.go_offline()
    assert partition.role.following is following
    partition.end_cut()
    assert (partition.role.leader, partition.role.leader_epoch) == (2, epoch)
    assert partition.role.following is following


def test_an_offline_partition_stays_offline_whoever_leads(led: Partition) -> None:
    led.go_offline()
    followed(led)
    assert led.role.offline
    assert led.opened is None


def test_one_claimant_at_a_time_writes_segments(led: Partition) -> None:
    assert led.claim("compaction")
    assert not led.claim("repair")
    assert not led.release("repair"), "a claim that another has is not taken back"
    assert led.release("compaction")
    assert led.claim("repair")


def test_a_log_that_a_thread_cuts_is_nobody_s_to_claim(led: Partition) -> None:
    partition = followed(led)
    partition.begin_cut()
    assert not partition.claim("compaction")
    partition.end_cut()
    assert partition.claim("compaction")
