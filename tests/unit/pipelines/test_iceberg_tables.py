"""Iceberg tables: a batch is one commit with its number, and a second writer of it is refused."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg.catalog.sql")

from pyiceberg.catalog.sql import SqlCatalog  # noqa: E402
from pyiceberg.exceptions import CommitFailedException  # noqa: E402
from pyiceberg.table import StaticTable  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.pipelines.definition.errors import InvalidDefinition, InvalidRows, WrongState  # noqa: E402
from cordwood.pipelines.definition.partitions import Partition, bucket, days, years  # noqa: E402
from cordwood.pipelines.definition.table_output import table  # noqa: E402
from cordwood.pipelines.tables import iceberg  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter, arrow_schema, write_partition  # noqa: E402
from cordwood.pipelines.tables.iceberg import IcebergBatches, iceberg_snapshot  # noqa: E402
from cordwood.pipelines.tables.iceberg_partitions import IcebergParting  # noqa: E402
from cordwood.pipelines.tables.parted_files import PartedFiles  # noqa: E402
from cordwood.pipelines.tables.staged import Staged, staged_as  # noqa: E402

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
    copies = ("version-hint.text", *(f"v{number}.metadata.json" for number in range(9)))
    written = {str(path) for path in (tmp_path / "t").rglob("*") if path.name not in ("catalog.db", *copies)}
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


AT = StructType([StructField("id", LongType()), StructField("at", TimestampType()), StructField("who", StringType())])


def parted(directory: Path, *partition_by: str | Partition) -> IcebergBatches:
    return IcebergBatches(directory / "t", table("t", format="iceberg", partition_by=partition_by), directory)


def add_parted(batches: IcebergBatches, rows: Sequence[dict[str, Any]], batch_id: int) -> None:
    batches.prepare(AT)
    made = PartedFiles(IcebergParting(batches._table.partition_by), batches.store, arrow_schema(AT))
    written = write_partition(iter([pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(AT))]), made)
    batches.commit(staged_as(written), "q", batch_id)


def test_readers_skip_the_partitions_that_they_do_not_ask_for(tmp_path: Path) -> None:
    batches = parted(tmp_path, days("at"), bucket(4, "id"), "who")
    whos = ["a/b", "50%", "ü", None]
    rows = [{"id": n, "at": datetime(2026, 1, 1 + n % 3, 23, n, tzinfo=UTC), "who": whos[n % 4]} for n in range(24)]
    add_parted(batches, rows[:12], 0)
    add_parted(batches, rows[12:], 1)
    read = SqlCatalog("cordwood", uri=f"sqlite:///{tmp_path}/t/catalog.db").load_table("cordwood.t")
    found = read.scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == rows
    assert [str(field.transform) for field in read.spec().fields] == ["day", "bucket[4]", "identity"]
    one = read.scan(row_filter="at >= '2026-01-02T00:00:00+00:00' and at < '2026-01-03T00:00:00+00:00' and id = 4")
    assert len(list(one.plan_files())) < len(list(read.scan().plan_files())) / 3
    assert [row["id"] for row in one.to_arrow().to_pylist()] == [4]
    assert sorted(row["id"] for row in read.scan(row_filter="who is null").to_arrow().to_pylist()) == [*range(3, 24, 4)]
    snapshot = iceberg_snapshot(tmp_path / "t")
    assert snapshot is not None
    assert snapshot.rows == 24


def test_an_iceberg_table_keeps_its_partitions_and_takes_only_fitting_ones(tmp_path: Path) -> None:
    batches = parted(tmp_path, days("at"))
    add_parted(batches, [{"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "who": None}], 0)
    with pytest.raises(InvalidRows, match=r"it is partitioned by days\(at\), and declared with years\(at\)"):
        parted(tmp_path, years("at")).prepare(AT)
    with pytest.raises(InvalidRows, match=r"cannot be partitioned by days\(id\): id is bigint"):
        parted(tmp_path / "other", days("id")).prepare(AT)
    assert not (tmp_path / "other").exists(), "nothing is made"


def test_readers_that_know_the_place_alone_find_the_present_rows(tmp_path: Path) -> None:
    """Also after a crash between the commit and what is published of it."""
    batches = opened(tmp_path)
    batches.commit(staged(batches, [{"id": "a", "n": 1}]), "q", 0)

    def seen() -> list[Any]:
        found: list[Any] = StaticTable.from_metadata(str(tmp_path / "t")).scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    assert seen() == ["a"]
    made = staged(batches, [{"id": "b", "n": 2}])
    batches._publish = lambda opened: None  # type: ignore[method-assign]
    batches.commit(made, "q", 1)
    assert seen() == ["a"]
    assert opened(tmp_path).last_batch("q") == 1
    assert seen() == ["a", "b"]


def test_copies_of_metadata_do_not_heap_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_KEPT_COPIES", 3)
    batches = opened(tmp_path)
    for batch_id in range(5):
        batches.commit(staged(batches, [{"id": "a", "n": batch_id}]), "q", batch_id)
    metadata = tmp_path / "t/metadata"
    last = int((metadata / "version-hint.text").read_text())
    (metadata / "v0.metadata.json").write_text("from before a crash")
    batches.tidy(int(time.time() * 1000))
    kept = sorted(path.name for path in metadata.glob("v*.metadata.json"))
    assert kept == [f"v{number}.metadata.json" for number in range(last - 2, last + 1)]


def test_a_table_whose_catalog_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    batches = opened(tmp_path)
    batches.commit(staged(batches, [{"id": "a", "n": 1}]), "q", 0)
    (tmp_path / "t/catalog.db").unlink()
    with pytest.raises(WrongState, match=r"the catalog of table t, .*catalog\.db, is gone, and the table at"):
        opened(tmp_path).last_batch("q")
