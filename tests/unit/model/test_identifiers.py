"""Names of topics and partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicPartition, check_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_a_name_that_kafka_takes_is_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "cannot be"),
        ("..", "cannot be"),
        ("x" * 250, "longer than 249"),
        ("a b", "other than"),
        ("a/b", "other than"),
        ("naïve", "other than"),
        ("a\n", "other than"),
    ],
)
def test_a_name_that_kafka_refuses_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_a_partitions_directory_leads_back_to_it(topic: str, partition: int) -> None:
    named = TopicPartition(topic, partition)
    assert TopicPartition.parse(str(named)) == named


@pytest.mark.parametrize("name", ["topic", "-1", "topic-", "topic-x", "topic-1.deleted", ""])
def test_what_is_not_the_directory_of_a_partition_is_not_taken_for_one(name: str) -> None:
    with pytest.raises(ValueError, match="not the directory"):
        TopicPartition.parse(name)
