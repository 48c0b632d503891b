"""Staged rows, merged into a Delta table in the driver: they replace, delete and add rows."""

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

from deltalake import DeltaTable  # noqa: E402

from cordwood.pipelines.definition.table_output import Table, table  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter  # noqa: E402
from cordwood.pipelines.tables.delta import DeltaBatches  # noqa: E402
from cordwood.pipelines.tables.latest_rows import DELETED  # noqa: E402
from cordwood.pipelines.tables.staged import Change, Staged  # noqa: E402
from cordwood.pipelines.tables.stores import LocalStore  # noqa: E402

COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.int64())])
Row = tuple[int, int | None, bool]


class Merges:
    """A table of its own, and batches that are merged into it."""

    def __init__(self, directory: Path, declared: Table) -> None:
        self._staging = directory / "staging"
        self._staging.mkdir()
        self._table = directory / "table"
        DeltaTable.create(str(self._table), COLUMNS)
        self._batches = DeltaBatches(self._table, declared, self._staging)
        self._number = -1

    def merge(self, *rows: Row) -> Change:
        self._number += 1
        schema = COLUMNS.append(pa.field(DELETED, pa.bool_()))
        writer = FileWriter(LocalStore(self._staging, durably=False), schema)
        ids, times, deleted = zip(*rows, strict=True)
        writer.write(pa.RecordBatch.from_pydict({"id": ids, "at": times, DELETED: deleted}, schema=schema))
        file = writer.close()
        return self._batches.commit(Staged((file,), file.rows), "tests", self._number)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        found = DeltaTable(self._table).to_pyarrow_table()
        return sorted(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True))


def test_rows_replace_and_add_and_then_delete(tmp_path: Path) -> None:
    merges = Merges(tmp_path, table("t", key="id"))
    merges.merge((1, 10, False), (2, 20, False))
    merges.merge((2, 21, False), (3, 30, False))
    assert merges.rows == [(1, 10), (2, 21), (3, 30)]
    merges.merge((1, None, True), (3, 31, False), (9, None, True))
    assert merges.rows == [(2, 21), (3, 31)]


def test_a_row_that_is_older_than_the_one_in_the_table_does_not_replace_it(tmp_path: Path) -> None:
    merges = Merges(tmp_path, table("t", key="id", latest_by="at"))
    merges.merge((1, 10, False), (2, 20, False))
    merges.merge((1, 9, False), (2, 21, False))
    assert merges.rows == [(1, 10), (2, 21)]


def test_a_merge_leaves_files_alone_that_hold_no_key_of_the_batch(tmp_path: Path) -> None:
    merges = Merges(tmp_path, table("t", key="id"))
    merges.merge((1, 10, False), (2, 20, False))
    merges.merge((100, 1, False), (101, 2, False))
    change = merges.merge((100, 5, False))
    assert (change.files_searched, change.files_rewritten) == (1, 1)
    change = merges.merge((2, 7, False), (101, 7, False))
    assert (change.files_searched, change.files_rewritten) == (2, 2)
    assert merges.rows == [(1, 10), (2, 7), (100, 5), (101, 7)]
