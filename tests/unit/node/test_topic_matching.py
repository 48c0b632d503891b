"""Regular expressions on a whole node: heartbeats wait for the match, which follows topics and has bounds."""

import uuid
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, error

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.node.coordinators import topic_matching
from cordwood.node.coordinators.regular_expressions import MAX_EXPRESSION_BYTES, names_matching
from cordwood.wire.apis import ApiKey

NAMES = ["orders", "orders.eu", "refunds", "re"]


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("orders", ["orders"]),
        ("^orders.*$", ["orders", "orders.eu"]),
        ("(?i)RE.*", ["refunds", "re"]),
        (r"orders\.eu|re", ["orders.eu", "re"]),
        ("re|refunds", ["refunds", "re"]),
        ("rders", []),
        ("", []),
        (r"\w+", ["orders", "refunds", "re"]),
        ("(?P<first>o)rders", ["orders"]),
    ],
)
def test_an_expression_matches_whole_names(expression: str, matched: list[str]) -> None:
    assert names_matching(expression, NAMES) == matched


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        "a**",
        "[z-a]",
        "(?=lookahead)",
        r"(a)\1",
        "a{1001}",
        "((a{100}){100}){100}",
        "x" * (MAX_EXPRESSION_BYTES + 1),
    ],
)
def test_what_is_no_expression_of_re2_or_needs_too_much_is_refused(expression: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        names_matching(expression, NAMES)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refusal.value.message) < MAX_EXPRESSION_BYTES


def test_an_expression_that_keeps_other_engines_busy_for_ever_is_done_at_once() -> None:
    assert names_matching("(a*)*b", ["a" * 249]) == []
    assert names_matching("(a|aa)+$", ["a" * 248 + "b"]) == []


class Reader:
    """A member that reads by expression."""

    def __init__(self, world: World, expression: str, name: str = "m", group: str = "g") -> None:
        self.world = world
        self.expression = expression
        self.name = name
        self.group = group
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []

    def values(self) -> dict[str, Any]:
        joins = self.epoch == 0
        return {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 1000 if joins else -1,
            "subscribed_topic_regex": self.expression if joins else None,
            "topic_partitions": self.owned,
        }

    def beat(self) -> str:
        answer = self.world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **self.values())
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                {"topic_id": each.topic_id, "partitions": each.partitions}
                for each in answer.assignment.topic_partitions
            ]
        return error(answer.error_code)

    def reads(self, *topics: TopicImage) -> bool:
        for _ in range(4):
            assert self.beat() == "NONE"
        return {each["topic_id"] for each in self.owned} == {topic.topic_id for topic in topics}


def test_the_first_heartbeat_brings_what_the_expression_matches(world: World) -> None:
    orders, _ = create_topic(world), create_topic(world, "returns")
    reader = Reader(world, "ord.*")
    assert reader.beat() == "NONE"
    assert [each["topic_id"] for each in reader.owned] == [orders.topic_id]
    described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups[0].members[0]
    assert (described.subscribed_topic_regex, described.subscribed_topic_names) == ("ord.*", [])


def test_topics_are_followed_as_they_come_and_go_and_come_again(world: World) -> None:
    first = create_topic(world, "orders-1")
    reader = Reader(world, "orders-.*")
    assert reader.reads(first)
    second = create_topic(world, "orders-2")
    create_topic(world, "returns")
    assert reader.reads(first, second)
    delete_topic(world, "orders-1")
    assert reader.reads(second)
    again = create_topic(world, "orders-1")
    assert again.topic_id != first.topic_id
    assert reader.reads(again, second)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_topics_that_came_while_nobody_looked_are_found_after_a_restart(world: World, ending: str) -> None:
    first = create_topic(world, "orders-1")
    reader = Reader(world, "orders-.*")
    assert reader.reads(first)
    getattr(world, ending)()
    world.start()
    second = create_topic(world, "orders-2")
    assert reader.reads(first, second)


def test_internal_topics_are_matched_by_nothing(world: World) -> None:
    orders = create_topic(world)
    reader = Reader(world, ".*")
    assert reader.reads(orders)
    assert CONSUMER_OFFSETS_TOPIC in world.node.hosted.topics


def test_what_is_no_expression_is_refused_and_nobody_joins(world: World) -> None:
    reader = Reader(world, "(")
    assert reader.beat() == "INVALID_REGULAR_EXPRESSION"
    assert error(world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups[0].error_code) == (
        "GROUP_ID_NOT_FOUND"
    )


def test_topics_created_during_a_match_are_not_missed(world: World) -> None:
    orders = create_topic(world, "orders-1")
    Reader(world, "warm up the coordinator", group="other").beat()
    waiting = world.connect().request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, Reader(world, "orders-.*").values())
    world.do(dict(world.steps())["request"])
    assert not waiting.answered, "the match is in a thread"
    late = create_topic(world, "orders-2")
    world.settle()
    reader = Reader(world, "orders-.*", name="n")
    assert waiting.answer.error_code == 0
    world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=-1)
    assert reader.reads(orders, late)


def test_expressions_beyond_the_bound_are_forgotten_and_found_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_matching, "MAX_EXPRESSIONS", 2)
    first = create_topic(world, "orders-1")
    readers = [Reader(world, f"orders-[{n}-9]+|orders-1", group=f"g{n}") for n in range(4)]
    assert all(reader.reads(first) for reader in readers)
    second = create_topic(world, "orders-9")
    assert all(reader.reads(first, second) for reader in readers)


def test_many_members_with_one_expression_match_it_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []

    def counting(expression: str, names: Any) -> list[str]:
        matched.append(expression)
        return names_matching(expression, names)

    monkeypatch.setattr(topic_matching, "names_matching", counting)
    create_topic(world)
    connection = world.connect()
    for number in range(5):
        connection.request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, Reader(world, "ord.*", name=str(uuid.UUID(int=number))).values()
        )
    world.settle()
    assert matched == ["ord.*"]
