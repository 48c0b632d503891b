"""Committed positions: their records are Kafka's, and state comes only from replaying them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.groups.state.committed_positions import Commit, Positions, is_current
from cordwood.groups.state.offset_records import (
    Position,
    PositionKey,
    _decode_any_value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_prefixes,
)
from cordwood.groups.state.record_fields import UnreadableRecord
from cordwood.model.coordination import coordinating_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

ORDERS = TopicPartition("orders", 3)
FIRST, SECOND = TopicId(int=1), TopicId(int=2)
names = st.text(max_size=40)
longs = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("other", ["g", "group", "group-", "grou", "Group-1", ""])
def test_the_prefix_of_a_key_belongs_to_one_group(other: str) -> None:
    key = encode_key("group-1", TopicPartition("t", 3))
    old = b"\0\0" + key[2:]
    assert key.startswith(key_prefixes("group-1"))
    assert old.startswith(key_prefixes("group-1"))
    assert not key.startswith(key_prefixes(other))


@given(names, names, st.integers(0, 2**31 - 1))
def test_a_key_reads_back_as_it_was_written(group: str, topic: str, partition: int) -> None:
    key = PositionKey(group, TopicPartition(topic, partition))
    written = encode_key(*key)
    assert decode_key(written) == decode_key(bytes(written)) == key


@given(longs, st.integers(-1, 2**31 - 1), st.text(max_size=300), longs, st.uuids() | st.just(ZERO_TOPIC_ID))
def test_a_value_reads_back_as_it_was_written(
    offset: int, epoch: int, metadata: str, committed_ms: int, topic_id: TopicId
) -> None:
    position = Position(offset, epoch, metadata, committed_ms, topic_id=topic_id)
    assert decode_value(encode_value(position)) == decode_value(bytes(encode_value(position))) == position


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
        (
            bytes.fromhex("0004 0000000000000007 00000002 02 61 0000000000000009 01 00 10") + SECOND.bytes,
            Position(7, 2, "a", 9, topic_id=SECOND),
        ),
        (
            bytes.fromhex("0004 0000000000000007 00000002 01 0000000000000009 02 05 01 ff 00 10") + SECOND.bytes,
            Position(7, 2, "", 9, topic_id=SECOND),
        ),
    ],
)
def test_every_version_that_kafka_wrote_is_read(value: bytes, expected: Position) -> None:
    assert decode_value(value) == expected


def test_a_value_is_written_in_the_version_that_names_the_topic() -> None:
    written = encode_value(Position(7, 2, "a", 9, topic_id=SECOND))
    assert written == bytes.fromhex("0004 0000000000000007 00000002 02 61 0000000000000009 01 00 10") + SECOND.bytes


@pytest.mark.parametrize("value", ["0005", "ffff", "0004 0000000000000007 00000002 01 0000000000000009 01 00 02 aaaa"])
def test_a_value_that_nobody_writes_is_refused(value: str) -> None:
    with pytest.raises(UnreadableRecord):
        decode_value(bytes.fromhex(value))


def test_a_position_with_a_time_to_live_is_written_in_the_version_that_has_a_place_for_it() -> None:
    positions = Positions()
    commit = Commit(ORDERS, 7, 2, "a", FIRST, retention_ms=1000)
    ((key, value),) = positions.commit("g", [commit], metadata_max_bytes=9, wall_ms=99).records
    assert value == bytes.fromhex("0001 0000000000000007 0001 61 0000000000000063 000000000000044b")
    positions.replay(key, value)
    assert positions.of_group("g") == {ORDERS: Position(7, -1, "a", 99, 1099)}


def test_a_commit_changes_nothing_until_its_records_are_replayed() -> None:
    positions = Positions()
    outcome = positions.commit("g", [Commit(ORDERS, 7, 2, None, FIRST)], metadata_max_bytes=10, wall_ms=99)
    assert outcome.errors == [ErrorCode.NONE]
    assert positions.of_group("g") == {}
    for record in outcome.records:
        positions.replay(*record)
    assert positions.of_group("g") == {ORDERS: Position(7, 2, "", 99, topic_id=FIRST)}


def test_metadata_beyond_the_limit_is_refused_and_the_rest_of_the_commit_goes_on() -> None:
    commits = [Commit(ORDERS, 1, -1, "é" * 11, FIRST), Commit(TopicPartition("orders", 4), 2, -1, "é" * 10, FIRST)]
    outcome = Positions().commit("g", commits, metadata_max_bytes=10, wall_ms=0)
    assert outcome.errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE], "characters, as in Kafka"
    assert [decode_key(key).partition for key, _ in outcome.records] == [TopicPartition("orders", 4)]


def test_metadata_that_has_no_room_in_its_field_is_refused_whatever_the_limit() -> None:
    commits = [Commit(ORDERS, 1, -1, "é" * 16_383, FIRST), Commit(ORDERS, 1, -1, "é" * 16_384, FIRST)]
    outcome = Positions().commit("g", commits, metadata_max_bytes=32_767, wall_ms=0)
    assert outcome.errors == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def committed(*commits: Commit) -> Positions:
    positions = Positions()
    for record in positions.commit("g", commits, metadata_max_bytes=9, wall_ms=0).records:
        positions.replay(*record)
    return positions


@pytest.mark.parametrize("topic_id", [FIRST, ZERO_TOPIC_ID])
def test_positions_of_a_deleted_topic_go_with_it(topic_id: TopicId) -> None:
    other = TopicPartition("other", 0)
    positions = committed(Commit(ORDERS, 1, -1, "", topic_id), Commit(other, 2, -1, "", SECOND))
    for record in positions.of_deleted_topic("orders", FIRST):
        positions.replay(*record)
    assert list(positions.of_group("g")) == [other]


def test_positions_in_a_new_topic_of_the_same_name_stay() -> None:
    positions = committed(Commit(ORDERS, 1, -1, "", SECOND))
    assert positions.of_deleted_topic("orders", FIRST) == []


def test_positions_are_found_by_the_topic_that_they_say_they_are_in() -> None:
    other, third = TopicPartition("other", 0), TopicPartition("third", 0)
    positions = committed(
        Commit(ORDERS, 1, -1, "", FIRST), Commit(other, 2, -1, "", SECOND), Commit(third, 2, -1, "", ZERO_TOPIC_ID)
    )
    everywhere = list(positions.of_group("g"))
    assert [decode_key(key).partition for key, _ in positions.of_topics("g", everywhere, {FIRST})] == [ORDERS]
    assert [decode_key(key).partition for key, _ in positions.of_topics("g", everywhere, {SECOND, FIRST})] == [
        ORDERS,
        other,
    ]
    assert [positions.may_lack_id(topic) for topic in ("orders", "other", "third")] == [False, False, True]


@pytest.mark.parametrize(
    ("written", "now", "expected"),
    [(FIRST, FIRST, True), (FIRST, SECOND, False), (FIRST, None, False), (ZERO_TOPIC_ID, SECOND, True)],
)
def test_a_position_counts_in_the_topic_that_it_was_committed_in(
    written: TopicId, now: TopicId | None, expected: bool
) -> None:
    positions = committed(Commit(ORDERS, 1, -1, "", written))
    assert is_current(ORDERS, positions.of_group("g")[ORDERS], lambda topic: now) is expected


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("my-group", 36), ("console-consumer-1234", 9), ("grüße", 23), ("𝄞clef", 28)]
)
def test_groups_live_where_every_kafka_tool_looks_for_them(group: str, partition: int) -> None:
    """The partitions were computed by a JVM with (hashCode() & 0x7fffffff) % 50."""
    assert coordinating_partition(group, 50) == partition


@given(st.text(max_size=140), st.uuids() | st.just(ZERO_TOPIC_ID), longs, st.data())
def test_the_quick_way_to_read_a_value_is_the_slow_one(
    metadata: str, topic_id: TopicId, offset: int, data: st.DataObject
) -> None:
    value = bytearray(encode_value(Position(offset, 5, metadata, 9, topic_id=topic_id)))
    if data.draw(st.booleans()):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del value[data.draw(st.integers(0, len(value))) :]
    try:
        slow: Position | None = _decode_any_value(bytes(value))
    except UnreadableRecord:
        slow = None
    try:
        quick: Position | None = decode_value(bytes(value))
    except UnreadableRecord:
        quick = None
    assert quick == slow
