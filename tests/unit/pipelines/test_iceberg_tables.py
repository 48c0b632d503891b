"""Iceberg tables: a batch is one commit with its number, and a second writer of it is refused."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg.catalog.sql")

from pyiceberg.catalog.sql import SqlCatalog  # noqa: E402
from pyiceberg.exceptions import CommitFailedException  # noqa: E402
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType  # noqa: E402

from cordwood.pipelines.definition.definition import table  # noqa: E402
from cordwood.pipelines.definition.errors import InvalidDefinition, InvalidRows  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter, arrow_schema  # noqa: E402
from cordwood.pipelines.tables.iceberg import IcebergBatches, iceberg_snapshot  # noqa: E402
from cordwood.pipelines.tables.staged import Staged  # noqa: E402

ROWS = StructType([StructField("id", StringType()), StructField("n", LongType())])
DAY_MS = 24 * 3_600_000


def opened(directory: Path) -> IcebergBatches:
    return IcebergBatches(directory / "t", table("t", format="iceberg"), directory)


def staged(batches: IcebergBatches, rows: Sequence[dict[str, Any]], schema: StructType = ROWS) -> Staged:
    """Stages rows as the executors do, without Spark."""
    batches.prepare(schema)
    writer = FileWriter(batches.store, arrow_schema(schema))
    writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema)))
    file = writer.close()
    return Staged((file,), file.rows)


def content(directory: Path) -> list[dict[str, Any]]:
    """The table's rows as another program reads them."""
    catalog = SqlCatalog("cordwood", uri=f"sqlite:///{directory}/t/catalog.db")
    found: list[dict[str, Any]] = catalog.load_table("cordwood.t").scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def test_a_batch_and_its_number_are_one_commit(tmp_path: Path) -> None:
    assert opened(tmp_path).last_batch("q") is None
    assert iceberg_snapshot(tmp_path / "t") is None
    for batch_id in range(3):
        batches = opened(tmp_path)
        change = batches.commit(staged(batches, [{"id": f"o{batch_id}", "n": batch_id}]), "q", batch_id)
        assert change.files_added == 1
        assert opened(tmp_path).last_batch("q") == batch_id
    assert opened(tmp_path).last_batch("another") is None
    assert content(tmp_path) == [{"id": f"o{n}", "n": n} for n in range(3)]


def test_the_second_of_two_writers_of_a_batch_is_refused(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.commit(staged(first, [{"id": "a", "n": 1}]), "q", 0)
    both = [staged(each, [{"id": "b", "n": 2}]) for each in (first, second)]
    stale = second.open()
    first.commit(both[0], "q", 1)
    second.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitFailedException):
        second.commit(both[1], "q", 1)
    assert content(tmp_path) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_a_commit_and_all_that_it_stands_on_is_synced_before_the_catalog_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync: Callable[[int], None] = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    batches = opened(tmp_path)
    batches.commit(staged(batches, [{"id": "a", "n": 1}]), "q", 0)
    written = {str(path) for path in (tmp_path / "t").rglob("*") if path.name != "catalog.db"}
    assert len(written) > 5
    assert written <= synced


def test_new_columns_are_added_and_no_type_changes(tmp_path: Path) -> None:
    batches = opened(tmp_path)
    batches.commit(staged(batches, [{"id": "a", "n": 1}]), "q", 0)
    wider = StructType([*ROWS, StructField("x", DoubleType())])
    batches.commit(staged(batches, [{"id": "b", "n": 2, "x": 0.5}], wider), "q", 1)
    batches.commit(staged(batches, [{"id": "c", "n": 3}]), "q", 2)
    assert [row["x"] for row in content(tmp_path)] == [None, 0.5, None]
    found = iceberg_snapshot(tmp_path / "t")
    assert found is not None
    assert (found.rows, found.schema.names) == (3, ["id", "n", "x"])
    with pytest.raises(InvalidRows, match="the column n was bigint and is now string"):
        batches.prepare(StructType([StructField("n", StringType())]))


def test_a_batch_is_known_after_its_snapshot_expired_and_leftovers_are_removed(tmp_path: Path) -> None:
    batches = opened(tmp_path)
    batches.commit(staged(batches, [{"id": "a", "n": 1}]), "early", 0)
    batches.commit(staged(batches, [{"id": "b", "n": 2}]), "q", 0)
    left = staged(batches, [{"id": "c", "n": 3}])
    now_ms = int(time.time() * 1000)
    batches.tidy(now_ms)
    assert len(list((tmp_path / "t/data").iterdir())) == 3, "a batch under way may be about to name it"
    batches.tidy(now_ms + 8 * DAY_MS)
    assert not (tmp_path / "t/data" / left.files[0].name).exists()
    assert len(batches.open().snapshots()) == 1
    assert batches.last_batch("early") == 0
    assert content(tmp_path) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_rows_of_an_iceberg_table_are_not_replaced_by_key() -> None:
    with pytest.raises(InvalidDefinition, match="rows of format iceberg are not replaced by key"):
        table("t", format="iceberg", key="id")
