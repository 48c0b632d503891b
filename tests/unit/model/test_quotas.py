"""Which of several quotas holds for a client, with whom it is shared, and which ones cannot be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from cordwood.model.quotas import Entity, InvalidQuota, QuotaKey, Quotas, by_precedence, check_quota, entity_of, holding

RATE = QuotaKey.PRODUCER_BYTE_RATE
ALICE, EVERY_USER = ("user", "alice"), ("user", None)
APP, EVERY_CLIENT = ("client-id", "app"), ("client-id", None)
LEVELS = [
    (entity_of([ALICE, APP]), ("alice", "app")),
    (entity_of([ALICE, EVERY_CLIENT]), ("alice", "app")),
    (entity_of([ALICE]), ("alice", "")),
    (entity_of([EVERY_USER, APP]), ("alice", "app")),
    (entity_of([EVERY_USER, EVERY_CLIENT]), ("alice", "app")),
    (entity_of([EVERY_USER]), ("alice", "")),
    (entity_of([APP]), ("", "app")),
    (entity_of([EVERY_CLIENT]), ("", "app")),
]
"""Entities in the order of Apache Kafka's precedence, and who shares the quota of each."""


@pytest.mark.parametrize("place", range(len(LEVELS)))
def test_the_most_exact_of_eight_entities_holds(place: int) -> None:
    quotas: Mapping[Entity, Quotas] = {
        entity: {RATE: float(number)} for number, (entity, _) in enumerate(LEVELS) if number >= place
    }
    found = holding(quotas, "alice", "app", RATE)
    assert found == (LEVELS[place][0], place, LEVELS[place][1])


def test_the_order_is_kafkas() -> None:
    assert by_precedence("alice", "app") == tuple(entity for entity, _ in LEVELS)


def test_each_kind_of_quota_is_looked_for_by_itself() -> None:
    quotas: dict[Entity, Quotas] = {entity_of([ALICE]): {QuotaKey.CONSUMER_BYTE_RATE: 5.0}}
    quotas[entity_of([EVERY_USER])] = {RATE: 7.0}
    assert holding(quotas, "alice", "app", RATE) == (entity_of([EVERY_USER]), 7.0, ("alice", ""))


def test_a_quota_of_others_does_not_hold() -> None:
    quotas: Mapping[Entity, Quotas] = {
        entity_of([("user", "bob")]): {RATE: 5.0},
        entity_of([("client-id", "other")]): {RATE: 5.0},
    }
    assert holding(quotas, "alice", "app", RATE) is None


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([ALICE, ("user", "bob")], "duplicate entity entry user"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a" * 2000)], "at most 1024 bytes"),
        ([("ip", "10.0.0.1"), ALICE], "should not be combined"),
        ([("ip", "localhost")], "not an IP address"),
    ],
)
def test_an_entity_that_cannot_be_is_refused(parts: list[tuple[str, str | None]], reason: str) -> None:
    with pytest.raises(InvalidQuota, match=reason):
        entity_of(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value", "reason"),
    [
        (entity_of([ALICE]), "controller_mutation_rate", 1.0, "Invalid configuration key controller_mutation_rate"),
        (entity_of([("ip", None)]), RATE, 1.0, "Invalid configuration key producer_byte_rate"),
        (entity_of([ALICE]), RATE, 0.0, "must be greater than 0"),
        (entity_of([ALICE]), RATE, -1.0, "must be greater than 0"),
        (entity_of([ALICE]), RATE, math.nan, "must be greater than 0"),
        (entity_of([ALICE]), RATE, math.inf, "must be greater than 0"),
        (entity_of([ALICE]), RATE, 1.5, "cannot be a fractional value"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(entity: Entity, key: str, value: float, reason: str) -> None:
    with pytest.raises(InvalidQuota, match=reason):
        check_quota(entity, key, value)
