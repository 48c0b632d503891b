"""A data directory that fails while the broker runs: its partitions go offline, and nothing acknowledged is lost."""

from collections.abc import Callable, Iterator

import pytest
from simulation.checkers.content import read_batches
from simulation.world.exchange import Exchange
from simulation.world.machine import BrokerFailed
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, fill, produce

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

HOME, OTHER = "/data", "/data-2"
PARTITIONS = range(4)
REPLICAS = 3


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, directories=2).start()
    create_topic(world, partitions=len(PARTITIONS))
    for index in PARTITIONS:
        fill(world, "orders", b"first", index=index)
    yield world
    world.kill()


def in_directory(logs: DataDirectories, path: str, topic: str = "orders") -> list[int]:
    places = {name: logs.directory_of(name) for name in (log.partition for log in logs.logs) if name.topic == topic}
    return sorted(name.partition for name, directory in places.items() if directory is logs.directory_at(path))


def produced(world: World, index: int) -> str:
    return ErrorCode(produce(world, "orders", batch_of(world, b"more"), index=index)[0].error_code).name


def ends(world: World) -> dict[int, int]:
    return {index: world.node.hosted.leader("orders", index).log.offsets.end for index in PARTITIONS}


def writes_fail(world: World) -> None:
    """Writes fail, and no sync is tried."""
    world.disk.refuses = lambda what: f"{OTHER}/" in what


def syncs_and_writes_fail(world: World) -> None:
    world.disk.failing = OTHER


def only_syncs_fail(world: World, path: str = OTHER) -> None:
    world.disk.failing, world.disk.only_syncs_fail = path, True


@pytest.mark.parametrize("fail", [writes_fail, syncs_and_writes_fail, only_syncs_fail])
def test_only_the_partitions_of_the_failed_directory_go_offline(world: World, fail: Callable[[World], None]) -> None:
    lost, kept = in_directory(world.node.logs, OTHER), in_directory(world.node.logs, HOME)
    assert len(lost) == len(kept) == 2
    fail(world)
    assert produced(world, lost[0]) in ("KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER")
    assert [produced(world, index) for index in lost] == ["KAFKA_STORAGE_ERROR"] * 2
    assert [produced(world, index) for index in kept] == ["NONE"] * 2
    results = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    assert {each.log_dir: ErrorCode(each.error_code).name for each in results} == {
        HOME: "NONE",
        OTHER: "KAFKA_STORAGE_ERROR",
    }
    create_topic(world, "later", partitions=3)
    for index in range(3):
        fill(world, "later", b"value", index=index)
    assert in_directory(world.node.logs, HOME, "later") == [0, 1, 2], "new partitions go where disks work"
    world.advance(120_000)
    assert [produced(world, index) for index in kept] == ["NONE"] * 2, "checkpoints and retention go on"


@pytest.mark.parametrize("power", [False, True])
def test_a_restart_brings_the_partitions_back_with_all_that_was_acknowledged(world: World, power: bool) -> None:
    lost = in_directory(world.node.logs, OTHER)
    world.disk.failing = OTHER
    assert produced(world, lost[0]) != "NONE"
    if power:
        world.lose_power()
    else:
        world.stop()
    world.start()
    found = ends(world)
    assert all(found[index] >= 1 for index in PARTITIONS)
    assert [produced(world, index) for index in PARTITIONS] == ["NONE"] * len(PARTITIONS)


def test_a_topic_in_a_failed_directory_can_be_deleted_and_made_again(world: World) -> None:
    lost = in_directory(world.node.logs, OTHER)
    world.disk.failing = OTHER
    assert produced(world, lost[0]) != "NONE"
    answer = world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=1000)
    assert answer.responses[0].error_code == 0
    create_topic(world, partitions=len(PARTITIONS))
    assert [produced(world, index) for index in PARTITIONS] == ["NONE"] * len(PARTITIONS)
    world.kill()
    world.start()
    assert ends(world) == dict.fromkeys(PARTITIONS, 1)


