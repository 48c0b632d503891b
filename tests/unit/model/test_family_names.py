"""Families and their slots by name: one reading of every id, and one partition for all of a family."""

import pytest

from cordwood.model.coordination import coordinating_partition, transaction_partition
from cordwood.model.families import Slot, coordinator_key, is_family_name, is_reserved, slot_id, slot_of

QUERY = "2f4a7c1e-55d3-4c8b-9f0e-3b1f6f0f7a10"


@pytest.mark.parametrize("name", ["q", QUERY, "a.b_c-D9", "x" * 249])
def test_a_name_is_made_of_what_topics_are_made_of(name: str) -> None:
    assert is_family_name(name)
    for number in (0, 7, 9_999):
        assert slot_of(slot_id(name, number)) == Slot(name, number)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\n", "café", "family:a", "x" * 250, "\x00", "١"])
def test_other_names_are_refused(name: str) -> None:
    assert not is_family_name(name)


@pytest.mark.parametrize(
    "transactional_id",
    [
        "writer",
        "family",
        "family:",
        "family:a",
        "family:a/",
        "family:/1",
        "family:a/01",
        "family:a/-1",
        "family:a/b/1",
        "family:a/1\n",
        "Family:a/1",
        "family:a/1234567890",
        "family:a/١",
    ],
)
def test_an_id_that_no_family_gives_out_is_no_slot(transactional_id: str) -> None:
    assert slot_of(transactional_id) is None


def test_no_producer_may_choose_an_id_that_looks_like_a_slot() -> None:
    assert is_reserved("family:a/0")
    assert is_reserved("family:anything")
    assert not is_reserved("my-family:a/0")
    assert not is_reserved("")


@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_family_and_all_its_slots_live_in_one_partition(count: int) -> None:
    for name in ("a", "b", QUERY):
        home = transaction_partition(coordinator_key(name), count)
        assert {transaction_partition(slot_id(name, number), count) for number in range(100)} == {home}


def test_other_ids_live_where_every_kafka_tool_looks_for_them() -> None:
    for transactional_id in ("writer", "a/b/3", "families:a/1", ""):
        assert transaction_partition(transactional_id, 50) == coordinating_partition(transactional_id, 50)
