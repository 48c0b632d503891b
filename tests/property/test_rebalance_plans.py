"""Plans of rebalances over any cluster: legal, even, never a reason for the next plan, and never worse than before."""

import random
from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.planner.balance import Placed, PlannedMove, after_moves, loads_of, rack_names
from cordwood.cluster.planner.rebalancing.plan import (
    FEWEST_BYTES,
    FULL,
    NOISE_OF_BYTES,
    NOISE_OF_TRAFFIC,
    plan_rebalance,
)

MIB = 1 << 20
Racks = dict[int, str | None]
Cluster = tuple[list[Placed], Racks]


@st.composite
def clusters(
    draw: st.DrawFn, *, racks: bool = True, replicas: int | None = None, size_bytes: int | None = None
) -> Cluster:
    brokers = draw(st.lists(st.integers(1, 30), min_size=1, max_size=7, unique=True))
    rack = st.sampled_from(["a", "b", "c", None]) if racks else st.none()
    names: Racks = {broker: draw(rack) for broker in brokers}
    placed = []
    for topic in range(draw(st.integers(0, 4))):
        factor = draw(st.integers(1, min(3, len(brokers)))) if replicas is None else min(replicas, len(brokers))
        for number in range(draw(st.integers(1, 12))):
            ids = draw(st.permutations(brokers))[:factor]
            size = draw(st.integers(0, 100)) * MIB if size_bytes is None else size_bytes
            traffic = draw(st.sampled_from([0.0, 1.0, 1e5, 1e6, 7e6]))
            placed.append(Placed(f"t{topic}", number, tuple(ids), size, traffic))
    return placed, names


def carried_out(placed: Iterable[Placed], racks: Racks) -> list[Placed]:
    placed = list(placed)
    return after_moves(placed, plan_rebalance(placed, racks))


def rack_count(each: Placed, racks: Mapping[int, str | None]) -> int:
    return len(set(map(rack_names(racks), each.replicas)))


def spread(values: Iterable[float]) -> float:
    found = list(values)
    return max(found) - min(found)


def spreads_of_topics(placed: list[Placed], racks: Racks) -> list[tuple[float, float]]:
    """By how much brokers differ in the replicas and in the leaderships of each topic, and of all."""
    topics = [[each for each in placed if each.topic == name] for name in sorted({each.topic for each in placed})]
    loads = [loads_of(topic, racks).values() for topic in (*topics, placed)]
    return [(spread(load.replicas for load in each), spread(load.leads for load in each)) for each in loads]


@given(clusters())
def test_a_rebalance_is_legal_and_keeps_racks(cluster: Cluster) -> None:
    placed, racks = cluster
    for old, new in zip(placed, carried_out(placed, racks), strict=True):
        assert len(set(new.replicas)) == len(old.replicas)
        assert set(new.replicas) <= set(racks)
        assert rack_count(new, racks) == min(len(old.replicas), len(set(map(rack_names(racks), racks))))


@given(clusters())
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(cluster: Cluster) -> None:
    placed, racks = cluster
    assert plan_rebalance(carried_out(placed, racks), racks) == []


@given(clusters(), st.data())
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan_when_measurements_vary(
    cluster: Cluster, data: st.DataObject
) -> None:
    placed, racks = cluster
    if not plan_rebalance(placed, racks):
        return
    sizes = st.floats(1 - NOISE_OF_BYTES + 1e-6, 1 + NOISE_OF_BYTES - 1e-6)
    rates = st.floats(1 - NOISE_OF_TRAFFIC + 1e-6, 1 + NOISE_OF_TRAFFIC - 1e-6)
    varied = [
        each._replace(size_bytes=int(each.size_bytes * data.draw(sizes)), traffic=each.traffic * data.draw(rates))
        for each in carried_out(placed, racks)
    ]
    assert plan_rebalance(varied, racks) == []


