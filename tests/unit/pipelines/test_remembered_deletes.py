"""A delete is remembered for a time: a row that is older and comes later does not bring its key back."""

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable  # noqa: E402
from pyspark.sql.types import LongType, StringType, StructField, StructType  # noqa: E402

from cordwood.pipelines.definition.errors import InvalidDefinition, InvalidRows  # noqa: E402
from cordwood.pipelines.definition.table_output import table  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter, arrow_schema  # noqa: E402
from cordwood.pipelines.tables.delta import DeltaBatches  # noqa: E402
from cordwood.pipelines.tables.latest_rows import DELETED  # noqa: E402
from cordwood.pipelines.tables.staged import Staged  # noqa: E402
from cordwood.pipelines.tables.stores import LocalStore  # noqa: E402

COLUMNS = StructType([StructField("id", StringType()), StructField("at", LongType()), StructField("n", LongType())])
Row = tuple[str, int | None, bool]
"""Key, order, whether it deletes."""


class Late:
    """A table with late rows, whose batches are staged as the executors do, without Spark."""

    def __init__(self, directory: Path, remember: str | None = "7d") -> None:
        self.path = directory / "t"
        self._staging = directory / "staging"
        self._declared = table("t", key="id", latest_by="at", remember_deletes=remember)
        self.number = -1
        self.again()

    def again(self) -> None:
        """As after a restart."""
        self.batches = DeltaBatches(self.path, self._declared, self._staging)
        self.batches.prepare(COLUMNS)
        if self.batches._deletes is not None:
            self.batches._deletes.prepare(COLUMNS)

    def stage(self, *rows: Row) -> Staged:
        self._staging.mkdir(exist_ok=True)
        schema = arrow_schema(COLUMNS).append(pa.field(DELETED, pa.bool_()))
        files = []
        for some in (rows[:2], rows[2:]):
            if some:
                ids, times, deleted = (list(column) for column in zip(*some, strict=True))
                writer = FileWriter(LocalStore(self._staging, durably=False), schema)
                content: dict[str, Any] = {"id": ids, "at": times, "n": times, DELETED: deleted}
                writer.write(pa.RecordBatch.from_pydict(content, schema=schema))
                files.append(writer.close())
        return Staged(tuple(files), len(rows))

    def merge(self, *rows: Row) -> None:
        self.number += 1
        self.batches.commit(self.stage(*rows), "q", self.number)

    @property
    def rows(self) -> dict[str, int]:
        found = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        assert len(found) == len({row["id"] for row in found})
        return {row["id"]: row["at"] for row in found}


def test_an_older_row_that_comes_after_a_delete_stays_away(tmp_path: Path) -> None:
    late = Late(tmp_path)
    late.merge(("a", 1, False), ("b", 1, False), ("c", 1, False))
    late.merge(("a", 5, True), ("b", 5, True), ("z", 9, True))
    assert late.rows == {"c": 1}
    late.again()
    late.merge(("a", 4, False), ("b", 6, False), ("c", 2, False), ("d", 1, False), ("z", 8, False))
    assert late.rows == {"b": 6, "c": 2, "d": 1}, "z was deleted before it was ever there"
    late.merge(("a", 3, False))
    assert late.rows == {"b": 6, "c": 2, "d": 1}
    late.merge(("a", 5, False))
    assert late.rows == {"a": 5, "b": 6, "c": 2, "d": 1}, "a row as new as the delete comes after it"


def test_an_older_delete_that_comes_after_a_newer_one_forgets_nothing(tmp_path: Path) -> None:
    late = Late(tmp_path)
    late.merge(("a", 5, True))
    late.merge(("a", 2, True))
    late.merge(("a", 4, False))
    assert late.rows == {}


def test_a_tombstone_without_an_order_deletes_and_is_not_remembered(tmp_path: Path) -> None:
    late = Late(tmp_path)
    late.merge(("a", 5, True))
    late.merge(("a", 7, False))
    late.merge(("a", None, True))
    assert late.rows == {}
    late.merge(("a", 6, False))
    assert late.rows == {"a": 6}


def test_a_batch_that_was_interrupted_after_it_remembered_its_deletes_is_merged_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(tmp_path)
    late.merge(("a", 1, False), ("b", 1, False))
    batch: tuple[Row, ...] = (("a", 5, True), ("b", 2, False), ("c", 3, False))
    with monkeypatch.context() as killing:
        killing.setattr(DeltaBatches, "_replace_rows", _killed_unless_memory(DeltaBatches._replace_rows))
        with pytest.raises(KeyboardInterrupt):
            late.merge(*batch)
    assert late.rows == {"a": 1, "b": 1}
    late.again()
    assert late.batches.last_batch("q") == 0
    late.batches.commit(late.stage(*batch), "q", 1)
    assert late.rows == {"b": 2, "c": 3}
    late.merge(("a", 4, False))
    assert late.rows == {"b": 2, "c": 3}


def _killed_unless_memory(replace_rows: Any) -> Any:
    def killed(batches: DeltaBatches, *arguments: Any) -> Any:
        if batches._deletes is not None:
            raise KeyboardInterrupt
        return replace_rows(batches, *arguments)

    return killed


def test_deletes_are_forgotten_when_their_time_is_over_and_cleaning_spares_them(tmp_path: Path) -> None:
    late = Late(tmp_path, remember="1h")
    late.merge(("a", 1, False), ("b", 1, False))
    DeltaTable(late.path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    late.merge(("a", 5, True))
    kept = sorted((late.path / "_deleted").glob("*.parquet"))
    assert kept
    late.batches.tidy(now_ms=0)
    assert sorted((late.path / "_deleted").glob("*.parquet")) == kept
    late.merge(("a", 4, False))
    assert late.rows == {"b": 1}
    late.batches.tidy(now_ms=1 << 50)
    late.merge(("a", 4, False))
    assert late.rows == {"a": 4, "b": 1}


def test_without_the_option_a_deleted_key_is_not_remembered(tmp_path: Path) -> None:
    late = Late(tmp_path, remember=None)
    late.merge(("a", 5, True))
    late.merge(("a", 4, False))
    assert late.rows == {"a": 4}


def test_remembering_needs_an_order_of_plain_values(tmp_path: Path) -> None:
    with pytest.raises(InvalidDefinition, match="remember_deletes is for tables with latest_by="):
        table("t", key="id", remember_deletes="7d")
    with pytest.raises(InvalidDefinition, match="remember_deletes='soon'"):
        table("t", key="id", latest_by="at", remember_deletes="soon")
    late = Late(tmp_path)
    assert late.batches._deletes is not None
    with pytest.raises(InvalidRows, match="latest_by at is a struct"):
        late.batches._deletes.prepare(StructType([COLUMNS["id"], StructField("at", COLUMNS)]))
