"""Tables with a key: one row of each key is staged in one pass, and a merge reads the files that may hold a key."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import table
from cordwood.pipelines.formats.table_formats import rows_of
from cordwood.pipelines.tables import keyed_rows
from cordwood.pipelines.tables.delta import DeltaBatches, delta_snapshot
from cordwood.pipelines.tables.staged import Change


def numbered(spark: SparkSession, first: int, end: int, *, keys: int | None = None, tasks: int = 4) -> DataFrame:
    """Rows from records of one partition, in several tasks; the key is the number, or its remainder."""
    key = F.col("id") if keys is None else F.col("id") % keys
    record = F.struct(
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(False).alias("tombstone"),
    )
    return spark.range(first, end, 1, tasks).select(key.alias("k"), F.col("id").alias("n"), record.alias("_record"))


def opened(directory: Path, latest_by: tuple[str, ...] = ()) -> DeltaBatches:
    return DeltaBatches(directory / "t", table("t", key="k", latest_by=latest_by), directory / "staging")


def content(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    found = delta_snapshot(directory / "t")
    assert found is not None
    return sorted((row["k"], row["n"]) for row in rows_of(spark, found).collect())


@pytest.mark.parametrize("driver_rows", [4_000_000, 10])
def test_the_last_row_of_a_key_is_found_across_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_rows: int
) -> None:
    monkeypatch.setattr(keyed_rows, "MAX_DRIVER_ROWS", driver_rows)
    batches = opened(tmp_path)
    staged = batches.stage(numbered(spark, 0, 1000, keys=7))
    assert staged.rows == 7
    batches.commit(staged, "q", 0)
    assert content(spark, tmp_path) == [(key, max(n for n in range(1000) if n % 7 == key)) for key in range(7)]
    batches.commit(batches.stage(numbered(spark, 1000, 1200).repartition(3)), "q", 1)
    assert len(content(spark, tmp_path)) == 207


def test_rows_that_come_without_an_order_are_refused_only_if_a_key_repeats(spark: SparkSession, tmp_path: Path) -> None:
    batches = opened(tmp_path)
    assert batches.stage(numbered(spark, 0, 100).drop("_record")).rows == 100
    with pytest.raises(InvalidRows, match="several rows of one k"):
        batches.stage(numbered(spark, 0, 100, keys=99).drop("_record"))


def test_a_struct_of_plain_values_orders_rows_and_an_array_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 1L as k, id as n, named_struct('a', id % 2, 'b', -id) as at from range(6)")
    batches = opened(tmp_path, latest_by=("at",))
    batches.commit(batches.stage(rows), "q", 0)
    assert content(spark, tmp_path) == [(1, 1)]
    with pytest.raises(InvalidRows, match="orders no rows"):
        opened(tmp_path / "other", latest_by=("at",)).stage(rows.withColumn("at", F.array("n")))


def test_a_merge_reads_no_file_that_cannot_hold_a_key_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    batches = opened(tmp_path)
    for batch in range(3):
        change = batches.commit(batches.stage(numbered(spark, batch * 1000, batch * 1000 + 100)), "q", batch)
        assert (change.files_searched, change.files_rewritten) == (0, 0), "keys that are all new"
    found = delta_snapshot(tmp_path / "t")
    assert found is not None
    ours = [path for path in found.files if min(row["k"] for row in spark.read.parquet(str(path)).collect()) == 0]
    kept = {path: path.read_bytes() for path in found.files if path not in ours}
    for path in kept:
        path.write_bytes(b"no Parquet")
    change = batches.commit(batches.stage(numbered(spark, 5, 9).union(numbered(spark, 7000, 7010))), "q", 3)
    for path, data in kept.items():
        path.write_bytes(data)
    assert (change.files_searched, change.files_rewritten) == (1, 1)
    assert change.bytes_rewritten > 0
    assert change.bytes_added > 0
    expected = {batch * 1000 + number for batch in range(3) for number in range(100)} | set(range(7000, 7010))
    assert content(spark, tmp_path) == [(key, key) for key in sorted(expected)]


def test_a_batch_without_rows_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    batches = opened(tmp_path)
    assert batches.commit(batches.stage(numbered(spark, 0, 0)), "q", 0) == Change()


def test_a_late_row_does_not_bring_back_a_key_whose_delete_is_remembered(spark: SparkSession, tmp_path: Path) -> None:
    declared = table("t", key="k", latest_by="n", delete_when="gone", remember_deletes="7d")
    batches = DeltaBatches(tmp_path / "t", declared, tmp_path / "staging")
    events = [
        [(1, 10, False), (2, 10, False), (3, 10, False)],
        [(1, 20, True), (2, 20, True), (2, 30, False)],
        [(1, 15, False), (2, 25, False), (3, 11, False), (4, 1, False)],
    ]
    for batch_id, rows in enumerate(events):
        batches.commit(batches.stage(spark.createDataFrame(rows, "k long, n long, gone boolean")), "q", batch_id)
    assert content(spark, tmp_path) == [(2, 30), (3, 11), (4, 1)]