@given(clusters(racks=False, size_bytes=MIB // 2))
def test_replicas_of_each_topic_and_of_all_differ_by_one_at_most(cluster: Cluster) -> None:
    placed, racks = cluster
    assert all(replicas <= 1 for replicas, _ in spreads_of_topics(carried_out(placed, racks), racks))


@given(clusters(racks=False, replicas=3, size_bytes=MIB // 2))
def test_leaderships_of_each_topic_and_of_all_differ_by_one_at_most(cluster: Cluster) -> None:
    placed, racks = cluster
    assert all(leads <= 1 for _, leads in spreads_of_topics(carried_out(placed, racks), racks))


@given(clusters())
def test_no_measure_gets_worse_for_the_sake_of_one_below_it(cluster: Cluster) -> None:
    placed, racks = cluster
    if any(rack_count(each, racks) < len(each.replicas) for each in placed):
        # Racks are above all.
        return
    before, after = loads_of(placed, racks), loads_of(carried_out(placed, racks), racks)
    for topic in {each.topic for each in placed}:
        old, new = (
            [load.replicas for load in loads_of((each for each in all_ if each.topic == topic), racks).values()]
            for all_ in (placed, carried_out(placed, racks))
        )
        assert sum(count**2 for count in new) <= sum(count**2 for count in old)
    sizes = [load.size_bytes for load in before.values()]
    slack = len(placed) * FEWEST_BYTES
    allowed = max(*sizes, FULL * sum(sizes) / len(sizes)) + slack if len(sizes) > 1 else max(sizes)
    assert max(load.size_bytes for load in after.values()) <= allowed


def test_a_new_broker_gets_its_share_of_replicas_bytes_and_leaderships() -> None:
    placed = [Placed("t", number, (1 + number % 3, 1 + (number + 1) % 3), 10 * MIB) for number in range(60)]
    racks: Racks = dict.fromkeys((1, 2, 3, 4))
    moves = plan_rebalance(placed, racks)
    after = loads_of(after_moves(placed, moves), racks)
    assert [load.replicas for load in after.values()] == [30, 30, 30, 30]
    assert [load.leads for load in after.values()] == [15, 15, 15, 15]
    assert sum(move.size_bytes for move in moves) == 30 * 10 * MIB, "no more is copied than the new broker gets"


def busy_cluster() -> list[Placed]:
    """A busy topic beside the idle partitions of groups, on the first three brokers."""
    idle = [Placed("__consumer_offsets", number, _three(number), 0) for number in range(50)]
    busy = [Placed("orders", number, _three(number), 20 * MIB, 2e6) for number in range(6)]
    return [*idle, *busy]


def _three(number: int) -> tuple[int, int, int]:
    return 1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3


def test_a_busy_topic_is_spread_and_idle_leaderships_do_not_gather_on_one_broker() -> None:
    racks: Racks = dict.fromkeys((1, 2, 3, 4))
    for traffic in (0.0, 2e6):
        placed = [each._replace(traffic=traffic if each.topic == "orders" else 0.0) for each in busy_cluster()]
        after = carried_out(placed, racks)
        assert sorted(load.leads for load in loads_of(after, racks).values()) == [14, 14, 14, 14]
        orders = [each for each in after if each.topic == "orders"]
        assert sorted(load.leads for load in loads_of(orders, racks).values()) == [1, 1, 2, 2]
        assert sorted(load.replicas for load in loads_of(orders, racks).values()) == [4, 4, 5, 5]
        assert plan_rebalance(after, racks) == []


def test_traffic_is_evened_out_between_leaderships_without_copying() -> None:
    # The busy partitions are the even ones, and broker 1 leads them all: as many as broker 2.
    placed = [Placed("t", n, (1, 2) if n % 2 == 0 else (2, 1), MIB, 1e6 if n % 2 == 0 else 0.0) for n in range(8)]
    racks: Racks = {1: None, 2: None}
    moves = plan_rebalance(placed, racks)
    after = loads_of(after_moves(placed, moves), racks)
    assert [(load.leads, load.traffic) for load in after.values()] == [(4, 2e6), (4, 2e6)]
    assert sum(move.size_bytes for move in moves) == 0


def test_large_partitions_are_exchanged_for_small_ones_where_counts_are_even() -> None:
    placed = [Placed("t", n, (1,) if n % 2 == 0 else (2,), 100 * MIB if n % 2 == 0 else MIB) for n in range(8)]
    racks: Racks = {1: None, 2: None}
    after = loads_of(carried_out(placed, racks), racks)
    assert [(load.replicas, load.size_bytes // MIB) for load in after.values()] == [(4, 202), (4, 202)]


def test_a_small_difference_of_bytes_or_traffic_is_left_alone() -> None:
    placed = [Placed("t", n, (1 + n % 2,), (110 if n % 2 else 90) * MIB, 1.2e6 if n % 2 else 0.8e6) for n in range(20)]
    assert plan_rebalance(placed, {1: None, 2: None}) == []


def test_a_new_broker_in_a_rack_with_a_broker_takes_half_of_its_replicas() -> None:
    racks: Racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    placed = [Placed("orders", number, (1, 2, 3)) for number in range(50)]
    after = carried_out(placed, racks)
    # Brokers 2 and 3, in other racks, have no replicas that broker 4 may take.
    assert [load.replicas for load in loads_of(after, racks).values()] == [25, 50, 50, 25]
    assert all(rack_count(each, racks) == 3 for each in after)


def test_an_even_cluster_is_left_alone() -> None:
    placed = [Placed("t", number, (1 + number % 3, 1 + (number + 1) % 3), MIB) for number in range(30)]
    assert plan_rebalance(placed, dict.fromkeys((1, 2, 3))) == []


def test_leaderships_alone_are_evened_out_without_copying() -> None:
    placed = [Placed("t", number, (1, 2, 3), MIB) for number in range(9)]
    moves = plan_rebalance(placed, dict.fromkeys((1, 2, 3)))
    assert sum(move.size_bytes for move in moves) == 0
    assert [load.leads for load in loads_of(after_moves(placed, moves), (1, 2, 3)).values()] == [3, 3, 3]


def test_replicas_in_one_rack_are_spread_over_racks() -> None:
    racks: Racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    (move,) = plan_rebalance([Placed("t", 0, (1, 2), MIB)], racks)
    assert rack_count(Placed("t", 0, move.after), racks) == 2


def test_replicas_of_brokers_that_are_away_stay_where_they_are() -> None:
    placed = [Placed("t", number, (1, 9) if number % 2 else (9, 1), MIB) for number in range(8)]
    moves: list[PlannedMove] = plan_rebalance(placed, {1: None, 2: None})
    assert moves
    assert all(9 in move.after for move in moves)


def test_a_partition_without_replicas_is_left_alone() -> None:
    racks: Racks = {1: None, 2: None}
    placed = [Placed("t", number, (1,), MIB) for number in range(4)]
    moves = plan_rebalance([*placed, Placed("t", 4, ())], racks)
    assert moves == plan_rebalance(placed, racks) != []


def test_thousands_of_partitions_are_planned_in_seconds() -> None:
    generator = random.Random(1)
    placed = [
        Placed(f"t{n // 40}", n % 40, tuple(generator.sample(range(1, 10), 3)), generator.randrange(1 << 30), 1e5)
        for n in range(4000)
    ]
    racks: Racks = dict.fromkeys(range(1, 11))
    after = carried_out(placed, racks)
    assert all(replicas <= 1 and leads <= 1 for replicas, leads in spreads_of_topics(after, racks))
    assert plan_rebalance(after, racks) == []
