"""Partitions that move to other brokers, on four simulated machines with the real controller."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import begin_produce, image, read, told

from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

ONE = 1
TOPIC = "t"
LONG_MS = 20_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings={"replica.lag.time.max.ms": "5000"}, machines=4, clustered=True).start()
    world.advance(LONG_MS)
    assignment = {"partition_index": 0, "broker_ids": [1, 2]}
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "assignments": [assignment]}
    (answer,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    assert answer.error_code == 0, answer
    world.advance(2_000)
    assert told(produced(world, b"one", b"two")) == "NONE"
    yield world
    world.kill()


def produced(world: World, *values: bytes) -> Any:
    exchange = begin_produce(world, image(world).leader, *values)
    world.advance(2_000)
    return exchange


def move(world: World, replicas: list[int] | None, at: int = ONE, **more: Any) -> str:
    partitions = [{"partition_index": 0, "replicas": replicas}]
    topics = [{"name": TOPIC, "partitions": partitions}]
    answer = world.ask_at(at, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, timeout_ms=1000, topics=topics, **more)
    assert answer.error_code == 0
    return ErrorCode(answer.responses[0].partitions[0].error_code).name


def moving(world: World, at: int = ONE) -> list[tuple[list[int], list[int], list[int]]]:
    answer = world.ask_at(at, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=None)
    return [
        (list(each.replicas), list(each.adding_replicas), list(each.removing_replicas))
        for topic in answer.topics
        for each in topic.partitions
    ]


def rested(world: World) -> PartitionImage:
    for _ in range(20):
        world.advance(2_000)
        if not moving(world):
            return image(world)
    raise AssertionError(f"the move does not end: {image(world)}")


def link(world: World, broker_id: int, *, cut: bool) -> None:
    """Cuts or heals the links between a broker and the others. The store still reaches it."""
    change = world.links.cut if cut else world.links.heal
    for other in (1, 2, 3, 4):
        if other != broker_id:
            change(broker_id, other)
            change(other, broker_id)


def has_files(world: World, broker_id: int) -> bool:
    disk = world.machine_of(broker_id).disk
    return f"{TOPIC}-0" in disk.list(DATA_DIRECTORY)


def test_a_partition_moves_with_its_records_and_leaves_nothing_behind(world: World) -> None:
    link(world, 4, cut=True)
    assert move(world, [3, 4]) == "NONE"
    assert moving(world) == [([3, 4, 1, 2], [3, 4], [1, 2])]
    link(world, 4, cut=False)
    partition = rested(world)
    assert (partition.replicas, set(partition.isr), partition.leader) == ((3, 4), {3, 4}, 3)
    world.advance(2_000)
    assert [has_files(world, broker) for broker in (1, 2, 3, 4)] == [False, False, True, True]
    assert read(world, 3).high_watermark == 2
    assert told(produced(world, b"three")) == "NONE"
    assert ErrorCode(read(world, 1).error_code).name == "NOT_LEADER_OR_FOLLOWER"


def test_a_move_waits_for_a_broker_that_is_away_and_goes_on_when_it_is_back(world: World) -> None:
    world.machine_of(4).lose_power()
    world.advance(LONG_MS)
    assert move(world, [3, 5]) == "INVALID_REPLICA_ASSIGNMENT", "no broker 5 was ever there"
    assert move(world, [3, 4]) == "NONE"
    world.advance(LONG_MS)
    assert told(produced(world, b"three")) == "NONE"
    assert moving(world) != []
    world.machine_of(4).start()
    assert rested(world).replicas == (3, 4)
    assert read(world, image(world).leader).high_watermark == 3


def test_a_cancelled_move_leaves_the_partition_as_it_was(world: World) -> None:
    world.machine_of(4).lose_power()
    assert move(world, [3, 4]) == "NONE"
    world.advance(LONG_MS)
    assert move(world, None) == "NONE"
    assert move(world, None) == "NO_REASSIGNMENT_IN_PROGRESS"
    partition = rested(world)
    assert (partition.replicas, set(partition.isr)) == ((1, 2), {1, 2})
    world.advance(2_000)
    assert not has_files(world, 3)
    assert told(produced(world, b"three")) == "NONE"


def test_the_copy_of_a_broker_that_was_away_during_the_move_is_set_aside(world: World) -> None:
    world.machine_of(2).lose_power()
    world.advance(LONG_MS)
    assert move(world, [1, 3]) == "NONE"
    assert rested(world).replicas == (1, 3)
    world.machine_of(2).start()
    world.advance(LONG_MS)
    assert not has_files(world, 2)
    (aside,) = world.machine_of(2).node.logs.home.on_disk.set_aside_directories
    assert aside.startswith(f"{DATA_DIRECTORY}/{TOPIC}-0")


def test_a_request_that_keeps_the_replication_factor_refuses_another(world: World) -> None:
    refusal = move(world, [1, 2, 3], allow_replication_factor_change=False)
    assert refusal == "INVALID_REPLICATION_FACTOR"
    assert move(world, [1, 2, 3]) == "NONE"
    assert rested(world).replicas == (1, 2, 3)


@pytest.mark.parametrize("crash", ["kill", "lose_power"])
@pytest.mark.parametrize("while_away", [False, True])
def test_a_partition_that_moves_away_and_back_brings_all_records_whatever_dies_between(
    world: World, crash: str, while_away: bool
) -> None:
    """A broker that died remembered how far its copy was durable, took the new copy for one that had lost that, and
    began it behind the records."""
    if while_away:
        getattr(world.machine_of(1), crash)()
        world.advance(LONG_MS)
    assert move(world, [3, 4], at=2) == "NONE"
    for _ in range(10):
        world.advance(2_000)
    if not while_away:
        getattr(world.machine_of(1), crash)()
        world.advance(LONG_MS)
    world.machine_of(1).start()
    world.advance(LONG_MS)
    assert image(world).replicas == (3, 4)
    assert move(world, [1, 2]) == "NONE"
    assert rested(world).replicas == (1, 2)
    world.advance(2_000)
    partition = world.machine_of(1).node.hosted.get(TOPIC, 0)
    assert partition is not None
    assert (partition.log.offsets.start, partition.log.segments.all[0].base_offset) == (0, 0)
    assert partition.log.reports.damage == []
    answer = read(world, image(world).leader)
    assert (ErrorCode(answer.error_code).name, answer.high_watermark) == ("NONE", 2)
    # A second death finds nothing of the former copy either.
    getattr(world.machine_of(1), crash)()
    world.advance(LONG_MS)
    world.machine_of(1).start()
    world.advance(LONG_MS)
    again = world.machine_of(1).node.hosted.get(TOPIC, 0)
    assert again is not None
    assert again.log.reports.damage == []
