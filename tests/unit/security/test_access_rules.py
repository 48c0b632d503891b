"""The decisions of the rules of access, beside a plain reading of every rule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.model.acls import (
    EVERY_PRINCIPAL,
    EVERYTHING,
    MAX_NAME_LENGTH,
    THE_CLUSTER,
    Acl,
    AclFilter,
    InvalidAcl,
    Pattern,
    Permission,
    check,
)
from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Principal

TOPIC = ResourceKind.TOPIC
ALICE, BOB = "User:alice", "User:bob"
TRADERS = "Group:traders"
WHO = {ALICE: Principal("User", "alice"), BOB: Principal("User", "bob")}
MEMBER = Principal("User", "alice", ("Group:others", TRADERS))
"""Alice, by a token that names groups."""
HERE, THERE = "10.0.0.1", "10.0.0.2"


def rule(
    name: str = "orders",
    operation: Operation = Operation.READ,
    principal: str = ALICE,
    *,
    pattern: Pattern = Pattern.LITERAL,
    host: str = EVERYTHING,
    permission: Permission = Permission.ALLOW,
    kind: ResourceKind = TOPIC,
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


def prefix(name: str, permission: Permission = Permission.ALLOW) -> Acl:
    return rule(name, pattern=Pattern.PREFIXED, permission=permission)


def rules(*acls: Acl, everyone: bool = False, super_users: tuple[str, ...] = ()) -> AccessRules:
    made = AccessRules(super_users, everyone_without_rules=everyone)
    for acl in acls:
        made.add(acl)
    return made


def may(access: AccessRules, operation: Operation, name: str = "orders", who: str = ALICE, host: str = HERE) -> bool:
    return access.decide(WHO[who], host, operation, TOPIC, name).allowed


def test_without_a_rule_nobody_may_do_anything() -> None:
    assert not may(rules(), Operation.DESCRIBE)


def test_super_users_may_do_everything_even_what_a_rule_denies() -> None:
    access = rules(rule(permission=Permission.DENY, principal=EVERY_PRINCIPAL), super_users=(ALICE,))
    assert may(access, Operation.READ)
    assert not may(access, Operation.READ, who=BOB)


def test_rules_of_groups_hold_for_their_members_alone() -> None:
    access = rules(
        rule(principal=TRADERS), rule("refunds"), rule("refunds", principal=TRADERS, permission=Permission.DENY)
    )

    def reads(who: Principal, name: str) -> bool:
        assert access.allows_anywhere(who, HERE, Operation.READ, TOPIC)
        return access.decide(who, HERE, Operation.READ, TOPIC, name).allowed

    assert [reads(WHO[ALICE], "orders"), reads(WHO[ALICE], "refunds")] == [False, True]
    assert [reads(MEMBER, "orders"), reads(MEMBER, "refunds")] == [True, False]
    admins = rules(super_users=(TRADERS,))
    assert admins.decide(MEMBER, HERE, Operation.ALTER, TOPIC, "orders").allowed
    assert admins.allows_anywhere(MEMBER, HERE, Operation.ALTER, TOPIC)
    assert not may(admins, Operation.ALTER)


def test_a_denial_wins_over_leave_wherever_both_stand() -> None:
    access = rules(
        rule(),
        rule("ord", Operation.ALL, EVERY_PRINCIPAL, pattern=Pattern.PREFIXED, host=HERE, permission=Permission.DENY),
    )
    assert not may(access, Operation.READ)
    assert may(access, Operation.READ, host=THERE)


@pytest.mark.parametrize("given_to", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_leave_to_use_a_topic_is_leave_to_describe_it_and_a_denial_is_not(given_to: Operation) -> None:
    assert may(rules(rule(operation=given_to)), Operation.DESCRIBE)
    denied = rule(operation=given_to, permission=Permission.DENY)
    assert may(rules(denied, rule(operation=Operation.DESCRIBE)), Operation.DESCRIBE)


def test_leave_to_change_settings_is_leave_to_read_them_and_not_the_topic() -> None:
    access = rules(rule(operation=Operation.ALTER_CONFIGS))
    assert may(access, Operation.DESCRIBE_CONFIGS)
    assert not may(access, Operation.DESCRIBE)


def test_a_literal_star_names_every_topic_and_a_prefix_those_that_begin_with_it() -> None:
    assert may(rules(rule(EVERYTHING)), Operation.READ, "anything")
    access = rules(prefix("team-a."))
    assert may(access, Operation.READ, "team-a.orders")
    assert not may(access, Operation.READ, "team-b.orders")
    assert not may(access, Operation.READ, "team-a")


def test_rules_of_one_kind_say_nothing_about_another() -> None:
    access = rules(rule(kind=ResourceKind.GROUP))
    assert not may(access, Operation.READ)
    assert access.decide(WHO[ALICE], HERE, Operation.READ, ResourceKind.GROUP, "orders").allowed


def test_everyone_may_use_what_no_rule_names_if_the_setting_says_so() -> None:
    access = rules(rule(principal=BOB), everyone=True)
    assert may(access, Operation.WRITE, "payments")
    assert not may(access, Operation.READ), "a rule about the topic names others"


def test_a_decision_names_its_rule_and_is_taken_anew_after_each_change() -> None:
    access = rules(rule())
    assert access.decide(WHO[ALICE], HERE, Operation.READ, TOPIC, "orders").rule == rule()
    access.remove(rule())
    assert not may(access, Operation.READ)
    access.add(rule(EVERYTHING))
    assert access.decide(WHO[ALICE], HERE, Operation.READ, TOPIC, "orders").rule == rule(EVERYTHING)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ((), False),
        ((rule(),), True),
        ((rule(), rule(permission=Permission.DENY)), False),
        ((rule(), prefix("or", Permission.DENY)), False),
        ((rule(), rule(EVERYTHING, permission=Permission.DENY)), False),
        (
            (prefix("or"), prefix("ord", Permission.DENY)),
            True,
        ),
        (
            (prefix("or"), prefix("o", Permission.DENY)),
            False,
        ),
        ((prefix("or"), rule("or", permission=Permission.DENY)), True),
        ((rule(EVERYTHING), prefix("or", Permission.DENY)), True),
        ((rule(principal=EVERY_PRINCIPAL),), True),
        ((rule(host=THERE),), False),
    ],
)
def test_leave_for_some_topic_counts_unless_a_denial_covers_all_of_it(acls: tuple[Acl, ...], allowed: bool) -> None:
    assert rules(*acls).allows_anywhere(WHO[ALICE], HERE, Operation.READ, TOPIC) is allowed


NAMES = ("a", "ab", "abc", "b", EVERYTHING)
ACLS = st.builds(
    Acl,
    st.sampled_from((TOPIC, ResourceKind.GROUP)),
    st.sampled_from(Pattern),
    st.sampled_from(NAMES),
    st.sampled_from((ALICE, BOB, TRADERS, EVERY_PRINCIPAL)),
    st.sampled_from((HERE, THERE, EVERYTHING)),
    st.sampled_from((Operation.READ, Operation.DESCRIBE, Operation.ALL)),
    st.sampled_from(Permission),
)


def read_plainly(acls: set[Acl], who: Principal, host: str, operation: Operation, name: str, everyone: bool) -> bool:
    """Kafka's order, rule by rule."""
    covering = [acl for acl in acls if acl.kind is TOPIC and acl.covers(name)]
    names = (str(who), *who.groups)
    about = [acl for acl in covering if acl.decides(operation) and any(acl.names(each, host) for each in names)]
    if any(acl.permission is Permission.DENY for acl in about):
        return False
    return bool(about) or (everyone and not covering)


