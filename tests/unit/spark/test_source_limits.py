"""The ends of micro-batches under limits."""

import random

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.limits import at_most_bytes, at_most_offsets, available


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_within_the_limit_everything_is_taken() -> None:
    start, latest = {tp(0): 0, tp(1): 5}, {tp(0): 3, tp(1): 5}
    assert available(start, latest) == {tp(0): 3}
    assert at_most_offsets(start, latest, 3) == latest


def test_a_limit_is_spread_in_proportion() -> None:
    start, latest = {tp(0): 0, tp(1): 100}, {tp(0): 900, tp(1): 200}
    end = at_most_offsets(start, latest, 100)
    assert end[tp(0)] + end[tp(1)] - 100 == 100
    assert 85 <= end[tp(0)] <= 92


def test_a_small_partition_beside_a_huge_one_moves_on() -> None:
    end = at_most_offsets({tp(0): 0, tp(1): 0}, {tp(0): 10**9, tp(1): 5}, 10)
    assert end == {tp(0): 9, tp(1): 1}


def test_more_partitions_than_the_limit_get_one_offset_each() -> None:
    start = {tp(index): 0 for index in range(5)}
    latest = {tp(index): 10 for index in range(5)}
    assert at_most_offsets(start, latest, 3) == {tp(index): 1 for index in range(5)}


@pytest.mark.parametrize("seed", range(30))
def test_a_limit_is_used_exactly(seed: int) -> None:
    chance = random.Random(seed)
    start = {tp(index): chance.randrange(1000) for index in range(chance.randrange(1, 20))}
    latest = {partition: position + chance.choice([0, 1, 5, 1000, 10**6]) for partition, position in start.items()}
    limit = chance.randrange(20, 5000)
    end = at_most_offsets(start, latest, limit)
    taken = {partition: end[partition] - start[partition] for partition in start}
    assert sum(taken.values()) == min(limit, sum(available(start, latest).values()))
    assert all(0 <= taken[partition] <= latest[partition] - start[partition] for partition in start)
    assert all(taken[partition] >= 1 for partition in available(start, latest))


def test_a_limit_in_bytes_goes_by_what_an_offset_takes() -> None:
    start, latest = {tp(0): 0, tp(1): 0}, {tp(0): 1000, tp(1): 1000}
    weights = {tp(0): 10.0, tp(1): 90.0}
    assert at_most_bytes(start, latest, 100_000, weights) == latest
    assert at_most_bytes(start, latest, 50_000, weights) == {tp(0): 500, tp(1): 500}
    assert at_most_bytes(start, latest, 1, weights) == {tp(0): 1, tp(1): 1}
