"""AlterReplicaLogDirs and DescribeLogDirs of a broker with two data directories."""

import random
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, delete_topic, fetch, fill, only, produce, values_in

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey

VALUES = [f"{number}".encode().ljust(100, b".") for number in range(20)]


@pytest.fixture
def world() -> World:
    return World(seed=1, settings={"log.segment.delete.delay.ms": "1000"}, directories=2).start()


def paths(world: World) -> tuple[str, str]:
    first, second = world.node.logs.directories
    return first.path, second.path


def ask_to_move(world: World, path: str, *indexes: int, topic: str = "orders") -> list[ErrorCode]:
    wanted = [{"path": path, "topics": [{"name": topic, "partitions": list(indexes)}]}]
    answer = world.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=wanted)
    return [ErrorCode(each.error_code) for result in answer.results for each in result.partitions]


def described(world: World, *, futures: bool = False) -> list[tuple[str, int, int]]:
    """(directory, partition, lag) of each log or copy of `orders`."""
    answer = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    return [
        (result.log_dir, each.partition_index, each.offset_lag)
        for result in answer.results
        for topic in result.topics
        if topic.name == "orders"
        for each in topic.partitions
        if each.is_future_key is futures
    ]


def where(world: World) -> str:
    ((path, _, _),) = described(world)
    return path


def read_all(world: World) -> list[bytes | None]:
    found: list[bytes | None] = []
    while values := values_in(only(fetch(world, ("orders", 0, len(found))))):
        found += values
    return found


def names_on_disk(world: World) -> list[str]:
    return sorted(
        f"{path}/{name}" for path in paths(world) for name in world.disk.list_directories(path) if "orders" in name
    )


def test_a_log_moves_and_goes_on(world: World) -> None:
    create_topic(world, segment_bytes="500")
    fill(world, "orders", *VALUES)
    first, second = paths(world)
    target = second if where(world) == first else first
    assert ask_to_move(world, target, 0) == [ErrorCode.NONE]
    world.advance(10_000)
    assert (where(world), described(world, futures=True)) == (target, [])
    fill(world, "orders", b"later")
    assert read_all(world) == [*VALUES, b"later"]
    assert names_on_disk(world) == [f"{target}/orders-0"]
    world.kill()
    world.start()
    assert where(world) == target
    assert read_all(world) == [*VALUES, b"later"]


def test_a_reader_and_a_producer_wait_over_the_switch(world: World) -> None:
    create_topic(world)
    fill(world, "orders", *VALUES)
    waiting = world.begin(ApiKey.FETCH, 12, **_fetch_at_the_end())
    first, second = paths(world)
    target = second if where(world) == first else first
    assert ask_to_move(world, target, 0) == [ErrorCode.NONE]
    world.advance(100)
    assert where(world) == target
    (answer,) = produce(world, "orders", batch_of(world, b"later"))
    assert (answer.error_code, answer.base_offset) == (0, len(VALUES))
    world.settle()
    assert values_in(only(waiting.answer)) == [b"later"]