@pytest.mark.parametrize("host", ["::FFFF:10.0.0.1", "0:0:0:0:0:FFFF:a00:1"])
def test_an_address_is_the_same_in_all_its_spellings(host: str) -> None:
    access = rules(rule(), rule(host=host, permission=Permission.DENY))
    assert not may(access, Operation.READ, host="10.0.0.1")
    assert access.name_host("10.0.0.1")
    assert may(access, Operation.READ, host="10.0.0.2")
    access.remove(rule(host=host, permission=Permission.DENY))
    assert not access.name_host("10.0.0.1")


@given(st.lists(st.tuples(st.booleans(), ACLS), max_size=24), st.booleans())
@settings(max_examples=150)
def test_the_index_decides_as_a_plain_reading_of_all_rules(changes: list[tuple[bool, Acl]], everyone: bool) -> None:
    access = AccessRules(everyone_without_rules=everyone)
    kept: set[Acl] = set()
    for adds, acl in changes:
        (access.add if adds else access.remove)(acl)
        (kept.add if adds else kept.discard)(acl)
        for name in ("a", "ab", "abcd", "c"):
            for operation in (Operation.READ, Operation.DESCRIBE):
                for who in (WHO[ALICE], MEMBER):
                    expected = read_plainly(kept, who, HERE, operation, name, everyone)
                    assert access.decide(who, HERE, operation, TOPIC, name).allowed is expected
    assert set(access) == kept
    assert len(access) == len(kept)


@pytest.mark.parametrize(
    ("acl", "complaint"),
    [
        (rule(""), "names no resource"),
        (rule(principal="alice"), "not a principal"),
        (rule(principal="User:"), "not a principal"),
        (rule(host=""), "names no host"),
        (rule(host="10.0.0.0/8", permission=Permission.DENY), "not '10.0.0.0/8'"),
        (rule(host="client.example"), "one IP address"),
        (rule("other", Operation.CREATE, kind=ResourceKind.CLUSTER), "The one resource"),
        (rule(THE_CLUSTER, Operation.READ, kind=ResourceKind.CLUSTER), "does not apply to a cluster"),
        (rule(operation=Operation.CLUSTER_ACTION), "does not apply to a topic"),
        (rule("t" * (MAX_NAME_LENGTH + 1)), "1001 characters"),
    ],
)
def test_a_rule_that_could_decide_nothing_is_refused_with_the_reason(acl: Acl, complaint: str) -> None:
    with pytest.raises(InvalidAcl, match=complaint):
        check(acl)


def test_a_filter_selects_rules_by_their_very_name_or_by_what_they_cover() -> None:
    exact, starting, star = rule(), prefix("ord"), rule(EVERYTHING)
    every = (exact, starting, star)
    assert [acl for acl in every if AclFilter(name="orders").selects(acl)] == [exact]
    assert [acl for acl in every if AclFilter(name="orders", covering=True).selects(acl)] == list(every)
    assert [acl for acl in every if AclFilter(patterns=(Pattern.PREFIXED,)).selects(acl)] == [starting]
    assert not AclFilter(principal=BOB).selects(exact)
    assert AclFilter().selects(exact)


def test_a_rule_reads_as_a_sentence() -> None:
    assert str(rule(host=HERE)) == f"allow User:alice from {HERE}: Read on topic 'orders'"
    assert str(rule(EVERYTHING, Operation.ALL, EVERY_PRINCIPAL)) == "allow everybody: everything on every topic"
    assert str(prefix("a.")) == "allow User:alice: Read on topic whose name begins with 'a.'"
