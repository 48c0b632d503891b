"""Topics with one replica, where the cluster could keep more."""

import pytest

from cordwood.administration.cluster.lone_replicas import LoneTopics, fewest_of_each, lone_topics
from cordwood.administration.doctor.judgement import State, judge_replicas


@pytest.mark.parametrize(
    ("brokers", "most", "replicas"), [(1, 9, None), (2, 9, 2), (3, 9, 3), (5, 9, 3), (4, 1, None), (4, 2, 2)]
)
def test_one_replica_is_too_few_where_more_are_allowed_and_have_a_place(
    brokers: int, most: int, replicas: int | None
) -> None:
    found = lone_topics({"a": 1, "b": 3}, brokers, most)
    assert found == (None if replicas is None else LoneTopics(("a",), brokers, replicas))


def test_a_topic_counts_by_its_partition_with_the_fewest_replicas() -> None:
    assert fewest_of_each([("a", 3), ("a", 1), ("b", 2), ("b", 3)]) == {"a": 1, "b": 2}
    assert lone_topics({"b": 2}, 3, 9) is None


def test_many_topics_are_told_in_one_line_with_one_command() -> None:
    found = lone_topics({f"t{number}": 1 for number in range(9)}, 3, 9)
    assert found is not None
    (finding,) = judge_replicas(found)
    assert finding.state is State.WARNING
    assert "9 topics have one replica" in finding.words
    assert "t0, t1, t2, t3, t4 and 4 more" in finding.words
    assert "t5" not in finding.words
    assert "`cordwood cluster reassign --all --replication-factor 3`" in finding.remedy
    one = lone_topics({"t": 1}, 2, 9)
    assert one is not None
    assert one.command == "cordwood cluster reassign t --replication-factor 2"
