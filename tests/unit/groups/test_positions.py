"""Committed positions: their records are Kafka's, and state comes only from replaying them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.groups.offset_records import (
    Position,
    PositionKey,
    UnreadableRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from cordwood.groups.positions import Commit, Positions
from cordwood.model.coordination import coordinating_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 3)
names = st.text(max_size=40)
longs = st.integers(-(2**63), 2**63 - 1)


@given(names, names, st.integers(0, 2**31 - 1))
def test_a_key_reads_back_as_it_was_written(group: str, topic: str, partition: int) -> None:
    key = PositionKey(group, TopicPartition(topic, partition))
    assert decode_key(encode_key(key)) == key


@given(longs, st.integers(-1, 2**31 - 1), names, longs)
def test_a_value_reads_back_as_it_was_written(offset: int, epoch: int, metadata: str, committed_ms: int) -> None:
    position = Position(offset, epoch, metadata, committed_ms)
    assert decode_value(encode_value(position)) == position


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except UnreadableRecord:
            continue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bytes.fromhex("0000 0000000000000007 0001 61 0000000000000009"), Position(7, -1, "a", 9)),
        (bytes.fromhex("0001 0000000000000007 0000 0000000000000009 000000000000000a"), Position(7, -1, "", 9, 10)),
        (bytes.fromhex("0003 0000000000000007 00000002 0001 61 0000000000000009"), Position(7, 2, "a", 9)),
        (bytes.fromhex("0004 0000000000000007 00000002 02 61 0000000000000009 00"), Position(7, 2, "a", 9)),
    ],
)
def test_every_version_that_kafka_wrote_is_read(value: bytes, expected: Position) -> None:
    assert decode_value(value) == expected


def test_a_commit_changes_nothing_until_its_records_are_replayed() -> None:
    positions = Positions()
    outcome = positions.commit("g", [Commit(ORDERS, 7, 2, None)], metadata_max_bytes=10, now_ms=99)
    assert outcome.errors == [ErrorCode.NONE]
    assert positions.of_group("g") == {}
    for record in outcome.records:
        positions.replay(*record)
    assert positions.of_group("g") == {ORDERS: Position(7, 2, "", 99)}


def test_metadata_beyond_the_limit_is_refused_and_the_rest_of_the_commit_goes_on() -> None:
    commits = [Commit(ORDERS, 1, -1, "é" * 6), Commit(TopicPartition("orders", 4), 2, -1, "é" * 5)]
    outcome = Positions().commit("g", commits, metadata_max_bytes=10, now_ms=0)
    assert outcome.errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert [decode_key(key).partition for key, _ in outcome.records] == [TopicPartition("orders", 4)]


def test_positions_of_a_deleted_topic_go_with_it() -> None:
    positions = Positions()
    other = TopicPartition("other", 0)
    commits = [Commit(ORDERS, 1, -1, ""), Commit(other, 2, -1, "")]
    for record in positions.commit("g", commits, metadata_max_bytes=9, now_ms=0).records:
        positions.replay(*record)
    for record in positions.of_deleted_topic("orders"):
        positions.replay(*record)
    assert list(positions.of_group("g")) == [other]


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("my-group", 36), ("console-consumer-1234", 9), ("grüße", 23), ("𝄞clef", 28)]
)
def test_groups_live_where_every_kafka_tool_looks_for_them(group: str, partition: int) -> None:
    """The partitions were computed by a JVM with (hashCode() & 0x7fffffff) % 50."""
    assert coordinating_partition(group, 50) == partition
