"""Regular expressions of groups on a whole node that asks for rights: the matches follow the rules of access."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.world.exchange import EVERYBODY, Connection, Exchange
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error

from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.coordinators import visible_matches
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import ApiKey

TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP


def allowed(user: str, operation: Operation, kind: ResourceKind, name: str, host: str = EVERYTHING) -> Acl:
    return Acl(kind, Pattern.LITERAL, name, f"User:{user}", host, operation, Permission.ALLOW)


def sees(user: str, topic: str) -> Acl:
    return allowed(user, Operation.DESCRIBE, TOPIC, topic)


@pytest.fixture
def rules(world: World) -> AccessRules:
    create_topic(world, "orders")
    create_topic(world, "refunds")
    rules = world.node.access.rules = AccessRules(["User:root"])
    for user in ("alice", "bob"):
        rules.add(allowed(user, Operation.READ, GROUP, "g"))
    rules.add(sees("alice", "orders"))
    rules.add(sees("alice", "refunds"))
    rules.add(sees("bob", "refunds"))
    return rules


class Reader:
    """A member of a principal that reads all topics it may describe."""

    def __init__(self, world: World, user: str, host: str = "10.0.0.1") -> None:
        self.world = world
        self.user = user
        self.connection: Connection = world.connect()
        self.connection.session = Session(EVERYBODY, host, Principal("User", user))
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []

    def begin(self) -> Exchange:
        joins = self.epoch == 0
        values = {
            "group_id": "g",
            "member_id": f"{self.user}{self.connection.session.host}",
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 1000 if joins else -1,
            "subscribed_topic_regex": ".*" if joins else None,
            "topic_partitions": self.owned,
        }
        return self.connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)

    def beat(self) -> str:
        exchange = self.begin()
        self.world.advance(30)
        assert exchange.answered
        answer = exchange.answer
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                {"topic_id": each.topic_id, "partitions": each.partitions}
                for each in answer.assignment.topic_partitions
            ]
        return error(answer.error_code)

    def reads(self) -> set[str]:
        for _ in range(4):
            assert self.beat() == "NONE"
        names = {self.world.node.image.topic_name(each["topic_id"]) for each in self.owned}
        return {name for name in names if name is not None}


def test_a_member_reads_what_its_principal_may_describe(world: World, rules: AccessRules) -> None:
    assert Reader(world, "bob").reads() == {"refunds"}


def test_a_super_user_reads_all(world: World, rules: AccessRules) -> None:
    assert Reader(world, "root").reads() == {"orders", "refunds"}


def test_the_next_heartbeat_takes_topics_away_and_brings_them_back(world: World, rules: AccessRules) -> None:
    alice = Reader(world, "alice")
    assert alice.reads() == {"orders", "refunds"}
    rules.remove(sees("alice", "orders"))
    assert alice.beat() == "NONE"
    assert [world.node.image.topic_name(each["topic_id"]) for each in alice.owned] == ["refunds"]
    rules.add(sees("alice", "orders"))
    assert alice.reads() == {"orders", "refunds"}


def more_topics(world: World, *names: str) -> None:
    rules, world.node.access.rules = world.node.access.rules, None
    for name in names:
        create_topic(world, name)
    world.node.access.rules = rules


def test_new_topics_are_read_by_members_that_may_describe_them(world: World, rules: AccessRules) -> None:
    alice, bob = Reader(world, "alice"), Reader(world, "bob")
    alice.reads(), bob.reads()
    assert (alice.reads(), bob.reads()) == ({"orders"}, {"refunds"})
    rules.add(sees("bob", "returns"))
    more_topics(world, "returns")
    alice.reads(), bob.reads()
    assert "returns" in bob.reads()
    assert "returns" not in alice.reads()


def test_a_new_coordinator_goes_on(world: World, rules: AccessRules) -> None:
    bob = Reader(world, "bob")
    assert bob.reads() == {"refunds"}
    world.stop()
    world.start()
    world.node.access.rules = rules
    again = Reader(world, "bob")
    again.epoch, again.owned = bob.epoch, bob.owned
    assert again.reads() == {"refunds"}


def test_addresses_count_where_rules_name_them(world: World, rules: AccessRules) -> None:
    rules.add(allowed("bob", Operation.DESCRIBE, TOPIC, "orders", host="10.0.0.2"))
    near = Reader(world, "bob", "10.0.0.2")
    assert near.reads() == {"orders", "refunds"}
    assert Reader(world, "bob", "10.0.0.3").reads() <= {"refunds"}


def test_many_topics_are_judged_in_turns_and_a_change_meanwhile_is_told_by_the_next_heartbeat(
    world: World, rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_matches, "NAMES_PER_TURN", 1)
    names = [f"orders-{number}" for number in range(9)]
    more_topics(world, *names)
    for name in names:
        rules.add(sees("alice", name))
    assert Reader(world, "bob").reads() == {"refunds"}
    alice = Reader(world, "alice")
    waiting = alice.begin()
    world.advance(2)
    assert not waiting.answered, "one topic a turn"
    for name in ["orders", "refunds", *names]:
        rules.remove(sees("alice", name))
    world.advance(30)
    told = waiting.answer.assignment
    assert told is None or not told.topic_partitions, "an answer names no topic after the right is gone"
    alice.epoch = waiting.answer.member_epoch
    assert alice.reads() == set()


def test_matches_beyond_the_bound_are_forgotten_and_found_again(
    world: World, rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_matches, "MAX_NARROWED", 1)
    alice, bob = Reader(world, "alice"), Reader(world, "bob")
    for _ in range(3):
        assert alice.reads() <= {"orders", "refunds"}
        assert bob.reads() <= {"refunds"}


def test_where_nobody_is_asked_a_member_has_no_reader(world: World, rules: AccessRules) -> None:
    world.node.access.rules = None
    assert Reader(world, "bob").reads() == {"orders", "refunds"}
    (shard,) = [each for each in world.node.groups.shards.log.loaded_shards() if each.machine.consumer_groups]
    assert not shard.machine.consumer_groups["g"].readers
