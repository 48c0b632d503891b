"""Rows of a table in partitions: each file has rows of one, whatever the values are, and merges read only some."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.pipelines.comparison.in_process import compare_tables_here  # noqa: E402
from cordwood.pipelines.definition.errors import InvalidDefinition, InvalidRows  # noqa: E402
from cordwood.pipelines.definition.partitions import bucket, days, hours, truncate, years  # noqa: E402
from cordwood.pipelines.definition.table_output import Table, table  # noqa: E402
from cordwood.pipelines.tables import parted_files  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter, arrow_schema, write_partition  # noqa: E402
from cordwood.pipelines.tables.delta import DeltaBatches, delta_snapshot  # noqa: E402
from cordwood.pipelines.tables.delta_partitions import DeltaParting, check_partitions, check_values  # noqa: E402
from cordwood.pipelines.tables.iceberg_partitions import IcebergParting  # noqa: E402
from cordwood.pipelines.tables.latest_rows import DELETED  # noqa: E402
from cordwood.pipelines.tables.parted_files import PartedFiles  # noqa: E402
from cordwood.pipelines.tables.staged import Change, Staged, staged_as  # noqa: E402
from cordwood.pipelines.tables.stores import LocalStore  # noqa: E402

Row = tuple[Any, ...]
STRANGE = ["a/b", "50%", "a%2Fb", "x=y", "ü ñ", "a b", "#?&:*", "q'uo\"te", None]
KINDS: dict[str, tuple[DataType, list[Any]]] = {
    "text": (StringType(), STRANGE),
    "date": (DateType(), [date(2026, 1, 2), date(1969, 12, 31), None]),
    "number": (ShortType(), [1, -7, 0, None]),
    "long": (LongType(), [1 << 60, None]),
    "flag": (BooleanType(), [True, False, None]),
    "decimal": (DecimalType(10, 2), [Decimal("1.50"), Decimal("-2.00"), None]),
}


def schema(kind: DataType) -> StructType:
    return StructType([StructField("part", kind), StructField("n", LongType())])


class Partitioned:
    """A Delta table of its own and its batches, staged as the executors do, without Spark."""

    def __init__(self, directory: Path, declared: Table, columns: StructType) -> None:
        self.path = directory / "t"
        self._columns = columns
        self._declared = declared
        self._staging = directory / "staging"
        self._staging.mkdir(parents=True)
        self.batches = DeltaBatches(self.path, declared, self._staging)
        self._number = -1

    def add(self, rows: Iterable[Row]) -> Change:
        self._number += 1
        self.batches.prepare(self._columns)
        made = arrow_schema(self._columns)
        columns = [list(column) for column in zip(*rows, strict=True)]
        if not self._declared.key:
            files = PartedFiles(DeltaParting(self._declared.partition_columns), LocalStore(self.path), made)
            batch = pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, made, strict=True)], schema=made
            )
            return self.batches.commit(staged_as(write_partition(iter([batch]), files)), "tests", self._number)
        told = made.append(pa.field(DELETED, pa.bool_()))
        writer = FileWriter(LocalStore(self._staging, durably=False), told)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, told, strict=True)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=told))
        file = writer.close()
        return self.batches.commit(Staged((file,), file.rows), "tests", self._number)

    @property
    def rows(self) -> list[Row]:
        """The rows as another program reads them."""
        found = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=lambda row: row[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_all_kinds_are_read_as_they_were_after_adding_compacting_and_cleaning(
    tmp_path: Path, kind: str
) -> None:
    spark_type, values = KINDS[kind]
    made = Partitioned(tmp_path, table("t", partition_by="part"), schema(spark_type))
    expected = []
    for batch in range(24):
        rows = [(value, batch * 100 + n) for n, value in enumerate(values)]
        assert made.add(reversed(rows)).files_added == len(values)
        expected += rows
    assert made.rows == expected
    DeltaTable(made.path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    told = made.batches.tidy(now_ms=0)
    assert told == f"{24 * len(values)} files of table t made {len(values)}"
    assert made.rows == expected
    found = delta_snapshot(made.path)
    assert found is not None
    assert all(path.exists() for path in found.files)
    assert len(list(made.path.rglob("*.parquet"))) == len(values), "files that were replaced are removed"
    assert compare_tables_here("t", [], found, found, samples=1).is_equal


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_whose_partition_changes_is_in_the_new_one_alone(tmp_path: Path, kind: str) -> None:
    spark_type, values = KINDS[kind]
    made = Partitioned(tmp_path, table("t", key="n", partition_by="part"), schema(spark_type))
    made.add((value, n, False) for n, value in enumerate(values))
    assert made.rows == list(zip(values, range(len(values)), strict=True))
    moved = [*values[1:], values[0]]
    change = made.add((value, n, False) for n, value in enumerate(moved))
    assert made.rows == list(zip(moved, range(len(values)), strict=True))
    assert change.files_rewritten == len(values)
    made.add([(None, 0, True)])
    assert made.rows == list(zip(moved, range(len(values)), strict=True))[1:]
    found = delta_snapshot(made.path)
    assert found is not None
    assert all(path.exists() for path in found.files)
    assert compare_tables_here("t", ["n"], found, found, samples=1).is_equal


@pytest.mark.parametrize("count", [1, 40])
def test_a_merge_reads_only_partitions_of_the_batch_if_the_key_has_their_columns(tmp_path: Path, count: int) -> None:
    declared = table("t", key=["part", "n"], partition_by="part")
    made = Partitioned(tmp_path, declared, schema(DateType()))
    days_ = [date.fromordinal(date(2026, 1, 1).toordinal() + n) for n in range(100)]
    made.add((day, n, False) for n in range(3) for day in days_)
    kept = {path: path.read_bytes() for day in days_[count:] for path in made.path.glob(f"part={day}/*.parquet")}
    assert len(kept) == 100 - count
    for path in kept:
        path.write_bytes(b"no Parquet")
    change = made.add((day, 2, True) for day in days_[:count])
    assert (change.files_searched, change.files_rewritten) == (count, count)
    for path, content in kept.items():
        path.write_bytes(content)
    assert len(made.rows) == 300 - count


def test_a_merge_into_partitions_that_the_key_lacks_searches_all_of_them_by_its_bounds(tmp_path: Path) -> None:
    made = Partitioned(tmp_path, table("t", key="n", partition_by="part"), schema(StringType()))
    made.add([("a", 1, False), ("a", 2, False), ("b", 11, False), ("b", 12, False)])
    change = made.add([("c", 2, False)])
    assert (change.files_searched, change.files_rewritten, change.files_added) == (1, 1, 2)
    assert made.rows == [("a", 1), ("c", 2), ("b", 11), ("b", 12)]


def test_files_of_partitions_and_their_directories_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = StructType(
        [StructField("part", StringType()), StructField("day", DateType()), StructField("n", LongType())]
    )
    made = Partitioned(tmp_path, table("t", key="n", partition_by=["part", "day"]), columns)
    synced: set[str] = set()
    sync: Callable[[int], None] = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    made.add((value, date(2026, 1, 1), n, False) for n, value in enumerate(STRANGE))
    files = list(made.path.rglob("*.parquet"))
    assert len(files) == len(STRANGE)
    assert {str(each) for file in files for each in (file, file.parent, file.parent.parent)} <= synced


def test_only_partitions_with_many_small_files_are_compacted(tmp_path: Path) -> None:
    made = Partitioned(tmp_path, table("t", partition_by="part"), schema(StringType()))
    for n in range(24):
        made.add([("often", n)] if n % 2 else [("often", n), ("seldom", n)])
    assert made.batches.tidy(now_ms=0) == "24 files of table t made 1"
    assert len(DeltaTable(made.path).file_uris()) == 13


def test_a_table_keeps_its_partitions(tmp_path: Path) -> None:
    columns = schema(StringType())
    Partitioned(tmp_path / "one", table("t", partition_by="part"), columns).add([("a", 1)])
    other = DeltaBatches(tmp_path / "one/t", table("t"), tmp_path / "one/staging")
    with pytest.raises(InvalidRows, match="it is partitioned by part, and declared with nothing"):
        other.prepare(columns)


@pytest.mark.parametrize(
    ("kind", "why"),
    [(TimestampType(), "which is timestamp"), (DoubleType(), "which is double")],
)
def test_columns_that_delta_has_no_partitions_for_are_refused(kind: DataType, why: str) -> None:
    with pytest.raises(InvalidRows, match=why) as refused:
        check_partitions(schema(kind), table("t", partition_by="part"), None)
    assert ("to_date(part)" in refused.value.hint) is isinstance(kind, TimestampType)
    with pytest.raises(InvalidRows, match="no column day to partition by, only part, n"):
        check_partitions(schema(kind), table("t", partition_by="day"), None)
    with pytest.raises(InvalidRows, match="no column but those"):
        check_partitions(schema(LongType()), table("t", partition_by=["part", "n"]), None)


def test_a_value_that_no_directory_can_be_named_after_is_refused() -> None:
    check_values(table("t", partition_by="part"), [("x" * 200,), (None,)])
    with pytest.raises(InvalidRows, match="a part of 100 characters: üüü"):
        check_values(table("t", partition_by="part"), [("ü" * 100,)])


def test_a_task_has_few_files_open_and_stops_at_too_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parted_files, "MAX_PARTITIONS", 100)
    made = arrow_schema(schema(LongType()))

    def files_of(partitions: int) -> tuple[PartedFiles, Sequence[Any]]:
        files = PartedFiles(DeltaParting(("part",)), LocalStore(tmp_path), made)
        numbers = pa.array(range(1000), pa.int64())
        parts = pa.array([n % partitions for n in range(1000)], pa.int64())
        files.write(pa.RecordBatch.from_arrays([parts, numbers], schema=made))
        files._write_gathered()
        assert len(files._open) <= 32
        return files, files.close()

    files, written = files_of(100)
    assert not files.is_full
    assert sorted(file.values for file in written) == sorted((str(n),) for n in range(100))
    assert {file.rows for file in written} == {10}
    files, written = files_of(101)
    assert files.is_full


def test_transforms_give_what_icebergs_specification_says() -> None:
    at = [datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, tzinfo=UTC), None]
    rows = pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "id": pa.array([34, 0, None], pa.int64()),
            "name": pa.array(["iceberg", "", None]),
        }
    )
    parts = (years("at"), days("at"), hours("at"), bucket(2000, "id"), bucket(2000, "name"), truncate(3, "name"))
    found = [column.to_pylist() for column in IcebergParting(parts).values(rows)]
    assert found[0] == [47, -1, None]
    assert found[1] == [17486, -1, None]
    assert found[2] == [17486 * 24 + 22, -1, None]
    # The specification's hashes of 34 and of "iceberg".
    assert found[3][0] == (2017239379 & 0x7FFFFFFF) % 2000
    assert found[3][1] is not None, "zero has a bucket"
    assert found[4][0] == (1210000089 & 0x7FFFFFFF) % 2000
    assert found[5] == ["ice", "", None]


def test_declarations_that_mean_nothing_are_refused() -> None:
    declared = table("t", format="iceberg", partition_by=["day", bucket(16, "id")])
    assert [str(each) for each in declared.partition_by] == ["day", "bucket(16, id)"]
    with pytest.raises(InvalidDefinition, match=r"Delta partitions by columns only, not by days\(at\)"):
        table("t", partition_by=days("at"))
    with pytest.raises(InvalidDefinition, match="partition_by has day twice"):
        table("t", partition_by=["day", "day"])
    with pytest.raises(InvalidDefinition, match=r"'a\.b' cannot be partitioned by"):
        table("t", partition_by="a.b")
    with pytest.raises(InvalidDefinition, match="bucket: 0 is not a number from 1"):
        bucket(0, "id")
    with pytest.raises(InvalidDefinition, match="partition_by=3"):
        table("t", partition_by=[3])  # type: ignore[list-item]