def test_a_directory_that_is_renamed_is_noticed_by_a_new_partition_and_by_a_checkpoint(world: World) -> None:
    lost, kept = in_directory(world.node.logs, OTHER), in_directory(world.node.logs, HOME)
    world.disk.vanished = OTHER
    assert [produced(world, index) for index in lost] == ["NONE"] * 2, "open files are those of the renamed directory"
    create_topic(world, "later", partitions=2)
    answers = {produce(world, "later", batch_of(world, b"value"), index=index)[0].error_code for index in range(2)}
    assert {ErrorCode(answer).name for answer in answers} <= {"NONE", "KAFKA_STORAGE_ERROR"}
    world.advance(1_000)
    assert [each.path for each in world.node.logs.lost] == [OTHER]
    assert [produced(world, index) for index in lost] == ["KAFKA_STORAGE_ERROR"] * 2
    assert [produced(world, index) for index in kept] == ["NONE"] * 2
    world.kill()
    world.start()
    assert ends(world) == dict.fromkeys(PARTITIONS, 2), "the directory is back, with all that was acknowledged"


def test_a_directory_that_is_renamed_is_noticed_within_a_minute_if_nobody_writes(world: World) -> None:
    world.advance(120_000)
    world.disk.vanished = OTHER
    world.advance(61_000)
    assert [each.path for each in world.node.logs.lost] == [OTHER]


def test_a_home_that_is_renamed_stops_the_broker(world: World) -> None:
    world.disk.vanished = HOME
    with pytest.raises(BrokerFailed, match="is gone"):
        world.advance(61_000)


def test_a_directory_whose_checkpoint_fails_keeps_no_other_from_its_own(world: World) -> None:
    (kept, *_) = in_directory(world.node.logs, HOME)
    world.disk.refuses = lambda what: what.startswith(f"append to {OTHER}/orders") and what.endswith(".index")
    world.advance(120_000)
    assert not world.node.logs.lost, "the disk works"
    log = world.node.hosted.leader("orders", kept).log
    assert log.offsets.saved_recovery_point == log.offsets.end == 1


def test_a_broker_without_its_home_stops(world: World) -> None:
    (index, *_) = in_directory(world.node.logs, HOME)
    only_syncs_fail(world, HOME)
    with pytest.raises(BrokerFailed):
        produce(world, "orders", batch_of(world, b"more"), index=index)


# In a cluster


