"""The last row of a key, in Arrow columns, is the one that Spark would choose."""

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cordwood.pipelines.tables.latest_rows import last_of_each_key  # noqa: E402


def chosen(keys: dict[str, Any], order: dict[str, Any]) -> list[int] | None:
    found = last_of_each_key(pa.table({**keys, **order}), list(keys), list(order))
    return None if found is None else [place for place, is_last in enumerate(found) if is_last]


def test_keys_that_are_there_once_need_no_choice() -> None:
    assert chosen({"id": ["a", "b", None]}, {"offset": [3, 1, 2]}) is None


def test_the_greatest_place_counts_wherever_its_row_is() -> None:
    assert chosen({"id": ["a", "b", "a", "a"]}, {"offset": [5, 1, 9, 7]}) == [1, 2]
    assert chosen({"id": ["a", "b", "a"]}, {"offset": [1, 2, 3]}) == [1, 2]
    assert chosen({"id": ["a", "a", "a"]}, {"partition": [0, 1, 0], "offset": [9, 1, 10]}) == [1]


def test_null_is_a_key_and_before_everything_in_an_order() -> None:
    assert chosen({"id": [None, "a", None]}, {"offset": [2, 1, 1]}) == [0, 1]
    assert chosen({"id": ["a", "a"]}, {"at": pa.array([-5, None])}) == [0]
    assert chosen({"id": ["a", "a"]}, {"at": pa.array([None, "x"])}) == [1]


def test_not_a_number_is_after_all_numbers_and_minus_zero_is_zero() -> None:
    infinite, nan = float("inf"), float("nan")
    assert chosen({"id": ["a", "a", "a"]}, {"at": [nan, infinite, None]}) == [0]
    assert chosen({"id": ["a", "a"]}, {"at": [None, -infinite]}) == [1]
    assert chosen({"id": [0.0, -0.0, nan, nan]}, {"offset": [2, 1, 1, 2]}) == [0, 3]


@pytest.mark.parametrize("kind", ["text", "time", "decimal", "binary"])
def test_values_of_any_plain_kind_order_rows(kind: str) -> None:
    made: dict[str, list[Any]] = {
        "text": ["b", "é", "z"],
        "time": [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 3, 2)],
        "decimal": [Decimal("1.50"), Decimal("10.00"), Decimal("9.00")],
        "binary": [b"\x01", b"\xff", b"\x7f"],
    }
    assert chosen({"id": [1, 1, 1]}, {"at": made[kind]}) == [1]


def test_a_key_of_several_columns_is_one_key() -> None:
    keys = {"one": ["a", "a", "b", "a"], "two": [1, 2, 1, 1]}
    assert chosen(keys, {"offset": [4, 3, 2, 1]}) == [0, 1, 2]


def test_the_choice_is_that_of_a_plain_loop() -> None:
    seeded = random.Random(7)
    for _ in range(50):
        count = seeded.randrange(1, 60)
        keys = [seeded.choice(["a", "b", "c", "d", None]) for _ in range(count)]
        places = [(seeded.randrange(3), offset) for offset in seeded.sample(range(1000), count)]
        last: dict[str | None, int] = {}
        for row in sorted(range(count), key=lambda row: places[row]):
            last[keys[row]] = row
        expected = None if len(last) == count else sorted(last.values())
        order = {"partition": [place[0] for place in places], "offset": [place[1] for place in places]}
        assert chosen({"id": pa.array(keys, pa.string())}, order) == expected
