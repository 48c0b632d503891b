"""Small editions compared without Spark: the differences, and how they are shown."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cordwood.pipelines.comparison.in_process import compare_tables_here
from cordwood.pipelines.tables.delta import delta_snapshot
from cordwood.pipelines.tables.staged import Snapshot


def table(path: Path, *files: dict[str, list[Any]]) -> Snapshot:
    """A table that was written file by file; later files may have more columns."""
    for number, columns in enumerate(files):
        write_deltalake(path, pa.table(columns), mode="append", schema_mode="merge" if number else None)
    found = delta_snapshot(path)
    assert found is not None
    return found


def test_rows_are_matched_by_key_and_shown_with_what_differs(tmp_path: Path) -> None:
    live = table(tmp_path / "a", {"id": ["a", "b", "c"], "n": [1, 2, 3], "at": ["x", "x", "x"]})
    fresh = table(tmp_path / "b", {"id": ["b", "c", "d"], "n": [2, 30, 4], "at": ["x", "x", "x"]})
    found = compare_tables_here("t", ["id"], live, fresh, samples=5)
    assert (found.live_rows, found.fresh_rows) == (3, 3)
    assert (found.only_live, found.only_fresh, found.changed) == (1, 1, 1)
    assert found.samples == [
        {"kind": "changed", "key": {"id": "c"}, "live": {"n": 3}, "fresh": {"n": 30}},
        {"kind": "only live", "key": {"id": "a"}, "live": {"n": 1, "at": "x"}},
        {"kind": "only fresh", "key": {"id": "d"}, "fresh": {"n": 4, "at": "x"}},
    ]


def test_rows_without_a_key_are_counted_by_what_they_say(tmp_path: Path) -> None:
    live = table(tmp_path / "a", {"n": [1, 1, 1, 2]})
    fresh = table(tmp_path / "b", {"n": [1, 2, 2]})
    found = compare_tables_here("t", [], live, fresh, samples=5)
    assert (found.only_live, found.only_fresh, found.changed) == (2, 1, 0)


@pytest.mark.parametrize(
    "column", [[math.nan, 1.0], [[1, 2], None], [{"a": {"b": 1}}, {"a": None}], [b"\x00\xff", b""], [None, "text"]]
)
def test_equal_values_of_any_type_are_no_difference(tmp_path: Path, column: list[Any]) -> None:
    rows = {"id": [1, 2], "value": column}
    found = compare_tables_here("t", ["id"], table(tmp_path / "a", rows), table(tmp_path / "b", rows), samples=5)
    assert found.is_equal


def test_a_nested_value_that_differs_is_shown_as_it_is(tmp_path: Path) -> None:
    live = table(tmp_path / "a", {"id": [1], "value": [{"a": [1, 2]}]})
    fresh = table(tmp_path / "b", {"id": [1], "value": [{"a": [1, 3]}]})
    (sample,) = compare_tables_here("t", ["id"], live, fresh, samples=5).samples
    assert (sample["live"], sample["fresh"]) == ({"value": {"a": [1, 2]}}, {"value": {"a": [1, 3]}})


def test_a_file_that_is_older_than_a_column_has_nulls_in_it(tmp_path: Path) -> None:
    live = table(tmp_path / "a", {"id": [1]}, {"id": [2], "n": [2]})
    fresh = table(tmp_path / "b", {"id": [1, 2], "n": pa.array([None, 2], pa.int64())})
    assert compare_tables_here("t", ["id"], live, fresh, samples=5).is_equal