def _fetch_at_the_end() -> dict[str, object]:
    partition = {
        "partition": 0,
        "fetch_offset": len(VALUES),
        "partition_max_bytes": 10_000,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    return {
        "max_wait_ms": 60_000,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "topics": [{"topic": "orders", "partitions": [partition]}],
    }


def test_what_cannot_be_moved_is_refused(world: World) -> None:
    create_topic(world)
    first, _ = paths(world)
    assert ask_to_move(world, "/nowhere", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert ask_to_move(world, first, 7) == [ErrorCode.REPLICA_NOT_AVAILABLE]


@pytest.mark.parametrize("which", [0, 1])
def test_a_partition_that_comes_later_is_made_where_it_was_wished(world: World, which: int) -> None:
    path = paths(world)[which]
    assert ask_to_move(world, path, 0) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    create_topic(world)
    fill(world, "orders", b"first")
    assert where(world) == path


@pytest.mark.parametrize("which", [0, 1])
def test_a_partition_without_records_is_made_where_it_is_moved(world: World, which: int) -> None:
    create_topic(world)
    path = paths(world)[which]
    assert ask_to_move(world, path, 0) == [ErrorCode.NONE]
    world.settle()
    fill(world, "orders", b"first")
    assert where(world) == path


def test_a_slow_move_is_told_with_its_lag_and_can_be_ended(world: World) -> None:
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "100"}
    world.kill()
    world = World(seed=1, settings=settings, directories=2).start()
    create_topic(world, segment_bytes="200000")
    big = b"x" * 100_000
    fill(world, "orders", *[big] * 30)
    first, second = paths(world)
    source, target = (first, second) if where(world) == first else (second, first)
    assert ask_to_move(world, target, 0) == [ErrorCode.NONE]
    world.advance(5000)
    ((path, index, lag),) = described(world, futures=True)
    assert (path, index) == (target, 0)
    assert 0 < lag <= 30
    assert ask_to_move(world, source, 0) == [ErrorCode.NONE]
    world.advance(10_000_000)
    assert (where(world), described(world, futures=True)) == (source, [])
    assert names_on_disk(world) == [f"{source}/orders-0"]


def test_a_move_begins_anew_after_a_kill(world: World) -> None:
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "100000"}
    world.kill()
    world = World(seed=1, settings=settings, directories=2).start()
    create_topic(world, partitions=2, segment_bytes="200000")
    for index in range(2):
        fill(world, "orders", *[b"x" * 100_000] * 30, index=index)
    first, _ = paths(world)
    sources = {index: path for path, index, _ in described(world)}
    moved = next(index for index, path in sources.items() if path != first)
    assert ask_to_move(world, first, moved) == [ErrorCode.NONE]
    world.advance(3000)
    assert described(world, futures=True)
    world.kill()
    world.start()
    world.advance(60_000)
    assert {path for path, _, _ in described(world)} == {first}
    assert world.node.hosted.leader("orders", moved).replica.log.offsets.end == 30


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(world: World) -> None:
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
    world.kill()
    world = World(seed=1, settings=settings, directories=2).start()
    create_topic(world, segment_bytes="200000")
    fill(world, "orders", *[b"x" * 100_000] * 30)
    first, second = paths(world)
    target = second if where(world) == first else first
    assert ask_to_move(world, target, 0) == [ErrorCode.NONE]
    world.advance(100)
    delete_topic(world, "orders")
    world.advance(10_000_000)
    assert names_on_disk(world) == []
    create_topic(world)
    assert world.node.log_moves.future_of(TopicPartition("orders", 0)) is None
    fill(world, "orders", b"new")
    assert read_all(world) == [b"new"]


def test_a_kill_at_any_step_of_a_move_leaves_one_whole_log() -> None:
    for steps in range(400):
        world = World(seed=steps, directories=2).start()
        create_topic(world, segment_bytes="500")
        fill(world, "orders", *VALUES)
        first, second = paths(world)
        target = second if where(world) == first else first
        ask = world.connect()
        wanted = [{"path": target, "topics": [{"name": "orders", "partitions": [0]}]}]
        ask.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": wanted})
        left = steps
        while left and (step := world._first_step()) is not None:
            step()
            left -= 1
        ended = left > 0
        if steps % 2:
            world.lose_power()
        else:
            world.kill()
        world.start()
        assert read_all(world) == VALUES
        world.advance(60_000)
        assert read_all(world) == VALUES
        assert len(names_on_disk(world)) == 1
        world.kill()
        if ended:
            return
    raise AssertionError("the move did not end")


