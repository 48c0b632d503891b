"""The division of a read into tasks."""

import random
from itertools import pairwise

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.options import TaskSizes
from cordwood.spark.source.planning import RECORDS_PER_TASK, OffsetRange, Task, plan_tasks, ranges_between

ANY_SIZE = TaskSizes()


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(tp(index), 100, 100 + size) for index, size in enumerate(sizes)]


def records(task: Task) -> int:
    return sum(found.size for found in task)


def offsets(tasks: list[Task]) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for task in tasks:
        for piece in task:
            found.setdefault(piece.partition, []).append((piece.start, piece.end))
    return found


def test_what_lies_between_two_positions() -> None:
    start = {tp(0): 5, tp(1): 7, tp(2): 9, tp(3): 4}
    end = {tp(0): 8, tp(1): 7, tp(2): 3, tp(4): 6, tp(5): 0}
    assert ranges_between(start, end) == [OffsetRange(tp(0), 5, 8), OffsetRange(tp(4), 0, 6, is_new=True)]


def test_nothing_to_read_is_no_task() -> None:
    assert plan_tasks([], ANY_SIZE, 4) == []
    assert plan_tasks(ranges(0, 0), ANY_SIZE, 4) == []


def test_a_little_is_one_task() -> None:
    assert plan_tasks(ranges(10, 20), ANY_SIZE, 8) == [tuple(ranges(10, 20))]


def test_one_large_partition_occupies_all_cores() -> None:
    tasks = plan_tasks(ranges(100_000), ANY_SIZE, 4)
    assert len(tasks) == 4
    assert all(20_000 < records(task) < 30_000 for task in tasks)


def test_a_thousand_small_partitions_are_packed_into_as_many_tasks_as_there_are_cores() -> None:
    tasks = plan_tasks(ranges(*[10] * 1000), ANY_SIZE, 4)
    assert len(tasks) == 4
    assert all(200 < len(task) < 300 for task in tasks)


def test_very_much_is_more_tasks_than_cores() -> None:
    tasks = plan_tasks(ranges(10 * RECORDS_PER_TASK), ANY_SIZE, 2)
    assert 10 <= len(tasks) <= 11


def test_small_pieces_are_not_cut_off() -> None:
    tasks = plan_tasks(ranges(50_000, 51_000), ANY_SIZE, 2)
    assert offsets(tasks) == {tp(0): [(100, 50_100)], tp(1): [(100, 51_100)]}


def test_a_wish_for_more_tasks_is_granted() -> None:
    assert len(plan_tasks(ranges(100), TaskSizes(min_tasks=10), 1)) == 10
    assert len(plan_tasks(ranges(40, 60), TaskSizes(min_tasks=10), 1)) == 10
    assert len(plan_tasks(ranges(3), TaskSizes(min_tasks=10), 1)) == 3
    assert len(plan_tasks(ranges(5_000_000), TaskSizes(min_tasks=2), 8)) == 8


def test_a_limit_on_records_holds_for_every_task() -> None:
    tasks = plan_tasks(ranges(95, 3, 700, 1), TaskSizes(max_records=10), 2)
    assert max(records(task) for task in tasks) <= 10
    assert len(tasks) == 80


@pytest.mark.parametrize("seed", range(50))
def test_every_offset_is_read_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    wanted = [
        OffsetRange(
            tp(index), start := chance.randrange(10**6), start + chance.choice([0, 1, 7, 999, 40_000, 3 * 10**6])
        )
        for index in range(chance.randrange(1, 40))
    ]
    sizes = TaskSizes(min_tasks=chance.choice([None, 1, 3, 50]), max_records=chance.choice([None, 1_000_000, 250_000]))
    cores = chance.choice([1, 2, 16])
    tasks = plan_tasks(wanted, sizes, cores)
    assert tasks == plan_tasks(wanted, sizes, cores)
    assert all(task for task in tasks)
    pieces = offsets(tasks)
    for found in wanted:
        of_partition = pieces.pop(found.partition, [])
        if found.size == 0:
            assert of_partition == []
            continue
        assert of_partition[0][0] == found.start
        assert of_partition[-1][1] == found.end
        assert all(start < end for start, end in of_partition)
        assert all(one[1] == next_one[0] for one, next_one in pairwise(of_partition))
    assert not pieces
    if sizes.max_records:
        assert max(map(records, tasks), default=0) <= sizes.max_records


WHOLE = TaskSizes(whole_partitions=True)


def test_partitions_that_stay_whole_are_shared_out_evenly() -> None:
    tasks = plan_tasks(ranges(*[50_000] * 4), WHOLE, cores=2)
    assert [len(task) for task in tasks] == [2, 2]


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_that_stays_whole_is_read_by_two_tasks(seed: int) -> None:
    chance = random.Random(seed)
    wanted = ranges(*(chance.randint(1, 3_000_000) for _ in range(chance.randint(1, 40))))
    tasks = plan_tasks(wanted, WHOLE, cores=chance.randint(1, 16))
    assert all(tasks), "no task without work"
    assert sorted(piece for task in tasks for piece in task) == wanted
    assert all(list(task) == sorted(task) for task in tasks)
