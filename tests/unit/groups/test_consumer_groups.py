"""The consumer protocol: epochs, targets, steps from one to the other, and fencing."""

import random
import uuid

import pytest
from tests.moments import at
from tests.unit.groups.consumer_stage import (
    GROUP,
    LIMITS,
    ORDERS,
    REBALANCE_MS,
    REFUNDS,
    SESSION_MS,
    Member,
    Stage,
    partitions_of,
    settle,
    sizes,
)
from tests.unit.groups.stage import LIMITS as CLASSIC_LIMITS

from cordwood.groups.classic.group import NEVER_MS
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.group import REPEATS, ConsumerGroupState
from cordwood.groups.consumer.heartbeat import HeartbeatAnswer
from cordwood.groups.consumer.member import MemberState
from cordwood.groups.consumer.partition_sets import NOTHING, Share, by_topic_id
from cordwood.groups.consumer.records import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    encode_consumer_key,
    encode_current,
    encode_profile,
)
from cordwood.groups.consumer.topics import TopicShape
from cordwood.groups.state.committed_positions import Commit
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, TopicPartition

DAY_MS = 86_400_000


def test_the_first_member_gets_everything_at_once() -> None:
    a = Member(Stage(), "a", "orders", "refunds")
    a.beat()
    assert len(a.owned) == 8
    assert a.stage.state is ConsumerGroupState.STABLE


def test_an_answer_repeats_no_assignment_that_did_not_change() -> None:
    a = Member(Stage(), "a")
    a.beat()
    assert a.beat() == HeartbeatAnswer(1, None)
    assert len(a.stage.log) == len({key for key, _ in a.stage.log}), "a quiet heartbeat writes nothing"


def test_a_second_member_gets_its_share_when_the_first_has_given_it_back() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    b.beat()
    assert sizes(a, b) == [6, 0]
    assert stage.state.value == "Reconciling"
    a.beat()
    assert len(a.owned) == 3
    b.beat()
    assert not b.owned, "a has not said yet that it gave anything back"
    a.beat()
    b.beat()
    assert sizes(a, b) == [3, 3]
    assert a.owned.isdisjoint(b.owned)
    assert stage.state is ConsumerGroupState.STABLE


def test_a_member_that_leaves_gives_everything_to_the_rest() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    assert b.send(-1).epoch == -1
    a.beat()
    assert len(a.owned) == 6
    assert b.refused() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_not_heard_of_is_taken_out() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    stage.pass_time(SESSION_MS - 1)
    a.beat()
    stage.pass_time(1)
    assert b.refused() is ErrorCode.UNKNOWN_MEMBER_ID
    a.beat()
    assert len(a.owned) == 6


def test_a_member_that_could_not_be_taken_out_is_tried_again() -> None:
    """The disk was full at the member's deadline, so the log did not take the records that remove it."""
    stage = Stage()
    Member(stage, "a").beat()
    stage.now_ms += SESSION_MS
    stage.group_time_passed(Outbox())
    stage.shard.not_written(GROUP, Outbox(), at(stage.now_ms), CLASSIC_LIMITS)
    assert stage.group.members
    stage.pass_time(SESSION_MS)
    assert not stage.group.members