def test_a_log_that_cannot_be_opened_is_not_moved(world: World) -> None:
    create_topic(world)
    fill(world, "orders", *VALUES)
    first, second = paths(world)
    target = second if where(world) == first else first
    world.stop()
    world.start()
    world.disk.unreadable = True
    assert ask_to_move(world, target, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


def moving_slowly(index_of_source: int) -> tuple[World, str, str]:
    """A world in which `orders` is on its way from one directory to the other."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
    world = World(seed=1, settings=settings, directories=2).start()
    source = paths(world)[index_of_source]
    target = paths(world)[1 - index_of_source]
    ask_to_move(world, source, 0)
    create_topic(world, segment_bytes="200000")
    fill(world, "orders", *[b"x" * 100_000] * 30)
    assert ask_to_move(world, target, 0) == [ErrorCode.NONE]
    world.advance(100)
    assert described(world, futures=True)
    return world, source, target


def test_a_target_that_fails_ends_the_move_and_nothing_else() -> None:
    world, source, target = moving_slowly(0)
    world.disk.failing = target
    world.advance(10_000_000)
    assert (where(world), described(world, futures=True)) == (source, [])
    fill(world, "orders", b"later")
    assert ask_to_move(world, target, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.node.log_moves.under_way == []


def test_a_source_that_fails_takes_its_log_offline_and_the_copy_is_not_taken_for_it() -> None:
    world, source, target = moving_slowly(1)
    world.disk.failing = source
    world.advance(10_000_000)
    (answer,) = produce(world, "orders", batch_of(world, b"later"))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert ask_to_move(world, target, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (world.node.log_moves.under_way, described(world)) == ([], [])
    world.kill()
    world.disk.failing = ""
    world.start()
    assert where(world) == source
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 30


def refused_once(world: World, words: str) -> None:
    """The disk refuses the next operation whose words have these in them."""
    left = [words]

    def refuses(what: str) -> bool:
        return bool(left) and left[0] in what and bool(left.pop())

    world.disk.refuses = refuses


def test_a_move_whose_directory_cannot_be_made_does_not_drop_a_later_one(world: World) -> None:
    create_topic(world)
    fill(world, "orders", *VALUES)
    first, second = paths(world)
    source, target = (first, second) if where(world) == first else (second, first)
    refused_once(world, "-future")
    # The job that makes the directory is not done before the last of these requests.
    moves, partition = world.node.log_moves, world.node.hosted.leader("orders", 0)
    directories = {each.path: each for each in world.node.logs.directories}
    moves.move(partition, directories[target])
    moves.move(partition, directories[source])
    moves.move(partition, directories[target])
    world.advance(10_000)
    assert where(world) == target
    assert names_on_disk(world) == [f"{target}/orders-0"]


def test_old_files_that_cannot_be_removed_keep_none_of_the_others(world: World) -> None:
    create_topic(world, partitions=4)
    for index in range(4):
        fill(world, "orders", *VALUES, index=index)
    first, second = paths(world)
    moved = [index for path, index, _ in described(world) if path == first]
    assert len(moved) > 1
    assert ask_to_move(world, second, *moved) == [ErrorCode.NONE] * len(moved)
    world.advance(900)
    assert {path for path, _, _ in described(world)} == {second}
    refused_once(world, "-delete")
    world.advance(10_000)
    assert len([name for name in names_on_disk(world) if name.endswith("-delete")]) == 1


def test_many_moves_wait_with_one_job_for_their_directories(world: World) -> None:
    create_topic(world, partitions=100)
    for index in range(100):
        fill(world, "orders", b"one", index=index)
    first, second = paths(world)
    moved = [index for path, index, _ in described(world) if path == first]
    assert len(moved) > 40
    jobs = 0
    blocking = world.node.loop.effects.blocking

    def counting(*arguments: Any) -> None:
        nonlocal jobs
        jobs += 1
        blocking(*arguments)

    partitions = [world.node.hosted.leader("orders", index) for index in moved]
    target = world.node.logs.directory_at(second)
    assert target is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.node.loop.effects, "blocking", counting)
        for partition in partitions:
            world.node.log_moves.move(partition, target)
    assert jobs == 1
    world.advance(60_000)
    assert {path for path, _, _ in described(world)} == {second}
    assert not [name for name in names_on_disk(world) if "future" in name]


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_of_requests_leaves_every_log_whole_and_in_one_place(seed: int) -> None:
    settings = {"log.segment.delete.delay.ms": "1000", "replica.alter.log.dirs.io.max.bytes.per.second": "3000"}
    world = World(seed=seed, settings=settings, directories=2).start()
    chance = random.Random(seed)
    create_topic(world, partitions=2, segment_bytes="500")
    written: list[bytes] = []
    first, second = paths(world)
    directories = [first, second, f"{first}/", "", "/", "nowhere", "/" + "x" * 5000, f"{first}/../data"]
    topics = ["orders", "other", "", "..", "a" * 249, "__consumer_offsets", "\u00e9\u0000"]
    for number in range(60):
        wanted: list[dict[str, Any]] = [
            {
                "path": chance.choice(directories[:2] if chance.random() < 0.6 else directories),
                "topics": [
                    {
                        "name": chance.choice(topics[:1] if chance.random() < 0.6 else topics),
                        "partitions": chance.choices([0, 1, -1, 2, 2**31 - 1, -(2**31)], k=chance.randrange(5)),
                    }
                    for _ in range(chance.randrange(4))
                ],
            }
            for _ in range(chance.randrange(4))
        ]
        answer = world.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, chance.choice([1, 2]), dirs=wanted)
        asked = sum(len(topic["partitions"]) for each in wanted for topic in each["topics"])
        assert sum(len(result.partitions) for result in answer.results) == asked
        match chance.randrange(8):
            case 0:
                delete_topic(world, "orders")
                create_topic(world, partitions=2, segment_bytes="500")
                written = []
            case 1:
                world.kill()
                world.start()
            case 2:
                world.advance(chance.randrange(3000))
        value = f"{number}".encode().ljust(200, b".")
        fill(world, "orders", value)
        written.append(value)
    world.advance(600_000)
    assert world.node.log_moves.under_way == []
    assert read_all(world) == written
    assert len([name for name in names_on_disk(world) if "orders-0" in name]) == 1
