"""Groups and positions side by side: commits by members, deletion by operators, expiry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.moments import at
from tests.unit.groups.stage import GROUP, Actor, Stage, form_group, subscription

from cordwood.groups.classic.group import State
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.classic.records import (
    StoredGroup,
    StoredMember,
    decode_group,
    decode_group_key,
    encode_group,
    encode_group_key,
)
from cordwood.groups.classic.subscription import subscribed_topics
from cordwood.groups.state.record_fields import UnreadableRecord
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 0)
REFUNDS = TopicPartition("refunds", 0)
DAY_MS = 86_400_000

names = st.text(max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)
members = st.builds(
    StoredMember,
    names,
    st.none() | names,
    names,
    names,
    st.integers(0, 2**31 - 1),
    ints,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
groups = st.builds(
    StoredGroup,
    names,
    ints,
    st.none() | names,
    st.none() | names,
    st.integers(-1, 2**62),
    st.lists(members, max_size=4).map(tuple),
)


@given(names, groups)
def test_a_group_reads_back_as_it_was_written(group_id: str, group: StoredGroup) -> None:
    assert decode_group_key(encode_group_key(group_id)) == group_id
    assert decode_group(encode_group(group)) == decode_group(bytes(encode_group(group))) == group


@given(groups, st.data())
def test_a_group_that_is_cut_short_is_said_to_be(group: StoredGroup, data: st.DataObject) -> None:
    value = encode_group(group)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(UnreadableRecord):
        decode_group(value[:cut])


def test_kafkas_flexible_version_of_a_group_is_read() -> None:
    member = b"\x02m\x00\x02c\x02h" + (5).to_bytes(4, "big") + (6).to_bytes(4, "big") + b"\x02s\x02a\x00"
    value = b"\x00\x04\x09consumer" + (7).to_bytes(4, "big") + b"\x06range\x02m" + (8).to_bytes(8, "big") + b"\x02"
    assert decode_group(value + member + b"\x00") == StoredGroup(
        "consumer", 7, "range", "m", 8, (StoredMember("m", None, "c", "h", 5, 6, b"s", b"a"),)
    )


@given(st.binary(max_size=40))
def test_what_members_tell_each_other_never_breaks_the_broker(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def member_of(stage: Stage, name: str = "a") -> Actor:
    actor = Actor(stage, name)
    form_group(actor)
    assert stage.state is State.STABLE
    return actor


def test_a_group_with_members_takes_commits_from_them_alone() -> None:
    stage = Stage()
    assert stage.commit(ORDERS, 1) is ErrorCode.NONE
    actor = member_of(stage)
    assert stage.commit(ORDERS, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(ORDERS, 2, "stranger", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert actor.commit(3) is ErrorCode.NONE
    assert stage.shard.positions.of_group(GROUP)[ORDERS].offset == 3


def test_a_member_of_a_group_without_members_is_unknown() -> None:
    stage = Stage()
    stage.commit(ORDERS, 1)
    assert stage.commit(ORDERS, 2, "stranger", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_not_there_has_no_members_and_takes_commits_from_whoever_is_none() -> None:
    stage = Stage()
    assert stage.commit(ORDERS, 1, "stranger", None, 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.commit(ORDERS, 1, "", None, 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not stage.log
    assert stage.commit(ORDERS, 1, "stranger", None, -1) is ErrorCode.NONE


def test_a_transaction_is_not_told_of_a_round_it_could_not_make_sense_of() -> None:
    stage = Stage()
    a = member_of(stage)
    Actor(stage, "b").join()
    a.ask_to_join()
    check = stage.shard.check_commit
    author = (a.member_id, None, a.generation)
    assert check(GROUP, *author, at(stage.now_ms)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert check(GROUP, *author, at(stage.now_ms), transactional=True) is ErrorCode.NONE
    assert check(GROUP, a.member_id, None, 1, at(stage.now_ms), transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, "", None, -1, at(stage.now_ms), transactional=True) is ErrorCode.NONE


def test_a_member_may_commit_until_the_round_is_complete_and_then_only_after_its_sync() -> None:
    stage = Stage()
    a = member_of(stage)
    b = Actor(stage, "b")
    b.join()
    assert a.commit(1) is ErrorCode.NONE
    a.ask_to_join()
    assert a.commit(2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_counts_as_a_heartbeat() -> None:
    stage = Stage()
    a = member_of(stage)
    for offset in range(5):
        stage.pass_time(a.session_ms - 1)
        assert a.commit(offset) is ErrorCode.NONE


def test_only_an_empty_group_can_be_deleted() -> None:
    stage = Stage()
    actor = member_of(stage)
    actor.commit(3)
    out = Outbox()
    assert stage.shard.delete("other", out) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.shard.delete(GROUP, out) is ErrorCode.NON_EMPTY_GROUP
    assert not out.records
    stage.leave((actor.member_id, None))
    assert stage.shard.delete(GROUP, out) is ErrorCode.NONE
    stage.settle(out)
    assert not stage.shard.exists(GROUP)
    stage.restart()
    assert not stage.shard.exists(GROUP)


def test_positions_of_topics_that_members_read_cannot_be_deleted() -> None:
    stage = Stage()
    stage.commit(REFUNDS, 9)
    actor = member_of(stage)
    actor.commit(3)
    out = Outbox()
    assert stage.shard.delete_positions(GROUP, [ORDERS, REFUNDS], out) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    stage.settle(out)
    assert list(stage.shard.positions.of_group(GROUP)) == [ORDERS]
    assert stage.shard.delete_positions("other", [ORDERS], Outbox()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_another_kind_keeps_all_positions_while_it_has_members() -> None:
    stage = Stage()
    stage.commit(ORDERS, 9)
    actor = Actor(stage, "a")
    actor.protocol_type = "connect"
    form_group(actor)
    assert stage.shard.delete_positions(GROUP, [ORDERS], Outbox()) is ErrorCode.NON_EMPTY_GROUP


def test_listing_names_every_group_once_with_its_state() -> None:
    stage = Stage()
    stage.commit(ORDERS, 1)
    assert stage.shard.group_ids() == [GROUP]
    assert stage.shard.listed(GROUP) == (GROUP, "", "Empty", "classic")
    member_of(stage)
    assert stage.shard.group_ids() == [GROUP]
    assert stage.shard.listed(GROUP) == (GROUP, "consumer", "Stable", "classic")


def expire(stage: Stage) -> None:
    out = Outbox()
    for group_id in stage.shard.group_ids():
        partitions = list(stage.shard.positions.of_group(group_id))
        out.records += stage.shard.expired(group_id, partitions, stage.now_ms, DAY_MS)
    stage.settle(out)


def test_positions_that_nobody_renews_expire_after_the_retention() -> None:
    stage = Stage()
    stage.commit(ORDERS, 1)
    stage.now_ms += DAY_MS - 1
    stage.commit(REFUNDS, 1)
    expire(stage)
    assert list(stage.shard.positions.of_group(GROUP)) == [ORDERS, REFUNDS]
    stage.now_ms += 1
    expire(stage)
    assert list(stage.shard.positions.of_group(GROUP)) == [REFUNDS]


def test_a_group_with_members_keeps_the_positions_of_what_it_reads() -> None:
    stage = Stage()
    stage.commit(REFUNDS, 9)
    actor = member_of(stage)
    actor.commit(3)
    stage.now_ms += DAY_MS
    expire(stage)
    assert list(stage.shard.positions.of_group(GROUP)) == [ORDERS]


def test_a_group_that_lost_its_members_keeps_positions_for_the_retention_from_then_on() -> None:
    stage = Stage()
    actor = member_of(stage)
    actor.commit(3)
    stage.now_ms += DAY_MS
    stage.leave((actor.member_id, None))
    expire(stage)
    assert stage.shard.positions.of_group(GROUP)
    stage.now_ms += DAY_MS
    expire(stage)
    assert not stage.shard.exists(GROUP), "with the last position the group itself goes"


def test_a_group_whose_subscriptions_cannot_be_read_might_read_anything() -> None:
    stage = Stage()
    stage.commit(ORDERS, 9)
    actor = Actor(stage, "a", protocols=(("range", b"?"),))
    form_group(actor)
    assert stage.shard.delete_positions(GROUP, [ORDERS], Outbox()) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert subscribed_topics(subscription("a", "b")) == frozenset({"a", "b"})


def watched(stage: Stage, group_id: str) -> dict[TopicPartition, int | None]:
    return dict(filter(None, stage.shard.watched_positions(group_id, lambda topic: 2)))


def test_what_members_read_and_never_committed_is_watched_without_a_position() -> None:
    stage = Stage()
    stage.commit(REFUNDS, 7)
    without_members: dict[TopicPartition, int | None] = {REFUNDS: 7, TopicPartition("refunds", 1): None}
    assert watched(stage, GROUP) == without_members
    actor = member_of(stage)
    other = TopicPartition("orders", 1)
    assert watched(stage, GROUP) == {ORDERS: None, other: None, **without_members}
    assert actor.commit(3) is ErrorCode.NONE
    assert watched(stage, GROUP) == {ORDERS: 3, other: None, **without_members}
    assert watched(stage, "nobody") == {}


def test_a_text_without_a_position_is_not_watched() -> None:
    stage = Stage()
    stage.commit(REFUNDS, -1)
    assert stage.shard.exists(GROUP)
    assert watched(stage, GROUP) == {}
    stage.commit(TopicPartition("refunds", 1), 7)
    assert watched(stage, GROUP) == {REFUNDS: None, TopicPartition("refunds", 1): 7}


@pytest.mark.parametrize("kind", [9, 10, 99])
def test_records_of_types_that_nobody_here_writes_are_passed_over(kind: int) -> None:
    """Share groups keep their records in the same topic, and a later Kafka may add other types."""
    stage = Stage()
    stage.shard.replay(kind.to_bytes(2) + b"\0\5group", b"anything")
    stage.shard.replay(kind.to_bytes(2) + b"\0\5group", None)
    assert stage.shard.group_ids() == []
