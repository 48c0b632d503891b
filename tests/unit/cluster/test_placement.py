"""New partitions are spread over brokers, and over racks where brokers have racks."""

from collections import Counter

import pytest

from cordwood.cluster.planner.placement import place


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_replicas_of_a_partition_are_in_different_racks(factor: int) -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place(list(racks), range(300), factor, 7, racks)
    for brokers in placed:
        assert len(set(brokers)) == len({racks[broker] for broker in brokers}) == factor
    led = Counter(brokers[0] for brokers in placed)
    assert max(led.values()) == min(led.values()) == 50


def test_more_replicas_than_racks_are_spread_as_far_as_racks_go() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b"}
    for brokers in place(list(racks), range(100), 3, 0, racks):
        assert len(set(brokers)) == 3
        assert 4 in brokers


def test_brokers_without_racks_are_placed_as_if_each_had_its_own() -> None:
    without = place([1, 2, 3], range(30), 2, 5)
    assert place([1, 2, 3], range(30), 2, 5, {1: None, 2: None, 3: None}) == without
    assert place([1, 2, 3], range(30), 2, 5, {1: "a", 2: "b", 3: "c"}) == without
