"""All brokers are killed, and the broker that starts first lost something of a partition: no follower is cut to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.machine import Machine
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ALL,
    TOPIC,
    begin_produce,
    content,
    create,
    image,
    log,
    others,
    told,
)

from cordwood.segments.checkpoint_witness import witness_path
from cordwood.segments.end_witness import FILE_NAMES as END_WITNESS
from cordwood.segments.filesystem import remove_if_there
from cordwood.segments.offset_checkpoint import LOG_START_FILE

SETTLED_MS = 15_000
SOON_MS = 100
PARTITION = f"{DATA_DIRECTORY}/{TOPIC}-0"


@contextmanager
def three_brokers(checkpoint_ms: int) -> Iterator[World]:
    settings = {
        "log.flush.offset.checkpoint.interval.ms": str(checkpoint_ms),
        "log.retention.check.interval.ms": "1000",
        "auto.leader.rebalance.enable": "false",
    }
    world = World(seed=1, settings=settings, machines=3, scrubbed=True, clustered=True).start()
    world.advance(3_000)
    yield world
    world.kill()


def write(world: World, leader: int, count: int) -> None:
    for number in range(count):
        sent = begin_produce(world, leader, b"%03d" % number * 30)
        world.advance(SOON_MS)
        assert told(sent) == "NONE"


def lose_directory(machine: Machine) -> None:
    machine.disk.platter.remove_tree(PARTITION)


def lose_directory_and_witness(machine: Machine) -> None:
    lose_directory(machine)
    for name in END_WITNESS:
        remove_if_there(machine.disk.platter, f"{DATA_DIRECTORY}/{name}")


def segment_names(machine: Machine) -> list[str]:
    return sorted(name for name in machine.disk.platter.list(PARTITION) if name.endswith(".log"))


def lose_last_files(machine: Machine) -> None:
    """Removes the segments behind the first, and the witness of the log's end."""
    for name in segment_names(machine)[1:]:
        machine.disk.platter.remove(f"{PARTITION}/{name}")
    for name in END_WITNESS:
        remove_if_there(machine.disk.platter, f"{DATA_DIRECTORY}/{name}")


def restart_with(world: World, first: int, lose: Callable[[Machine], None], *, clean: bool = False) -> None:
    """Kills all brokers, or stops one cleanly that loses something. That one starts, and leads if it can; then the
    others start."""
    for broker_id in (*others(first), first):
        if clean and broker_id == first:
            world.machine_of(broker_id).stop()
        else:
            world.machine_of(broker_id).kill()
    # Their registrations end: the broker that comes back first is elected.
    world.advance(SETTLED_MS)
    lose(world.machine_of(first))
    world.machine_of(first).start()
    world.advance(SETTLED_MS)
    for other in others(first):
        world.machine_of(other).start()
        world.advance(SOON_MS)
    world.advance(2 * SETTLED_MS)


def same_everywhere(world: World, whole: bytes) -> bool:
    return all(content(log(world, broker_id)) == whole for broker_id in ALL)


@pytest.mark.parametrize(
    ("durability", "lose"),
    [("os", lose_directory), ("disk", lose_directory_and_witness), ("os", lose_last_files), ("disk", lose_last_files)],
)
@pytest.mark.parametrize("starts_first", ["leader", "follower"])
def test_records_that_a_broker_lost_behind_its_last_checkpoint_stay_on_the_others(
    durability: str, lose: Callable[[Machine], None], starts_first: str
) -> None:
    with three_brokers(checkpoint_ms=1_000) as world:
        leader = create(world, ack_durability=durability, segment_bytes="300")
        write(world, leader, 20)
        world.advance(2_000)
        write(world, leader, 5)
        whole = content(log(world, leader))
        restart_with(world, leader if starts_first == "leader" else others(leader)[0], lose)
        assert same_everywhere(world, whole)
        assert set(image(world).isr) == set(ALL)
        write(world, image(world).leader, 2)


def lose_first_file(machine: Machine) -> None:
    machine.disk.platter.remove(f"{PARTITION}/{segment_names(machine)[0]}")


def lose_saved_start(machine: Machine) -> None:
    for name in (LOG_START_FILE, witness_path(LOG_START_FILE)):
        remove_if_there(machine.disk.platter, f"{DATA_DIRECTORY}/{name}")


