"""A merge searches all files that may hold a key, and no other if that can be told."""

import random
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cordwood.pipelines.tables.merge_rules import MAX_RANGES, FileBounds, MergeScope, merge_scope  # noqa: E402


def scope(keys: list[Any], files: list[tuple[Any, Any]]) -> MergeScope:
    return merge_scope(
        pa.chunked_array([keys[:1], keys[1:]], pa.array(keys).type), [FileBounds(*each) for each in files]
    )


def test_keys_that_no_file_can_hold_are_looked_for_in_none() -> None:
    found = scope(["m", "n"], [("a", "c"), ("x", "z")])
    assert found == MergeScope(0, ())
    assert found.condition("id", '"') == "false"
    assert scope([7], []).condition("id", '"') == "false"


def test_a_file_between_the_least_and_the_greatest_key_may_hold_none_of_them() -> None:
    assert scope([1, 2, 95], [(0, 10), (40, 60), (90, 99)]) == MergeScope(2, ((1, 2), (95, 95)))


def test_ranges_with_no_file_between_them_are_one() -> None:
    files = [(first, first + 9) for first in range(0, 110, 10)]
    assert scope(list(range(5, 100, 10)), files) == MergeScope(10, ((5, 95),))
    assert scope([5, 15, 35, 45], files) == MergeScope(4, ((5, 15), (35, 45)))
    assert scope([5, 95], [(0, 9), (3, 99), (40, 50)]) == MergeScope(2, ((5, 95),)), "one file reaches over the gap"


def test_a_file_of_unknown_bounds_may_hold_any_key() -> None:
    assert scope([1, 50], [(0, 10), (None, None), (60, 70)]) == MergeScope(2, ((1, 50),))


def test_a_batch_that_touches_every_file_has_none_to_pass_over() -> None:
    assert scope([1, 50], [(0, 10), (40, 60)]) == MergeScope(2, None)
    assert scope([1, 50], [(0, 10), (None, None)]) == MergeScope(2, None)


def test_keys_of_other_kinds_are_looked_for_everywhere() -> None:
    found = scope([1.5, 2.5], [(3.0, 4.0)])
    assert found == MergeScope(1, None)
    assert found.condition("id", '"') is None


def test_a_condition_holds_text_as_it_is_and_none_of_unusual_length() -> None:
    assert scope(["o'clock"], [("a", "z"), ("A", "Z")]).condition('odd"name', '"') == (
        """((t."odd""name" >= 'o''clock' and t."odd""name" <= 'o''clock'))"""
    )
    assert scope(["k" * 1000], [("a", "z"), ("A", "Z")]).ranges is None


def test_every_key_that_a_file_may_hold_is_within_the_ranges() -> None:
    seeded = random.Random(11)
    for _ in range(100):
        keys = seeded.sample(range(10_000), seeded.randrange(1, 200))
        files = [(begin, begin + seeded.randrange(300)) for begin in seeded.sample(range(10_000), seeded.randrange(80))]
        found = scope(keys, [*files, (20_000, 20_001)])
        assert found.ranges is not None
        assert len(found.ranges) <= MAX_RANGES
        held = [key for key in keys if any(least <= key <= greatest for least, greatest in files)]
        assert all(any(least <= key <= greatest for least, greatest in found.ranges) for key in held)
        assert found.files == sum(any(least <= key <= greatest for key in keys) for least, greatest in files)
