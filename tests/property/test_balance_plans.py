"""Plans of drains and rebalances over any cluster: complete, legal, and never worse than before."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.planner.balance import (
    REPLICA_WEIGHT,
    TOLERANCE,
    NoPlace,
    Placed,
    after_moves,
    loads_of,
    plan_drain,
    plan_rebalance,
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Placed], dict[int, str | None]]:
    brokers = draw(st.lists(st.integers(1, 30), min_size=1, max_size=8, unique=True))
    racks: dict[int, str | None] = {broker: draw(st.sampled_from(["a", "b", "c", None])) for broker in brokers}
    placed = []
    for number in range(draw(st.integers(0, 25))):
        replicas = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=min(3, len(brokers)), unique=True))
        size = draw(st.integers(0, 100)) * REPLICA_WEIGHT
        placed.append(Placed("t", number, tuple(replicas), size, draw(st.floats(0, 1000))))
    return placed, racks


def rack_count(replicas: tuple[int, ...], racks: dict[int, str | None]) -> int:
    return len({racks[broker] for broker in replicas})


@given(clusters(), st.data())
def test_a_drained_broker_has_nothing_left_and_nobody_has_a_partition_twice(
    cluster: tuple[list[Placed], dict[int, str | None]], data: st.DataObject
) -> None:
    placed, racks = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=2))
    try:
        moves = plan_drain(placed, racks, leaving)
    except NoPlace:
        assert any(len(each.replicas) > len(racks) - len(leaving) for each in placed)
        return
    for before, after in zip(placed, after_moves(placed, moves), strict=True):
        assert not leaving.intersection(after.replicas)
        assert len(set(after.replicas)) == len(before.replicas)
        # Whoever stays keeps its place: nothing is copied that need not be.
        assert all(b == a for b, a in zip(before.replicas, after.replicas, strict=True) if b not in leaving)


@given(clusters())
def test_a_rebalance_is_legal_and_leaves_the_brokers_no_more_uneven_than_before(
    cluster: tuple[list[Placed], dict[int, str | None]],
) -> None:
    placed, racks = cluster
    moves = plan_rebalance(placed, racks)
    after = after_moves(placed, moves)
    for old, new in zip(placed, after, strict=True):
        assert len(set(new.replicas)) == len(old.replicas)
        assert set(new.replicas) <= set(racks)
        assert rack_count(new.replicas, racks) >= rack_count(old.replicas, racks)
    if all(rack == racks[min(racks)] for rack in racks.values()):
        assert _spread(after, racks) <= max(_spread(placed, racks), _slack(placed, racks))


def _weights(placed: list[Placed], racks: dict[int, str | None]) -> list[int]:
    return [load.size_bytes + load.replicas * REPLICA_WEIGHT for load in loads_of(placed, racks).values()]


def _spread(placed: list[Placed], racks: dict[int, str | None]) -> int:
    weights = _weights(placed, racks)
    return max(weights) - min(weights)


def _slack(placed: list[Placed], racks: dict[int, str | None]) -> float:
    return max(TOLERANCE * sum(_weights(placed, racks)) / len(racks), REPLICA_WEIGHT)


def test_a_new_broker_gets_its_share_of_replicas_bytes_and_leaderships() -> None:
    placed = [Placed("t", number, (1 + number % 3, 1 + (number + 1) % 3), 10 * REPLICA_WEIGHT) for number in range(60)]
    racks: dict[int, str | None] = dict.fromkeys((1, 2, 3, 4))
    after = loads_of(after_moves(placed, plan_rebalance(placed, racks)), racks)
    assert all(27 <= load.replicas <= 33 for load in after.values())
    assert all(12 <= load.leads <= 18 for load in after.values())


def test_a_new_broker_in_a_rack_with_a_broker_takes_half_of_its_replicas() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "a"}
    placed = [Placed("orders", number, (1, 2, 3)) for number in range(50)]
    after = after_moves(placed, plan_rebalance(placed, racks))
    loads = loads_of(after, racks)
    # Broker 3, in another rack, has as many replicas as broker 1, and none that broker 4 may take.
    assert [loads[broker].replicas for broker in (2, 3)] == [50, 50]
    assert abs(loads[1].replicas - loads[4].replicas) <= TOLERANCE * 50
    assert all(rack_count(each.replicas, racks) == 3 for each in after)


def test_an_even_cluster_is_left_alone() -> None:
    placed = [Placed("t", number, (1 + number % 3, 1 + (number + 1) % 3), REPLICA_WEIGHT) for number in range(30)]
    assert plan_rebalance(placed, dict.fromkeys((1, 2, 3))) == []


def test_leaderships_alone_are_evened_out_without_copying() -> None:
    placed = [Placed("t", number, (1, 2, 3), REPLICA_WEIGHT) for number in range(9)]
    moves = plan_rebalance(placed, dict.fromkeys((1, 2, 3)))
    assert sum(move.size_bytes for move in moves) == 0
    leads = [load.leads for load in loads_of(after_moves(placed, moves), (1, 2, 3)).values()]
    assert sorted(leads) == [3, 3, 3]


def test_replicas_in_one_rack_are_spread_over_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    (move,) = plan_rebalance([Placed("t", 0, (1, 2), REPLICA_WEIGHT)], racks)
    assert rack_count(move.after, racks) == 2