def test_a_member_that_gives_nothing_back_within_its_rebalance_timeout_is_taken_out() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    b.beat()
    everything = a.owned
    for _ in range(REBALANCE_MS // (SESSION_MS // 2)):
        a.beat()
        a.owned = everything
        stage.pass_time(SESSION_MS // 2)
        b.beat()
    assert a.name not in stage.group.members
    assert len(b.owned) == 6


def test_each_time_a_member_is_asked_for_something_it_has_its_whole_rebalance_timeout() -> None:
    stage = Stage()
    a, b, c = Member(stage, "a"), Member(stage, "b"), Member(stage, "c")
    a.beat()
    b.beat()

    def take_long() -> None:
        """All members send heartbeats, and `a` gives nothing back."""
        for _ in range(REBALANCE_MS // SESSION_MS * 2 - 2):
            a.send()
            b.beat()
            if c.epoch:
                c.beat()
            stage.pass_time(SESSION_MS // 2)

    asked_first = a.send().assignment
    assert asked_first is not None
    assert len(asked_first) == 3
    take_long()
    c.beat()
    a.owned = asked_first
    asked_next = a.send().assignment
    assert asked_next is not None
    assert len(asked_next) == 2
    take_long()
    assert a.name in stage.group.members
    a.owned = asked_next
    settle(a, b, c)
    assert sizes(a, b, c) == [2, 2, 2]


def test_a_member_with_another_epoch_is_fenced() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    assert a.refused(epoch=7) is ErrorCode.FENCED_MEMBER_EPOCH
    assert Member(stage, "nobody").refused(epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_may_repeat_its_epoch() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    b.send(-1)
    a.send()
    answer = a.send()
    assert answer.epoch == 3
    assert stage.group.current("a").epoch == 3


@pytest.mark.parametrize("quiet", [True, False], ids=["says nothing", "says what it owns"])
def test_a_member_that_did_not_hear_what_to_give_back_is_told_again(quiet: bool) -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    a.beat()
    b.beat()
    a.send(quiet=quiet)  # the answer is lost
    a.beat(quiet=quiet)
    assert len(a.owned) == 3
    settle(a, b)
    assert sizes(a, b) == [3, 3]


@pytest.mark.parametrize("quiet", [True, False], ids=["says nothing", "says what it owns"])
def test_a_member_that_did_not_hear_of_partitions_that_became_free_is_told_again(quiet: bool) -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    b.beat()
    a.beat()
    b.beat()
    a.beat()
    b.send(quiet=quiet)  # the answer is lost
    b.beat(quiet=quiet)
    assert sizes(a, b) == [3, 3]


def test_a_new_coordinator_tells_members_again_and_then_is_quiet() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    a.beat()
    assert a.beat(quiet=True).assignment is None
    stage.restart()
    told = [a.beat(quiet=True).assignment for _ in range(REPEATS + 1)]
    assert told == [a.owned] * REPEATS + [None]
    stage.restart()
    a.beat()
    assert a.beat(quiet=True).assignment is None, "the member said what it owns"


def test_a_member_that_lost_everything_joins_again_under_its_id() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    a.epoch, a.owned = 0, NOTHING
    a.beat()
    assert len(a.owned) == 6


def test_new_partitions_and_deleted_topics_change_the_target() -> None:
    stage = Stage()
    a = Member(stage, "a", "orders", "refunds", "later")
    a.beat()
    stage.topics["orders"] = TopicShape(ORDERS, 9)
    del stage.topics["refunds"]
    stage.topics["later"] = TopicShape(uuid.UUID(int=3), 1)
    settle(a)
    assert len(a.owned) == 10
    assert all(topic_id != REFUNDS for topic_id, _ in by_topic_id(a.owned))


def test_a_member_changes_its_subscription() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    a.topics = ("refunds",)
    answer = a.send(full=True)
    assert answer.epoch == 1, "first it gives back"
    a.owned = NOTHING if answer.assignment is None else answer.assignment
    settle(a)
    assert {topic_id for topic_id, _ in by_topic_id(a.owned)} == {REFUNDS}


def test_a_static_member_that_is_away_keeps_its_share() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b", instance_id="two")
    settle(a, b)
    had = b.owned
    assert Member(stage, "c", instance_id="two").refused() is ErrorCode.UNRELEASED_INSTANCE_ID
    assert b.send(-2).epoch == -2
    again = Member(stage, "c", instance_id="two")
    again.beat()
    assert again.owned == had
    assert b.refused() is ErrorCode.FENCED_INSTANCE_ID
    settle(a, again)
    assert sizes(a, again) == [3, 3]


def test_a_static_member_that_stays_away_is_taken_out() -> None:
    stage = Stage()
    a = Member(stage, "a", instance_id="one")
    a.beat()
    a.send(-2)
    stage.pass_time(SESSION_MS)
    assert stage.state is ConsumerGroupState.EMPTY


def test_an_administrator_takes_members_out_by_id_and_static_ones_by_instance_id() -> None:
    stage = Stage()
    a, b, c = Member(stage, "a"), Member(stage, "b", instance_id="two"), Member(stage, "c")
    settle(a, b, c)
    b.send(-2)

    def take_out(*leaving: tuple[str, str | None]) -> list[ErrorCode]:
        out = Outbox()
        errors = stage.shard.leave(GROUP, list(leaving), out, at(stage.now_ms), CLASSIC_LIMITS)
        stage.settle(out)
        return errors

    before = len(stage.log)
    refused = take_out(("x", None), ("", None), ("", "one"), ("b", "one"), ("a", "two"))
    assert refused == [ErrorCode.UNKNOWN_MEMBER_ID] * 4 + [ErrorCode.FENCED_INSTANCE_ID]
    assert len(stage.log) == before, "who is not there changes nothing"
    assert take_out(("", "two"), ("c", None), ("c", None)) == [ErrorCode.NONE] * 3
    assert list(stage.group.members) == ["a"]
    settle(a)
    assert sizes(a) == [6], "what they had goes to the rest"
    assert c.refused() is ErrorCode.UNKNOWN_MEMBER_ID
    assert take_out(("a", None)) == [ErrorCode.NONE]
    assert stage.shard.delete(GROUP, Outbox()) is ErrorCode.NONE


def test_a_member_that_joins_again_under_another_instance_id_frees_its_first_one() -> None:
    stage = Stage()
    Member(stage, "a", instance_id="one").beat()
    again = Member(stage, "a", instance_id="two")
    again.beat()
    assert stage.group.static_members == {"two": "a"}
    other = Member(stage, "b", instance_id="one")
    settle(again, other)
    assert sizes(again, other) == [3, 3]
    again.send(-1)
    assert stage.group.static_members == {"one": "b"}
    stage.restart()
    assert stage.group.static_members == {"one": "b"}


def test_a_member_that_takes_the_place_of_one_that_is_away_leaves_its_own_to_all() -> None:
    stage = Stage()
    a, b = Member(stage, "a", instance_id="one"), Member(stage, "b", instance_id="two")
    settle(a, b)
    b.send(-2)
    again = Member(stage, "a", instance_id="two")
    settle(again)
    assert sizes(again) == [6], "what it had under its first instance id is nobody's else"
    assert stage.group.static_members == {"two": "a"}


def test_bad_requests_change_nothing() -> None:
    stage = Stage()
    assert Member(stage, "a", assignor="magic").refused() is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert Member(stage, "a").refused(epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert Member(stage, "a" * 1025).refused() is ErrorCode.INVALID_REQUEST
    assert Member(stage, "a", instance_id="i" * 1025).refused() is ErrorCode.INVALID_REQUEST
    assert Member(stage, "a", "t" * 10_000).refused() is ErrorCode.INVALID_REQUEST
    assert not stage.log
    members = [Member(stage, str(number)) for number in range(LIMITS.max_size)]
    settle(*members)
    assert Member(stage, "one too many").refused() is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_positions_are_committed_in_a_members_epoch() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    check = stage.shard.check_commit
    assert check(GROUP, "a", None, 1, at(stage.now_ms)) is ErrorCode.NONE
    assert check(GROUP, "a", None, 0, at(stage.now_ms), partitions=lambda: a.owned) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(GROUP, "b", None, 1, at(stage.now_ms)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(GROUP, "", None, -1, at(stage.now_ms)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.shard.check_fetch(GROUP, "", -1) is ErrorCode.NONE
    assert stage.shard.check_fetch(GROUP, "a", 5) is ErrorCode.STALE_MEMBER_EPOCH
    a.send(-1)
    assert check(GROUP, "", None, -1, at(stage.now_ms)) is ErrorCode.NONE


def test_a_member_that_has_not_heard_of_its_epoch_commits_where_it_has_read_all_along() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    old, kept = a.epoch, a.owned
    b.send(-1)
    a.beat()
    assert a.epoch > old
    won = a.owned - kept
    assert won

    def commits(epoch: int, partitions: Share) -> ErrorCode:
        return stage.shard.check_commit(GROUP, "a", None, epoch, at(stage.now_ms), partitions=lambda: partitions)

    for _ in range(2):
        assert commits(old, kept) is ErrorCode.NONE
        assert commits(old, won) is ErrorCode.STALE_MEMBER_EPOCH
        assert commits(old, a.owned) is ErrorCode.STALE_MEMBER_EPOCH
        assert commits(a.epoch, a.owned) is ErrorCode.NONE
        assert commits(a.epoch + 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
        assert commits(-1, kept) is ErrorCode.STALE_MEMBER_EPOCH
        stage.compact()
        stage.restart()
    before = a.epoch
    c = Member(stage, "c")
    settle(a, c)
    assert won & c.owned
    assert commits(before, won & c.owned) is ErrorCode.STALE_MEMBER_EPOCH, "those are another's now"
    assert commits(old, kept & a.owned) is ErrorCode.NONE


def test_an_assignor_that_only_a_log_from_elsewhere_knows_has_no_vote() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    profile = stage.group.members["a"].profile._replace(assignor="my.company.Assignor")
    stage.log.append((encode_consumer_key(MEMBER_TYPE, GROUP, "a"), encode_profile(profile)))
    stage.restart()
    settle(a, b)
    assert sizes(a, b) == [3, 3]


def test_a_member_cannot_move_the_position_of_another() -> None:
    """Seed 30562 of the game of groups: a member gave a partition back, stayed in its epoch, and its old commit came
    late."""
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    nobodys = Share({topic: mask << 1000 for topic, mask in a.owned.masks.items()})

    def commits(partitions: Share) -> ErrorCode:
        return stage.shard.check_commit(GROUP, "a", None, a.epoch, at(stage.now_ms), partitions=lambda: partitions)

    for _ in range(2):
        assert commits(a.owned) is ErrorCode.NONE
        assert commits(nobodys) is ErrorCode.NONE
        assert commits(b.owned) is ErrorCode.STALE_MEMBER_EPOCH
        assert commits(a.owned | b.owned) is ErrorCode.STALE_MEMBER_EPOCH
        stage.compact()
        stage.restart()


def test_a_partition_that_comes_back_counts_from_then_on() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    a.beat()
    first, everything = a.epoch, a.owned
    settle(a, b)
    away = everything - a.owned
    b.send(-1)
    a.beat()
    assert a.owned == everything
    check = stage.shard.check_commit
    assert check(GROUP, "a", None, first, at(stage.now_ms), partitions=lambda: away) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(GROUP, "a", None, first, at(stage.now_ms), partitions=lambda: everything - away) is ErrorCode.NONE


def test_everything_is_back_after_a_restart_even_from_a_compacted_log() -> None:
    stage = Stage()
    a, b = Member(stage, "a"), Member(stage, "b")
    settle(a, b)
    a.assignor = "range"
    settle(a, b)
    stage.compact()
    stage.restart()
    assert a.beat().assignment is None
    assert stage.group.held_by_others(a.owned | b.owned, ["c"]) == a.owned | b.owned
    stage.pass_time(SESSION_MS)
    assert stage.state is ConsumerGroupState.EMPTY
    assert stage.shard.wake_ms(GROUP) == NEVER_MS


def test_an_empty_group_can_be_deleted() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    out = Outbox()
    assert stage.shard.delete(GROUP, out) is ErrorCode.NON_EMPTY_GROUP
    a.send(-1)
    assert stage.shard.delete(GROUP, out) is ErrorCode.NONE
    stage.settle(out)
    stage.restart()
    assert not stage.shard.exists(GROUP)


def test_a_group_that_lost_its_members_keeps_positions_for_the_retention_from_then_on() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    commit = Commit(TopicPartition("orders", 0), 3, -1, "", ORDERS)
    out = Outbox()
    out.records += stage.shard.positions.commit(GROUP, [commit], metadata_max_bytes=9, wall_ms=stage.now_ms).records
    stage.settle(out)

    def expire() -> None:
        out = Outbox()
        out.records += stage.shard.expired(GROUP, [commit.partition], stage.now_ms, DAY_MS)
        stage.settle(out)

    stage.now_ms += 8 * DAY_MS
    a.send(-1)
    expire()
    assert stage.shard.positions.of_group(GROUP), "the log was quiet, and its reader is away for a minute"
    stage.restart()
    stage.now_ms += DAY_MS - 1
    expire()
    assert stage.shard.positions.of_group(GROUP)
    stage.now_ms += 1
    expire()
    assert not stage.shard.exists(GROUP)


# Random schedules

EXPECTED_REFUSALS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_no_partition_has_two_owners_and_the_group_settles(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage()
    serial = 0
    members: list[Member] = []

    def check() -> None:
        """Asserts that partitions that members have, or have not given back, never overlap in the log."""
        held: dict[tuple[TopicId, int], str] = {}
        group = stage.shard.consumer_groups.get(GROUP)
        for member_id, current in (group.currents if group is not None else {}).items():
            for partition in partitions_of(current.held):
                assert held.setdefault(partition, member_id) == member_id
        believed = [partition for each in members if is_alive(each) for partition in partitions_of(each.owned)]
        assert len(believed) == len(set(believed)), "two members read the same partition"

    def is_alive(member: Member) -> bool:
        group = stage.shard.consumer_groups.get(GROUP)
        return group is not None and group.current(member.name).epoch == member.epoch and member.epoch > 0

    for _ in range(200):
        action = chance.randrange(12)
        if action == 0 and len(members) < LIMITS.max_size:
            serial += 1
            instance_id = f"i{serial}" if chance.random() < 0.3 else None
            read = chance.choice([("orders",), ("refunds",), ("orders", "refunds"), ()])
            expression = chance.choice(["o.*", ".*"]) if not read or chance.random() < 0.2 else None
            members.append(Member(stage, f"m{serial}", *read, instance_id=instance_id, expression=expression))
        elif action == 1:
            stage.pass_time(chance.choice([10, SESSION_MS // 2]))
        elif action == 2 and chance.random() < 0.3:
            stage.compact()
            stage.restart()
        elif members:
            member = chance.choice(members)
            try:
                if action == 3 and member.epoch > 0 and chance.random() < 0.5:
                    member.send(-1)
                    members.remove(member)
                elif action == 4:
                    member.send(quiet=member.epoch > 0 and chance.random() < 0.5)  # the answer is lost
                else:
                    member.beat(quiet=member.epoch > 0 and chance.random() < 0.3)
            except ProtocolError as refusal:
                if refusal.code not in EXPECTED_REFUSALS:
                    raise
                member.epoch, member.owned = 0, NOTHING
        check()
    members = [*members, Member(stage, "last", "orders", "refunds")][-LIMITS.max_size :]
    stage.pass_time(SESSION_MS)
    for _ in range(8):
        for member in members:
            try:
                member.beat()
            except ProtocolError:
                member.epoch, member.owned = 0, NOTHING
    check()
    assert stage.state is ConsumerGroupState.STABLE
    assert sum(len(member.owned) for member in members) == 8


def test_a_member_in_a_state_of_a_later_version_is_fenced_and_joins_again() -> None:
    stage = Stage()
    a = Member(stage, "a")
    a.beat()
    current = stage.group.current("a")
    value = bytearray(encode_current(current))
    value[10] = 77
    stage.shard.replay(encode_consumer_key(CURRENT_TYPE, GROUP, "a"), bytes(value))
    assert stage.group.current("a").state is MemberState.UNKNOWN
    assert stage.state is ConsumerGroupState.RECONCILING
    assert a.refused() is ErrorCode.FENCED_MEMBER_EPOCH
    a.epoch, a.owned = 0, NOTHING
    a.beat()
    assert stage.group.current("a").state is MemberState.STABLE
    assert len(a.owned) == 6
