"""Positions and their text."""

import json

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.offsets import (
    beginning_in,
    from_spark,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    to_spark,
    with_beginning,
)


def test_the_text_is_that_of_sparks_kafka_source_in_one_order() -> None:
    positions = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_spark(positions)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert from_spark(json.loads('{"b":{"10":1,"9":2},"a":{"0":3}}')) == positions


def test_the_end_of_the_first_batch_says_where_the_query_began() -> None:
    began, end = {TopicPartition("a", 0): 3}, {TopicPartition("a", 0): 8, TopicPartition("b", 0): 0}
    offset = with_beginning(began, end)
    assert json.dumps(offset) == '{"a": {"00": 3, "0": 8}, "b": {"0": 0}}'
    assert from_spark(offset) == end
    assert beginning_in(offset) == began
    assert beginning_in(to_spark(end)) == {}


def test_the_beginning_of_every_partition_is_told_from_its_end() -> None:
    began = {TopicPartition("a", partition): partition for partition in (0, 1, 10, 100)}
    end = {partition: position + 1_000 for partition, position in began.items()}
    offset = json.loads(json.dumps(with_beginning(began, end)))
    assert (beginning_in(offset), from_spark(offset)) == (began, end)


def test_checkpoints_of_older_versions_say_where_the_query_began_in_their_own_way() -> None:
    offset = {"a": {"0": 8}, "a began at": {"0": 3}}
    assert from_spark(offset) == {TopicPartition("a", 0): 8}
    assert beginning_in(offset) == {TopicPartition("a", 0): 3}


def test_nothing_has_a_text_too() -> None:
    assert to_spark({}) == {}
    assert from_spark({}) == {}


@pytest.mark.parametrize("offset", [{"a": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": -1}}, {"a": {"-1": 1}}])
def test_a_checkpoint_of_something_else_is_refused(offset: dict[str, dict[str, int]]) -> None:
    with pytest.raises(ValueError):
        from_spark(offset)


def test_options_may_say_earliest_and_latest() -> None:
    assert parse_offsets('{"a": {"0": -2, "1": -1, "2": 7}}') == {
        TopicPartition("a", 0): -2,
        TopicPartition("a", 1): -1,
        TopicPartition("a", 2): 7,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "expected JSON as"),
        ("{", "not JSON"),
        ('{"a": [0]}', "expected partitions with their values for topic a"),
        ('{"a": {"0": 1.5}}', "expected a whole number for a-0"),
        ('{"a": {"0": true}}', "expected a whole number for a-0"),
        ('{"a": {"0": -3}}', "-3 is not an offset of a-0"),
        ('{"a": {"one": 3}}', "'one' is not a partition number of topic a"),
    ],
)
def test_offsets_that_are_none_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_offsets(text)


def test_times_are_milliseconds() -> None:
    assert parse_timestamps('{"a": {"0": 1000}}') == {TopicPartition("a", 0): 1000}
    with pytest.raises(ValueError, match="-1 is not a time"):
        parse_timestamps('{"a": {"0": -1}}')


def test_partitions_to_assign() -> None:
    assert parse_partitions('{"a": [0, 2], "b": [1]}') == {
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    }


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 1}', '{"a": [-1]}', '{"a": [true]}', "orders"])
def test_partitions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_partitions(text)
