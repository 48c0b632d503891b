"""Subscription by regular expression in the consumer protocol: the log has the matches, as topics come and go."""

import uuid

import pytest
from tests.unit.groups.consumer_stage import GROUP, ORDERS, REFUNDS, SESSION_MS, Member, Stage, settle, sizes

from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.heartbeat import MAX_EXPRESSIONS
from cordwood.groups.consumer.partition_sets import NOTHING, by_topic_id
from cordwood.groups.consumer.records import (
    EXPRESSION_TYPE,
    Resolution,
    decode_consumer_key,
    decode_resolution,
    encode_consumer_key,
    encode_resolution,
)
from cordwood.groups.consumer.topics import TopicShape
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId

RETURNS = uuid.UUID(int=3)


def read_by(member: Member) -> set[TopicId]:
    return {topic_id for topic_id, _ in by_topic_id(member.owned)}


def resolutions(stage: Stage) -> list[tuple[str, list[str] | None]]:
    """The expressions and matches in the log, record by record."""
    return [
        (key.subject, None if value is None else sorted(decode_resolution(value).topics))
        for key, value in ((decode_consumer_key(raw), value) for raw, value in stage.log)
        if key.type == EXPRESSION_TYPE
    ]


def test_the_record_is_kafkas() -> None:
    """Kafka's schemas: int16 type 16, group, expression; int16 version 0, compact array, int64, int64, no tags."""
    assert encode_consumer_key(EXPRESSION_TYPE, "g", "r.*") == bytes.fromhex("0010 0001 67 0003 722e2a")
    value = encode_resolution(Resolution(frozenset({"b", "a"}), 7, 9))
    assert value == bytes.fromhex("0000 03 02 61 02 62 0000000000000007 0000000000000009 00")


def test_a_member_reads_what_its_expression_matches() -> None:
    stage = Stage()
    a = Member(stage, "a", expression="re.*")
    a.beat()
    assert read_by(a) == {REFUNDS}
    assert resolutions(stage) == [("re.*", ["refunds"])]
    assert stage.group.subscribed_topics == {"refunds"}
    written = len(stage.log)
    a.beat()
    assert len(stage.log) == written, "a quiet heartbeat writes nothing"


def test_names_and_an_expression_are_read_together() -> None:
    a = Member(Stage(), "a", "orders", expression="re.*")
    a.beat()
    assert read_by(a) == {ORDERS, REFUNDS}


def test_topics_that_come_and_go_are_followed() -> None:
    stage = Stage()
    a = Member(stage, "a", expression="re.*")
    a.beat()
    stage.topics["returns"] = TopicShape(RETURNS, 3)
    stage.topics["others"] = TopicShape(uuid.UUID(int=4), 3)
    settle(a)
    assert read_by(a) == {REFUNDS, RETURNS}
    del stage.topics["refunds"]
    settle(a)
    assert read_by(a) == {RETURNS}
    assert resolutions(stage) == [("re.*", ["refunds"]), ("re.*", ["refunds", "returns"]), ("re.*", ["returns"])]


def test_an_expression_that_comes_to_match_what_another_names_is_shared() -> None:
    """No topic is new to the group then, and still a member may read more than before."""
    stage = Stage()
    stage.topics.not_yet = {"o.*"}
    a, b = Member(stage, "a", "orders"), Member(stage, "b", expression="o.*")
    settle(a, b)
    assert sizes(a, b) == [6, 0]
    stage.topics.not_yet = set()
    settle(a, b)
    assert sizes(a, b) == [3, 3]


def test_members_with_the_same_expression_share_one_record_and_the_last_takes_it_along() -> None:
    stage = Stage()
    a, b = Member(stage, "a", expression="o.*"), Member(stage, "b", expression="o.*")
    settle(a, b)
    assert sizes(a, b) == [3, 3]
    a.send(-1)
    assert resolutions(stage) == [("o.*", ["orders"])]
    stage.pass_time(SESSION_MS)
    assert resolutions(stage)[1:] == [("o.*", None)]
    out = Outbox()
    assert stage.shard.delete(GROUP, out) is ErrorCode.NONE
    stage.settle(out)
    assert not stage.shard.exists(GROUP)


def test_a_member_changes_its_expression_and_gives_it_up() -> None:
    stage = Stage()
    a = Member(stage, "a", expression="o.*")
    a.beat()
    a.expression = "re.*"
    answer = a.send(full=True)
    a.owned = NOTHING if answer.assignment is None else answer.assignment
    settle(a)
    assert read_by(a) == {REFUNDS}
    a.expression, a.topics = "", ("orders",)
    answer = a.send(full=True)
    a.owned = NOTHING if answer.assignment is None else answer.assignment
    settle(a)
    assert read_by(a) == {ORDERS}
    assert resolutions(stage) == [("o.*", ["orders"]), ("re.*", ["refunds"]), ("o.*", None), ("re.*", None)]
    assert not stage.group.expressions


def test_a_heartbeat_that_says_nothing_of_it_leaves_the_expression_as_it_was() -> None:
    stage = Stage()
    a = Member(stage, "a", expression="o.*")
    a.beat()
    stage.compact()
    stage.restart()
    a.beat()
    assert stage.group.members["a"].profile.expression == "o.*"
    assert len(a.owned) == 6


def test_what_is_not_worked_out_yet_stays_as_the_log_has_it() -> None:
    stage = Stage()
    a, b = Member(stage, "a", expression="o.*"), Member(stage, "b", expression="o.*")
    settle(a, b)
    stage.topics.not_yet = {"o.*"}
    stage.restart()
    b.send(-1)
    settle(a)
    assert len(a.owned) == 6
    assert resolutions(stage) == [("o.*", ["orders"])]


def test_positions_of_matched_topics_belong_to_the_subscription() -> None:
    stage = Stage()
    a = Member(stage, "a", expression="o.*")
    a.beat()
    watched = filter(None, stage.shard.watched_positions(GROUP, lambda topic: 2))
    assert [partition.topic for partition, _ in watched] == ["orders", "orders"]


def test_a_group_has_so_many_expressions_and_no_more() -> None:
    stage = Stage()
    stage.group_limits = stage.group_limits._replace(max_size=MAX_EXPRESSIONS + 1)
    for number in range(MAX_EXPRESSIONS):
        Member(stage, f"m{number}", expression=f"o{{{number}}}.*").beat()
    newcomer = Member(stage, "one too many", expression="x")
    assert newcomer.refused() is ErrorCode.INVALID_REGULAR_EXPRESSION
    newcomer.expression = "o{1}.*"
    newcomer.beat()


@pytest.mark.parametrize("expression", [None, ""])
def test_who_joins_has_to_say_what_it_reads(expression: str | None) -> None:
    a = Member(Stage(), "a", expression=expression)
    a.topics = None
    if expression is None:
        assert a.refused() is ErrorCode.INVALID_REQUEST
    else:
        a.beat()
        assert not a.owned, "it is in the group and reads nothing, as in Kafka"