@pytest.fixture
def cluster() -> Iterator[World]:
    world = World(seed=1, machines=REPLICAS, clustered=True, directories=2).start()
    world.advance(10_000)
    topic = {"name": "orders", "num_partitions": 6, "replication_factor": REPLICAS, "configs": []}
    answer = world.ask_at(1, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == 0, answer
    world.advance(5_000)
    yield world
    world.kill()


def leaders(world: World, seen_by: int = 1) -> list[int]:
    return [each.leader for each in world.machine_of(seen_by).node.image.topics["orders"].partitions]


def send(world: World, index: int) -> Exchange:
    batch = bytes(build_batch([(world.clock.wall_ms, None, b"value", [])]))
    entry = {"name": "orders", "partition_data": [{"index": index, "records": batch}]}
    values = {"acks": -1, "timeout_ms": 30_000, "topic_data": [entry]}
    exchange = world.connect(leaders(world)[index]).request(ApiKey.PRODUCE, 8, values)
    world.advance(1_000)
    return exchange


def told(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return ErrorCode(exchange.answer.responses[0].partition_responses[0].error_code).name


def test_other_replicas_lead_in_the_place_of_those_in_a_failed_directory(cluster: World) -> None:
    world = cluster
    assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6
    world.advance(2_000)
    machine = world.machine_of(2)
    lost = in_directory(machine.node.logs, OTHER)
    led = [index for index, leader in enumerate(leaders(world)) if leader == 2 and index in lost]
    kept = [index for index, leader in enumerate(leaders(world)) if leader == 2 and index not in lost]
    assert len(lost) == 3
    machine.disk.failing = OTHER
    for index in led or lost:
        send(world, index)
    world.advance(5_000)
    image = world.machine_of(1).node.image.topics["orders"].partitions
    for index in lost:
        assert image[index].leader not in (2, -1)
        assert 2 not in image[index].isr
        assert 2 not in image[index].elr
    assert [image[index].leader for index in kept] == [2] * len(kept), "the other directory is not touched"
    assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6, "acks=all does not wait for the lost ones"
    world.advance(60_000)
    for index in lost:
        assert 2 not in world.machine_of(1).node.image.topics["orders"].partitions[index].isr
    machine.kill()
    machine.start()
    world.advance(60_000)
    image = world.machine_of(1).node.image.topics["orders"].partitions
    assert [sorted(each.isr) for each in image] == [[1, 2, 3]] * 6, "after a restart the disk works again"
    contents = [
        [bytes(batch) for index in range(6) for _, batch in read_batches(opened(world, broker_id, index))]
        for broker_id in (1, 2, 3)
    ]
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize("new", [False, True])
def test_other_replicas_lead_in_the_place_of_those_in_a_directory_that_was_renamed(cluster: World, new: bool) -> None:
    world = cluster
    if not new:
        assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6
    machine = world.machine_of(2)
    machine.disk.vanished = OTHER
    for _ in range(3):
        for index in range(6):
            send(world, index)
    world.advance(70_000)
    assert [each.path for each in machine.node.logs.lost] == [OTHER]
    assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6, "acks=all does not wait for the lost ones"
    acknowledged = {index: [bytes(batch) for _, batch in read_batches(opened(world, 1, index))] for index in range(6)}
    machine.kill()
    machine.start()
    world.advance(60_000)
    image = world.machine_of(1).node.image.topics["orders"].partitions
    assert [sorted(each.isr) for each in image] == [[1, 2, 3]] * 6, "after a restart the directory is back"
    for broker_id in (1, 2, 3):
        for index in range(6):
            found = [bytes(batch) for _, batch in read_batches(opened(world, broker_id, index))]
            assert found == acknowledged[index]


def test_a_replica_that_leaves_a_failing_directory_takes_no_other_partition_offline(cluster: World) -> None:
    world = cluster
    assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6
    world.advance(2_000)
    machine = world.machine_of(2)
    lost, kept = in_directory(machine.node.logs, OTHER), in_directory(machine.node.logs, HOME)
    machine.disk.failing = OTHER
    reassign(world, lost[0], [1, 3])
    assert [each.path for each in machine.node.logs.lost] == [OTHER]
    image = world.machine_of(1).node.image.topics["orders"].partitions
    assert sorted(image[lost[0]].replicas) == [1, 3]
    assert [sorted(image[index].isr) for index in kept] == [[1, 2, 3]] * len(kept), "the other directory is not touched"
    machine.kill()
    machine.start()
    world.advance(60_000)
    image = world.machine_of(1).node.image.topics["orders"].partitions
    assert [sorted(each.isr) for each in image] == [[1, 3] if index == lost[0] else [1, 2, 3] for index in range(6)]
    assert not machine.disk.exists(f"{OTHER}/orders-{lost[0]}"), "the next start finishes the removal"


def test_a_replica_comes_back_to_a_directory_whose_witness_could_not_be_emptied_when_it_left(cluster: World) -> None:
    world = cluster
    assert [told(send(world, index)) for index in range(6)] == ["NONE"] * 6
    world.advance(2_000)
    machine = world.machine_of(2)
    (index, *_) = in_directory(machine.node.logs, OTHER)
    machine.disk.refuses = lambda what: what.startswith(f"truncate {OTHER}/durable-end-witness")
    reassign(world, index, [1, 3])
    assert machine.disk.exists(f"{OTHER}/orders-{index}"), "no file is removed while the witness tells of its records"
    machine.disk.refuses = lambda what: False
    assert not machine.node.logs.lost, "the disk works"
    reassign(world, index, [1, 2, 3])
    world.advance(60_000)
    assert sorted(world.machine_of(1).node.image.topics["orders"].partitions[index].isr) == [1, 2, 3]


def reassign(world: World, index: int, replicas: list[int]) -> None:
    topics = [{"name": "orders", "partitions": [{"partition_index": index, "replicas": replicas}]}]
    answer = world.ask_at(1, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=topics)
    assert answer.responses[0].partitions[0].error_code == 0
    world.advance(10_000)


def opened(world: World, broker_id: int, index: int) -> Log:
    partition = world.machine_of(broker_id).node.hosted.get("orders", index)
    assert partition is not None
    return partition.log
