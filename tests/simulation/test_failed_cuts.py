"""A follower's log that must be cut, on a disk that refuses in the middle of the cut: the replica is offline, with
words, and comes back once the disk works again."""

import logging

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    content,
    create,
    cut_off,
    elect,
    heal,
    hosted,
    log,
    others,
    told,
)

from cordwood.node.partitions.partition import Partition

CHANGES = ("truncate", "remove", "rename", "create", "append")


def diverged() -> tuple[World, int, int]:
    """A world whose former leader has two segments more than its successor, and is about to hear of it."""
    world = World(seed=1, settings={"log.flush.offset.checkpoint.interval.ms": "1000"}, machines=3).start()
    world.settle()
    leader = create(world, segment_bytes="400")
    for number in range(4):
        begin_produce(world, leader, b"kept %d" % number * 10)
        world.advance(ROUND_MS)
    cut_off(world, leader)
    for number in range(5):
        assert told(begin_produce(world, leader, b"lost %d" % number * 10, acks=1)) == "NONE"
    world.advance(20)
    successor, _ = others(leader)
    elect(world, successor)
    begin_produce(world, successor, b"next")
    return world, leader, successor


class Refusal:
    """Lets so many changes of the partition's files succeed, and then refuses all changes of them."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.refused: list[str] = []

    def __call__(self, what: str) -> bool:
        if not what.startswith(CHANGES) or f"{DATA_DIRECTORY}/{TOPIC}-0/" not in what:
            return False
        self.allowed -= 1
        if self.allowed < 0:
            self.refused.append(what)
        return self.allowed < 0


def offline(partition: Partition) -> bool:
    return partition.opened is None


@pytest.mark.parametrize("allowed", range(10))
def test_a_cut_that_the_disk_refuses_halfway_is_finished_when_the_disk_works_again(
    allowed: int, caplog: pytest.LogCaptureFixture
) -> None:
    world, old, successor = diverged()
    machine = world.machine_of(old)
    machine.disk.refuses = refusal = Refusal(allowed)
    heal(world, old)
    world.advance(5_000)
    if refusal.refused and refusal.refused[0].startswith(("truncate", "remove")):
        assert "failed, it is offline here until its files are recovered" in caplog.text
    machine.disk.refuses = lambda what: False
    world.advance(20_000)
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    assert b"lost" not in content(log(world, old))
    assert not [damage for broker_id in ALL for damage in log(world, broker_id).reports.damage]
    sent = begin_produce(world, successor, b"after")
    world.advance(ROUND_MS)
    assert told(sent) == "NONE"
    world.kill()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("allowed", [0, 1, 3, 5])
def test_a_cut_that_failed_is_finished_after_a_restart(allowed: int, power_cut: bool) -> None:
    world, old, _ = diverged()
    machine = world.machine_of(old)
    machine.disk.refuses = refusal = Refusal(allowed)
    heal(world, old)
    world.advance(300)
    assert refusal.refused
    assert offline(hosted(world, old))
    if power_cut:
        machine.lose_power()
    else:
        machine.stop()
    machine.start()
    world.advance(20_000)
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    assert not log(world, old).reports.damage
    world.kill()


def test_a_cut_that_fails_before_its_first_change_leaves_the_log_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    world, old, _ = diverged()
    machine = world.machine_of(old)
    before = log(world, old)
    machine.disk.refuses = lambda what: "checkpoint" in what or "witness" in what
    heal(world, old)
    world.advance(3_000)
    assert "failed, nothing of it was changed" in caplog.text
    assert log(world, old) is before
    assert b"lost" in content(before)
    machine.disk.refuses = lambda what: False
    world.advance(20_000)
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    world.kill()


def test_the_words_name_the_partition_the_offset_and_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    world, old, _ = diverged()
    world.machine_of(old).disk.refuses = Refusal(1)
    heal(world, old)
    world.advance(300)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    (said,) = [error for error in errors if "failed" in error]
    assert said.startswith(f"{TOPIC}-0: the cut at offset 4 failed")
    assert "Input/output error" in said
    world.kill()
