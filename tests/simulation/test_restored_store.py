"""A metadata store that was restored from an older copy is refused by every broker that has seen more."""

from collections.abc import Iterator

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import content

from cordwood.cluster.stores.interface import StoreFailure, StoreUnavailable, StoreWentBack
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

BEFORE, AFTER = "before-the-backup", "after-the-backup"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def create(world: World, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 3}
    created = world.ask_at(1, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
    assert created.topics[0].error_code == 0
    world.advance(FENCES_LIFTED_MS)


def leader(world: World, topic: str) -> int:
    return world.running[0].node.image.topics[topic].partitions[0].leader


def write(world: World, topic: str, value: bytes) -> None:
    batch = bytes(build_batch([(world.clock.wall_ms, None, value, [])]))
    entry = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    exchange = world.connect(leader(world, topic)).request(
        ApiKey.PRODUCE, 8, {"acks": -1, "timeout_ms": 5000, "topic_data": [entry]}
    )
    world.advance(FENCES_LIFTED_MS)
    assert exchange.answered
    assert exchange.answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def ends(world: World, topic: str) -> list[int]:
    found = [machine.node.hosted.get(topic, 0) for machine in world.machines]
    return [-1 if partition is None else partition.log.offsets.end for partition in found]


def one_more_election(world: World, topic: str) -> None:
    """Has another broker lead the topic, and the broker that led come back."""
    machine = world.machine_of(leader(world, topic))
    machine.kill()
    world.advance(6000)
    machine.start()
    world.advance(6000)


def lost_history(world: World, *, elections: int) -> MemoryStore:
    """A backup, behind which a topic was created, elections were held and records were written."""
    create(world, BEFORE)
    write(world, BEFORE, b"known to the backup")
    backup = world.copy_of_store()
    for _ in range(elections):
        one_more_election(world, BEFORE)
    write(world, BEFORE, b"in a later epoch")
    create(world, AFTER)
    write(world, AFTER, b"in a topic that the backup lacks")
    return backup


def restore_under(world: World, backup: MemoryStore) -> None:
    """Puts a copy in the place of the store of brokers that run."""
    lost, world.store = world.store, backup
    for machine in world.machines:
        assert machine.life is not None
        machine.life.store._store = backup
    lost._feed.close(StoreUnavailable("the store is restored"))


@pytest.mark.parametrize("bumped", [False, True])
def test_brokers_that_run_end_when_the_store_goes_back(world: World, bumped: bool) -> None:
    create(world, BEFORE)
    backup = world.copy_of_store()
    one_more_election(world, BEFORE)
    restore_under(world, world.bumped(backup) if bumped else backup)
    refused = set[int]()
    while len(refused) < len(world.machines):
        with pytest.raises(StoreWentBack, match="restored from an older copy"):
            world.advance(30_000)
        for machine in world.machines:
            if machine.life is not None and machine.life.failure is not None:
                refused.add(machine.broker_id)
                machine.kill()
    assert refused == {1, 2, 3}


@pytest.mark.parametrize("bumped", [False, True])
def test_brokers_do_not_start_on_an_older_copy_and_go_on_with_the_newest(world: World, bumped: bool) -> None:
    backup = lost_history(world, elections=2)
    world.restore(world.bumped(backup) if bumped else backup)
    world.kill()
    for machine in world.machines:
        with pytest.raises(StoreFailure, match=r"went back.*Nothing was changed.*Put back a copy"):
            machine.start()
        machine.kill()
    world.put_back()
    world.start().advance(9000)
    assert (ends(world, BEFORE), ends(world, AFTER)) == ([2, 2, 2], [1, 1, 1])


def test_a_broker_that_was_away_while_the_store_forgot_its_history_starts(world: World) -> None:
    create(world, BEFORE)
    create(world, AFTER)
    write(world, BEFORE, b"before it went")
    away = world.machines[2]
    away.kill()
    world.advance(6000)
    deleted = world.ask_at(1, ApiKey.DELETE_TOPICS, 3, topic_names=[AFTER], timeout_ms=1000)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    write(world, BEFORE, b"while it was away")
    world.store._forget(world.store._feed.revision)
    away.start()
    world.advance(9000)
    assert ends(world, BEFORE) == [2, 2, 2]


def test_logs_of_a_topic_that_a_restored_store_does_not_know_are_set_aside_by_brokers_that_run(world: World) -> None:
    create(world, BEFORE)
    backup = world.copy_of_store()
    create(world, AFTER)
    write(world, AFTER, b"in a topic that the backup lacks")
    restore_under(world, world.bumped(backup))
    world.advance(30_000)
    for machine in world.machines:
        assert AFTER not in machine.node.image.topics
        (aside,) = [name for name in machine.disk.list_directories("/data") if name.startswith(AFTER)]
        assert aside.endswith("-stray")
        assert any(name.endswith(".log") for name in machine.disk.list(f"/data/{aside}"))


@pytest.mark.parametrize("elections", [0, 2])
def test_an_operator_goes_on_with_the_older_copy_and_loses_nothing_that_is_on_disks(
    world: World, elections: int
) -> None:
    backup = lost_history(world, elections=elections)
    world.kill()
    world.store = backup.reopened()
    for machine in world.machines:
        machine.disk.platter_witness = None  # moved away, as the refusal says
    world.start().advance(9000)
    write(world, BEFORE, b"goes on")
    assert ends(world, BEFORE) == [3, 3, 3]
    for machine in world.machines:
        (aside,) = [name for name in machine.disk.list_directories("/data") if name.startswith(AFTER)]
        assert aside.endswith("-stray")
        assert any(name.endswith(".log") for name in machine.disk.list(f"/data/{aside}"))


@pytest.mark.parametrize("elections", range(4))
def test_replicas_with_later_epochs_follow_a_replica_that_the_older_copy_lets_lead(
    world: World, elections: int
) -> None:
    create(world, BEFORE)
    write(world, BEFORE, b"known to all")
    backup = world.copy_of_store()
    behind = world.machine_of(leader(world, BEFORE))
    behind.kill()
    world.advance(6000)
    for _ in range(elections):
        one_more_election(world, BEFORE)
    write(world, BEFORE, b"in a later epoch, and unknown to the first leader")
    world.kill()
    world.store = backup.reopened()
    for machine in world.machines:
        machine.disk.platter_witness = None
    behind.start()
    world.advance(9000)
    write(world, BEFORE, b"also in an epoch after the copy's")
    world.start().advance(9000)
    write(world, BEFORE, b"goes on")
    assert ends(world, BEFORE) == [3, 3, 3]
    found = [machine.node.hosted.get(BEFORE, 0) for machine in world.machines]
    assert len({content(partition.log) for partition in found if partition is not None}) == 1


def go_on_with(world: World, backup: MemoryStore, first: int | None = None) -> None:
    """Has an operator go on with the copy; the first broker starts some time before the others."""
    world.kill()
    world.store = backup.reopened()
    for machine in world.machines:
        machine.disk.platter_witness = None  # moved away, as the refusal says
    if first is not None:
        world.machine_of(first).start()
        world.advance(9000)
    world.start().advance(30_000)


@pytest.mark.parametrize("alone", [False, True])
def test_a_broker_whose_log_was_deleted_since_the_older_copy_does_not_lead(world: World, alone: bool) -> None:
    create(world, BEFORE)
    write(world, BEFORE, b"known to the backup")
    first = leader(world, BEFORE)
    others = [machine.broker_id for machine in world.machines if machine.broker_id != first]
    backup = world.copy_of_store()
    move = {"name": BEFORE, "partitions": [{"partition_index": 0, "replicas": others}]}
    world.ask_at(first, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[move], timeout_ms=1000)
    world.advance(9000)
    assert ends(world, BEFORE)[first - 1] == -1, "the log is deleted"
    go_on_with(world, backup, first if alone else None)
    assert ends(world, BEFORE) == [1, 1, 1]
    write(world, BEFORE, b"goes on")
    assert ends(world, BEFORE) == [2, 2, 2]


def test_a_partition_without_records_has_a_leader_by_the_older_copy(world: World) -> None:
    create(world, BEFORE)
    go_on_with(world, world.copy_of_store())
    write(world, BEFORE, b"goes on")
    assert ends(world, BEFORE) == [1, 1, 1]


def test_replicas_set_records_aside_that_the_leader_by_the_older_copy_lacks(world: World) -> None:
    create(world, BEFORE)
    write(world, BEFORE, b"known to all")
    backup = world.copy_of_store()
    behind = world.machine_of(leader(world, BEFORE))
    behind.stop()
    world.advance(6000)
    write(world, BEFORE, b"unknown to the first leader")
    others = [machine for machine in world.machines if machine is not behind]
    for machine in others:
        machine.stop()
    behind.start()
    go_on_with(world, backup, behind.broker_id)
    for machine in others:
        (aside,) = [name for name in machine.disk.list_directories("/data") if name.startswith(f"{BEFORE}-0.")]
        assert b"unknown to the first leader" in machine.disk.read_bytes(f"/data/{aside}/{0:020}.log")


def test_a_replica_that_forgot_what_was_committed_says_which_records_it_cuts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, BEFORE)
    write(world, BEFORE, b"known to all")
    backup = world.copy_of_store()
    behind = world.machine_of(leader(world, BEFORE))
    behind.stop()
    world.advance(6000)
    write(world, BEFORE, b"unknown to the first leader")
    others = [machine for machine in world.machines if machine is not behind]
    for machine in others:
        machine.kill()
    behind.start()
    go_on_with(world, backup, behind.broker_id)
    said = [each.getMessage() for each in caplog.records if "may have been acknowledged" in each.getMessage()]
    assert len(said) == len(others)
    assert all("at offsets 1 to 1, which the leader" in each for each in said)