def lose_first_file_and_witness(machine: Machine) -> None:
    """Nothing tells any more that the log had a file before the one that is now its first."""
    lose_first_file(machine)
    lose_saved_start(machine)
    for name in END_WITNESS:
        remove_if_there(machine.disk.platter, f"{DATA_DIRECTORY}/{name}")


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("lose", [lose_directory, lose_first_file, lose_first_file_and_witness])
def test_records_that_a_broker_lost_before_its_first_checkpoint_stay_on_the_others(
    durability: str, lose: Callable[[Machine], None]
) -> None:
    with three_brokers(checkpoint_ms=20_000) as world:
        leader = create(world, ack_durability=durability, segment_bytes="300")
        write(world, leader, 10)
        whole = content(log(world, leader))
        assert log(world, leader).offsets.saved_recovery_point == 0
        restart_with(world, leader, lose)
        # The checkpoint of the new life lets a repair begin.
        world.advance(20_000)
        assert same_everywhere(world, whole)
        assert [log(world, broker_id).offsets.start for broker_id in ALL] == [0, 0, 0]
        assert set(image(world).isr) == set(ALL)


@pytest.mark.parametrize("lose", [lose_directory, lose_last_files])
def test_records_that_vanished_after_a_clean_stop_stay_on_the_others(lose: Callable[[Machine], None]) -> None:
    with three_brokers(checkpoint_ms=1_000) as world:
        leader = create(world, ack_durability="os", segment_bytes="300")
        write(world, leader, 20)
        whole = content(log(world, leader))
        restart_with(world, leader, lose, clean=True)
        assert same_everywhere(world, whole)
        assert set(image(world).isr) == set(ALL)


def test_the_last_replica_in_sync_goes_on_without_an_end_that_nobody_else_has(caplog: pytest.LogCaptureFixture) -> None:
    with three_brokers(checkpoint_ms=1_000) as world:
        leader = create(world, min_insync_replicas="1", segment_bytes="300")
        write(world, leader, 10)
        for other in others(leader):
            world.machine_of(other).kill()
        world.advance(SETTLED_MS)
        write(world, leader, 10)
        assert image(world, leader).isr == (leader,)
        world.advance(2_000)
        world.machine_of(leader).kill()
        lose_last_files(world.machine_of(leader))
        world.machine_of(leader).start()
        world.advance(SETTLED_MS)
        assert "records are missing at the end of its log" in caplog.text
        write(world, leader, 1)
        for other in others(leader):
            world.machine_of(other).start()
        world.advance(2 * SETTLED_MS)
        assert (image(world).leader, log(world, leader).offsets.end) == (leader, 21)


def test_replicas_that_return_to_a_leader_whose_beginning_is_in_doubt_keep_theirs_and_lead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with three_brokers(checkpoint_ms=3_600_000) as world:
        leader = create(world, min_insync_replicas="1", segment_bytes="300")
        write(world, leader, 10)
        for other in others(leader):
            world.machine_of(other).kill()
        world.advance(SETTLED_MS)
        write(world, leader, 5)
        assert image(world, leader).isr == (leader,)
        whole = content(log(world, leader))
        world.machine_of(leader).kill()
        lose_first_file_and_witness(world.machine_of(leader))
        world.machine_of(leader).start()
        world.advance(SETTLED_MS)
        assert "records may be missing at the beginning of its log, before offset 1" in caplog.text
        # Nobody else is in sync: it leads on, and its checkpoints do not make a fact of its start.
        write(world, leader, 1)
        assert log(world, leader).offsets.start_in_doubt
        for other in others(leader):
            world.machine_of(other).start()
        world.advance(4 * SETTLED_MS)
        assert [log(world, broker_id).offsets.start for broker_id in ALL] == [0, 0, 0]
        assert [content(log(world, broker_id))[: len(whole)] == whole for broker_id in ALL] == [True] * 3
        assert set(image(world).isr) == set(ALL)


def test_a_start_that_only_the_leader_vouches_for_is_taken_over_without_a_refill(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with three_brokers(checkpoint_ms=1_000) as world:
        leader = create(world, segment_bytes="300", retention_bytes="600", file_delete_delay_ms="0")
        write(world, leader, 20)
        world.advance(5_000)
        start = log(world, leader).offsets.start
        assert start > 0
        follower = others(leader)[0]
        world.machine_of(follower).kill()
        lose_saved_start(world.machine_of(follower))
        world.machine_of(follower).start()
        world.advance(SETTLED_MS)
        assert "records may be missing at the beginning of its log" in caplog.text
        assert "filled anew" not in caplog.text
        assert (log(world, follower).offsets.start, log(world, follower).in_doubt) == (start, False)
        assert set(image(world).isr) == set(ALL)
