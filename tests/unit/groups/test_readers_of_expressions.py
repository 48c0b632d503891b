"""Regular expressions of members with different rights: each reads the matches that its principal may describe."""

import pytest
from tests.unit.groups.consumer_stage import ORDERS, REFUNDS, Member, Stage, settle, sizes
from tests.unit.groups.test_regex_subscriptions import read_by, resolutions

from cordwood.groups.consumer.topics import Reader

ALL = ["orders", "refunds"]


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.topics.asks = True
    stage.topics.hidden["bob"] = {"orders"}
    return stage


def test_members_with_one_expression_read_what_each_may_describe(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    assert (read_by(alice), read_by(bob)) == ({ORDERS}, {REFUNDS})
    assert sizes(alice, bob) == [6, 2], "every partition has a reader"
    assert resolutions(stage) == [(".*", ALL)], "one record: the matches for any of the members"


def test_the_heartbeat_after_a_right_is_taken_away_takes_the_topic_away(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    settle(alice)
    stage.topics.hidden["alice"] = {"refunds"}
    told = alice.beat().assignment
    assert told is not None
    assert read_by(alice) == {ORDERS}
    settle(alice)
    assert resolutions(stage) == [(".*", ALL), (".*", ["orders"])]


def test_a_right_that_is_given_adds_the_topic_although_another_member_reads_it_already(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    del stage.topics.hidden["bob"]
    settle(alice, bob)
    assert ORDERS in read_by(bob)
    assert sizes(alice, bob) == [4, 4]


def test_a_quiet_heartbeat_writes_nothing(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    written = len(stage.log)
    settle(alice, bob)
    assert len(stage.log) == written


def test_a_new_coordinator_keeps_the_matches_until_it_has_heard_of_a_member(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    stage.restart()
    stage.topics.hidden["alice"] = {"refunds"}
    settle(bob)
    assert read_by(bob) == {REFUNDS}
    assert stage.group.expressions[".*"].topics == set(ALL), "nobody has asked for alice yet"
    settle(alice, bob)
    assert (read_by(alice), read_by(bob)) == ({ORDERS}, {REFUNDS})


def test_a_new_coordinator_never_tells_a_member_of_topics_that_others_may_describe(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    stage.restart()
    Member(stage, "c", expression="refunds", principal="alice").beat()
    told = bob.beat().assignment
    assert told is None or read_by(bob) <= {REFUNDS}


def test_a_member_that_changes_its_expression_is_judged_by_the_new_one(stage: Stage) -> None:
    bob = Member(stage, "b", expression="re.*", principal="bob")
    settle(bob)
    bob.expression = "o.*"
    answer = bob.send(full=True)
    assert answer.assignment is not None
    bob.owned = answer.assignment
    settle(bob)
    assert not bob.owned


def test_a_static_member_that_comes_back_as_another_principal_has_the_rights_of_that(stage: Stage) -> None:
    before = Member(stage, "a", expression=".*", principal="alice", instance_id="i")
    settle(before)
    before.send(-2)
    after = Member(stage, "b", expression=".*", principal="bob", instance_id="i")
    settle(after)
    assert read_by(after) == {REFUNDS}


def test_a_member_that_proves_to_be_another_is_judged_as_that_from_then_on(stage: Stage) -> None:
    member = Member(stage, "a", expression=".*", principal="alice")
    settle(member)
    member.reader = Reader(("User", "bob", ()), "*")
    member.beat()
    assert read_by(member) == {REFUNDS}


def test_topics_that_another_member_of_the_group_may_not_describe_stay_with_those_who_may(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    settle(alice)
    newcomer = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, newcomer)
    newcomer.send(-1)
    settle(alice)
    assert len(alice.owned) == 8


def test_a_reader_whose_matches_are_forgotten_does_not_get_those_of_others(stage: Stage) -> None:
    alice = Member(stage, "a", expression=".*", principal="alice")
    settle(alice)
    stage.topics.not_yet = {".*"}
    bob = Member(stage, "b", expression=".*", principal="bob")
    settle(alice, bob)
    assert not bob.owned
    stage.topics.not_yet = set()
    settle(alice, bob)
    assert read_by(bob) == {REFUNDS}
