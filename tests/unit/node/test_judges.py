"""Judges are kept for sessions: each holds for its own session, by the rules of the moment, and they are bounded."""

from __future__ import annotations

import pytest
from simulation.world.exchange import EVERYBODY
from simulation.world.world import World

from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.requests import access
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import RequestHeader

TOPIC = ResourceKind.TOPIC
WRITE = Acl(TOPIC, Pattern.PREFIXED, "orders", "User:alice", EVERYTHING, Operation.WRITE, Permission.ALLOW)
PRODUCE = RequestHeader(ApiKey.PRODUCE, 9, 1, "client", 10)


@pytest.fixture
def rules(world: World) -> AccessRules:
    rules = world.node.access.rules = AccessRules()
    rules.add(WRITE)
    return rules


def session(user: str = "alice") -> Session:
    return Session(EVERYBODY, "10.0.0.1", Principal("User", user))


def may_write(world: World, who: Session, topic: str = "orders") -> bool:
    judge = world.node.access.judge(PRODUCE, who)
    refusal = judge.refusal(Operation.WRITE, TOPIC, topic)
    assert judge.may(Operation.WRITE, TOPIC, topic) is (refusal is None)
    return refusal is None


def test_what_was_allowed_once_holds_for_one_revision_of_the_rules(world: World, rules: AccessRules) -> None:
    alice = session()
    for _ in range(2):
        assert may_write(world, alice)
        rules.remove(WRITE)
        assert not may_write(world, alice)
        rules.add(WRITE)


def test_an_equal_session_of_another_connection_has_a_judge_of_its_own(world: World, rules: AccessRules) -> None:
    alice, again, mallory = session(), session(), session("mallory")
    judge = world.node.access.judge(PRODUCE, alice)
    assert world.node.access.judge(PRODUCE, alice) is judge
    assert world.node.access.judge(PRODUCE._replace(api_version=8), alice) is not judge
    assert world.node.access.judge(PRODUCE, again) is not judge
    assert may_write(world, alice)
    assert not may_write(world, mallory)


def test_rules_in_the_place_of_others_hold_at_once(world: World, rules: AccessRules) -> None:
    alice = session()
    assert may_write(world, alice)
    world.node.access.rules = AccessRules()
    assert not may_write(world, alice)


def test_judges_and_what_they_remember_are_bounded(
    world: World, rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MOST_JUDGES", 3)
    monkeypatch.setattr(access, "MOST_ALLOWED", 2)
    sessions = [session() for _ in range(10)]
    for each in sessions:
        assert all(may_write(world, each, f"orders-{number}") for number in range(5))
        assert not may_write(world, each, "refunds")
    judges = world.node.access._judges
    assert len(judges) <= 3
    assert all(len(judge._allowed) <= 2 for judge in judges.values())
