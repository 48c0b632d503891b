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


def test_a_partition_is_placed_without_a_look_at_all_brokers() -> None:
    class CountedRacks(dict[int, str | None]):
        looks = 0

        def get(self, key: int, default: object = None) -> str | None:
            self.looks += 1
            return self[key]

    racks = CountedRacks({broker: f"rack-{broker // 10}" for broker in range(100)})
    placed = place(list(racks), range(1000), 3, 0, racks)
    assert all(len({broker // 10 for broker in brokers}) == 3 for brokers in placed)
    assert racks.looks < 15 * len(placed)


@pytest.mark.parametrize(("sizes", "most"), [((10,) * 10, 1.2), ((3, 3, 3), 1.2), ((4, 5, 6), 1.7)])
def test_brokers_of_a_rack_get_even_shares_of_the_replicas(sizes: tuple[int, ...], most: float) -> None:
    named = [f"rack-{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    racks: dict[int, str | None] = dict(enumerate(named))
    topics = [place(list(racks), range(50), 3, 77 * seed, racks) for seed in range(200)]
    held = Counter(broker for placed in topics for brokers in placed for broker in brokers)
    for rack in set(named):
        shares = [held[broker] for broker in racks if racks[broker] == rack]
        assert max(shares) < most * min(shares)
