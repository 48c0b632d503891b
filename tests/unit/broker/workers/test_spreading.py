"""Which partitions move when the number of workers changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.workers.spreading import plan_moves
from cordwood.model.identifiers import TopicPartition

placements = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 5)), max_size=20).map(
    lambda rows: {
        TopicPartition(topic, sum(other == topic for other, _ in rows[:place])): broker
        for place, (topic, broker) in enumerate(rows)
    }
)


@given(placements, st.integers(1, 6))
def test_each_topic_and_all_topics_together_are_spread_evenly(placed: dict[TopicPartition, int], count: int) -> None:
    workers = range(1, count + 1)
    after = placed | plan_moves(placed, workers)
    assert set(after.values()) <= set(workers)
    for parts in (after, *({p: b for p, b in after.items() if p.topic == topic} for topic in "abcde")):
        loads = Counter(parts.values())
        sizes = [loads[worker] for worker in workers]
        assert max(sizes) - min(sizes) <= 1


@given(placements, st.integers(1, 6))
def test_nothing_moves_that_is_spread_already(placed: dict[TopicPartition, int], count: int) -> None:
    workers = range(1, count + 1)
    after = placed | plan_moves(placed, workers)
    moves = plan_moves(placed, workers)
    assert all(placed[partition] != worker for partition, worker in moves.items())
    assert plan_moves(after, workers) == {}


def test_one_partition_of_three_stays_when_two_workers_come() -> None:
    placed = {TopicPartition("t", number): 1 for number in range(3)}
    assert plan_moves(placed, [1, 2, 3]) == {TopicPartition("t", 1): 2, TopicPartition("t", 2): 3}


def test_topics_with_one_partition_each_are_spread_over_the_workers() -> None:
    placed = {TopicPartition(f"t{number}", 0): 1 for number in range(10)}
    after = placed | plan_moves(placed, [1, 2])
    assert Counter(after.values()) == {1: 5, 2: 5}


def test_all_partitions_come_back_to_one_broker() -> None:
    placed = {TopicPartition("t", number): number % 3 + 1 for number in range(7)}
    assert set((placed | plan_moves(placed, [1])).values()) == {1}
