"""Plans of drains over any cluster: complete, legal, and no more is copied than has to be."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.planner.balance import REPLICA_WEIGHT, NoPlace, Placed, after_moves, plan_drain


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
