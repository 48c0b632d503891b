"""Tables that batches are written to: whole, once, in order per key, and in few files."""

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from json import loads
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession

from cordwood.pipelines.comparison.on_spark import compare
from cordwood.pipelines.definition.definition import topic
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.record_formats import json
from cordwood.pipelines.definition.table_output import OF_FILES, Table, TableFormat, table
from cordwood.pipelines.formats.table_formats import rows_of, snapshot, writer
from cordwood.pipelines.rows.encoding import records
from cordwood.pipelines.tables.delta import DeltaBatches
from cordwood.pipelines.tables.staged import MANY_SMALL_FILES, BatchTable
from cordwood.pipelines.tables.stores import LocalStore

ROWS = "id string, n int, day date"
RECORDED = f"{ROWS}, _record struct<topic: string, partition: int, offset: long, key: binary, tombstone: boolean>"


def opened(directory: Path, declared: Table) -> BatchTable:
    return writer(directory, declared, directory.parent / "staging")


def write(batches: BatchTable, rows: DataFrame, batch_id: int, application: str = "query") -> None:
    last = batches.last_batch(application)
    if last is None or last < batch_id:
        batches.commit(batches.stage(rows), application, batch_id)


def content(spark: SparkSession, directory: Path, format_: TableFormat = TableFormat.DELTA) -> list[tuple[Any, ...]]:
    found = snapshot(directory, format_)
    assert found is not None
    rows = sorted(tuple(row) for row in rows_of(spark, found).collect())
    assert len(rows) == found.rows
    return rows


def plain(spark: SparkSession, numbers: Iterable[int]) -> DataFrame:
    return spark.createDataFrame([(f"k{number}", number, None) for number in numbers], ROWS)


Event = tuple[str, int | None, int, int]
"""Key, number (None deletes), partition, offset."""


def recorded(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    rows = [
        (None if number is None else key, number, None, ("t", partition, offset, key.encode(), number is None))
        for key, number, partition, offset in events
    ]
    return spark.createDataFrame(rows, RECORDED)


@pytest.mark.parametrize("format_", OF_FILES)
def test_rows_are_added_once_per_batch_and_application(
    spark: SparkSession, tmp_path: Path, format_: TableFormat
) -> None:
    directory = tmp_path / "t"
    declared = table("t", format=format_.value)
    assert snapshot(directory, format_) is None
    write(opened(directory, declared), plain(spark, [1, 2]), 0)
    write(opened(directory, declared), plain(spark, [3]), 1)
    write(opened(directory, declared), plain(spark, [99]), 1)  # repeated after a restart: the batch is done already
    write(opened(directory, declared), plain(spark, []), 2)
    write(opened(directory, declared), plain(spark, [4]), 0, application="another")
    assert [row[1] for row in content(spark, directory, format_)] == [1, 2, 3, 4]


@pytest.mark.parametrize("format_", OF_FILES)
def test_a_column_that_is_never_null_may_be_so_in_a_later_batch(
    spark: SparkSession, tmp_path: Path, format_: TableFormat
) -> None:
    directory, declared = tmp_path / "t", table("t", format=format_.value)
    write(opened(directory, declared), spark.sql("select 1 as n, 'never' as said"), 0)
    write(opened(directory, declared), spark.sql("select 2 as n, cast(null as string) as said"), 1)
    assert content(spark, directory, format_) == [(1, "never"), (2, None)]


def test_timestamps_are_compared_and_sent_to_the_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    def row(microseconds: int) -> DataFrame:
        return spark.sql(f"select 'a' as id, timestamp'2026-01-01 00:00:00.{microseconds:06}Z' as at")

    found = []
    for name, microseconds in (("one", 123_456), ("two", 123_856)):
        write(opened(tmp_path / name, table(name)), row(microseconds), 0)
        found.append(snapshot(tmp_path / name, TableFormat.DELTA))
    one, two = found
    assert one is not None
    assert two is not None
    assert compare(spark, "t", ["id"], one, two, samples=1).changed == 1
    (sent,) = records(row(123_456), replace(topic("t", key="id"), value=json())).collect()
    at = datetime.fromisoformat(loads(bytes(sent["value"]))["at"])
    assert at == datetime(2026, 1, 1, microsecond=123_456, tzinfo=UTC)


@pytest.mark.parametrize("format_", OF_FILES)
def test_nothing_is_visible_before_the_commit_and_what_is_discarded_is_gone(
    spark: SparkSession, tmp_path: Path, format_: TableFormat
) -> None:
    directory = tmp_path / "t"
    batches = opened(directory, table("t", format=format_.value))
    write(batches, plain(spark, [1]), 0)
    staged = batches.stage(plain(spark, range(2, 1000)))
    assert staged.rows == 998
    assert [row[1] for row in content(spark, directory, format_)] == [1]
    batches.discard(staged)
    assert len(list(directory.rglob("*.parquet"))) == 1


@pytest.mark.usefixtures("merged_by")
def test_the_last_row_of_a_key_stays_and_tombstones_delete(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    declared = table("t", key="id")
    first: list[Event] = [("a", 1, 0, 5), ("b", 2, 0, 6), ("a", 3, 0, 7), ("c", 4, 1, 1), ("d", 5, 1, 2)]
    write(opened(directory, declared), recorded(spark, first), 0)
    assert [row[:2] for row in content(spark, directory)] == [("a", 3), ("b", 2), ("c", 4), ("d", 5)]
    second: list[Event] = [("b", None, 0, 8), ("c", None, 1, 3), ("c", 40, 1, 4), ("d", 50, 1, 5), ("d", None, 1, 6)]
    second += [("e", None, 1, 7), ("f", 6, 1, 8)]
    write(opened(directory, declared), recorded(spark, second), 1)
    write(opened(directory, declared), recorded(spark, [("a", 99, 0, 9)]), 1)
    assert [row[:2] for row in content(spark, directory)] == [("a", 3), ("c", 40), ("f", 6)]
    assert not list((tmp_path / "staging").glob("*"))


@pytest.mark.usefixtures("merged_by")
def test_a_row_that_came_from_no_record_is_a_row_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of an outer join may have a null `_record`, which is no tombstone."""
    directory = tmp_path / "t"
    write(opened(directory, table("t", key="id")), spark.createDataFrame([("a", 1, None, None)], RECORDED), 0)
    write(opened(directory, table("t", key="id")), spark.createDataFrame([("a", 2, None, None)], RECORDED), 1)
    assert [row[:2] for row in content(spark, directory)] == [("a", 2)]
    joined = spark.createDataFrame([("a", 3, None, None)], RECORDED)
    (sent,) = records(joined, replace(topic("t", key="id"), value=json())).collect()
    assert (bytes(sent["key"]), bytes(sent["value"])) == (b"a", b'{"id":"a","n":3}')


@pytest.mark.usefixtures("merged_by")
def test_a_commit_and_all_that_it_stands_on_is_synced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    directory = tmp_path / "tables" / "t"
    batches = opened(directory, table("t", key="id"))
    batches.stage(plain(spark, [1]))
    DeltaTable(directory).alter.set_table_properties({"delta.checkpointInterval": "2"})
    write(batches, plain(spark, [1]), 0)
    write(batches, spark.createDataFrame([("b", 2, "x")], "id string, n int, m string"), 1)
    log = directory / "_delta_log"
    written = {path.name for path in log.iterdir() if not path.name.startswith(f"{1:020}")}  # that was the test
    assert {name for name in written if name.endswith(".json")} == {f"{version:020}.json" for version in (0, 2, 3, 4)}
    assert {"_last_checkpoint", f"{3:020}.checkpoint.parquet"} <= written
    files = [*directory.glob("*.parquet"), *(log / name for name in written)]
    assert set(map(str, [*files, log, directory, *directory.parents[:2]])) <= synced


def test_what_a_writer_committed_who_was_killed_before_he_synced_it_is_synced_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is committed, so no writer commits it again: a power cut must not take it back either."""
    directory = tmp_path / "t"
    killed = opened(directory, table("t"))
    write(killed, plain(spark, [1]), 0)
    staged = killed.stage(plain(spark, [2]))
    synced: set[str] = set()
    with monkeypatch.context() as killing:
        killing.setattr(LocalStore, "make_durable", lambda *_: None)
        killed.commit(staged, "query", 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.readlink(f"/proc/self/fd/{descriptor}")))
    assert opened(directory, table("t")).last_batch("query") == 1
    log = directory / "_delta_log"
    files = [directory / file.name for file in staged.files]
    assert set(map(str, [*files, log / f"{2:020}.json", log, directory])) <= synced


@pytest.mark.landing
@pytest.mark.usefixtures("merged_by")
def test_a_table_is_what_folding_all_events_by_key_gives(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    declared = table("t", key="id")
    chance = random.Random(7)
    state: dict[str, int] = {}
    offset = 0
    for batch_id in range(4):
        events: list[Event] = []
        for _ in range(200):
            key, number = f"k{chance.randrange(60)}", chance.choice([None, chance.randrange(1000)])
            events.append((key, number, 0, offset))
            offset += 1
            if number is None:
                state.pop(key, None)
            else:
                state[key] = number
        chance.shuffle(events)
        write(opened(directory, declared), recorded(spark, events), batch_id)
        assert {row[0]: row[1] for row in content(spark, directory)} == state


@pytest.mark.usefixtures("merged_by")
def test_the_last_row_can_be_told_by_columns_and_deletes_by_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    declared = table("t", key=["id", "Tenant"], latest_by="n", delete_when="n > 100")
    rows = [("a", "x", 5), ("a", "x", 3), ("a", "y", 1), ("b", "x", 101)]
    write(opened(directory, declared), spark.createDataFrame(rows, "id string, Tenant string, n int"), 0)
    assert content(spark, directory) == [("a", "x", 5), ("a", "y", 1)]
    more = [("a", "x", 500), ("a", "y", 2)]
    write(opened(directory, declared), spark.createDataFrame(more, "id string, Tenant string, n int"), 1)
    assert content(spark, directory) == [("a", "y", 2)]


@pytest.mark.usefixtures("merged_by")
def test_which_row_is_the_last_does_not_depend_on_where_batches_end(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id string, a int, b string, gone boolean"
    declared = table("t", key="id", latest_by=["a", "b"], delete_when="gone")
    rows = [
        ("later", 2, "y", False),
        ("later", 1, "z", False),
        ("later", 2, "x", False),
        ("again", 1, None, False),
        ("again", 1, "x", False),
        ("again", None, "z", False),
        ("equal", 1, "x", False),
        ("kept", 5, "x", False),
        ("kept", 4, "x", True),
        ("gone", 5, "x", False),
        ("gone", 6, "x", True),
    ]
    for size in (2, len(rows)):
        directory = tmp_path / str(size)
        for batch_id, first in enumerate(range(0, len(rows), size)):
            write(opened(directory, declared), spark.createDataFrame(rows[first : first + size], schema), batch_id)
        found = [row[:3] for row in content(spark, directory)]
        assert found == [("again", 1, "x"), ("equal", 1, "x"), ("kept", 5, "x"), ("later", 2, "y")], size


def test_rows_that_a_table_cannot_take_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    batches = opened(tmp_path / "t", table("t", key="id"))
    with pytest.raises(InvalidRows, match="several rows of one id"):
        batches.stage(plain(spark, [1, 1]))
    with pytest.raises(InvalidRows, match="no column id, only n"):
        batches.stage(spark.createDataFrame([(1,)], "n int"))
    with pytest.raises(InvalidRows, match="the key id is struct<no:int>, and rows are found by plain values only"):
        batches.stage(spark.createDataFrame([((1,), 1)], "id struct<no: int>, n int"))
    assert batches.stage(spark.createDataFrame([(None, 1, None), ("a", 1, None)], ROWS)).null_keys == 1
    with pytest.raises(InvalidRows, match="the column n was int and is now string"):
        batches.stage(spark.createDataFrame([("a", "x")], "id string, n string"))


@pytest.mark.usefixtures("merged_by")
def test_new_columns_are_added_to_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    for declared in (table("t"), table("t", key="id")):
        shutil.rmtree(directory, ignore_errors=True)
        write(opened(directory, declared), spark.createDataFrame([("a", 1)], "id string, n int"), 0)
        write(opened(directory, declared), spark.createDataFrame([("b", 2, "x")], "id string, n int, m string"), 1)
        assert content(spark, directory) == [("a", 1, None), ("b", 2, "x")]


def test_two_writers_of_one_application_cannot_both_commit_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    declared = table("t")
    write(opened(directory, declared), plain(spark, [1]), 0)
    first, second = opened(directory, declared), opened(directory, declared)
    staged = [first.stage(plain(spark, [2])), second.stage(plain(spark, [2]))]
    stale = DeltaTable(directory)
    first.commit(staged[0], "query", 1)
    assert isinstance(second, DeltaBatches)
    second.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError):
        second.commit(staged[1], "query", 1)
    assert [row[1] for row in content(spark, directory)] == [1, 2]


@pytest.mark.usefixtures("merged_by")
def test_two_writers_of_one_application_cannot_both_merge_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    declared = table("t", key="id")
    write(opened(directory, declared), plain(spark, [1]), 0)
    first, second = (DeltaBatches(directory, declared, tmp_path / name) for name in ("one", "two"))
    staged = first.stage(plain(spark, [1, 2])), second.stage(plain(spark, [1, 3]))
    stale = DeltaTable(directory)
    first.commit(staged[0], "query", 1)
    second.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError):
        second.commit(staged[1], "query", 1)
    assert [row[1] for row in content(spark, directory)] == [1, 2]


@pytest.mark.usefixtures("merged_by")
def test_a_batch_may_lack_columns_of_the_table_or_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    batches = opened(directory, table("t", key="id", delete_when="n < 0"))
    write(batches, spark.createDataFrame([("a", 1, "x"), ("b", 2, "y")], "id string, n int, m string"), 0)
    write(batches, spark.createDataFrame([("a", 3), ("c", 4)], "id string, n int"), 1)
    assert content(spark, directory) == [("a", 3, "x"), ("b", 2, "y"), ("c", 4, None)]
    write(batches, spark.createDataFrame([("d", -1)], "id string, n int"), 2)
    write(batches, spark.createDataFrame([("a", -1)], "id string, n int"), 3)
    assert content(spark, directory) == [("b", 2, "y"), ("c", 4, None)]
    assert batches.last_batch("query") == 3


@pytest.mark.usefixtures("merged_by")
def test_names_may_have_any_characters(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "a b`c" / "t"
    declared = table("t", key="the-key", latest_by='n"of"it')
    rows = spark.createDataFrame([("a", 1), ("b", 2)], ["the-key", 'n"of"it'])
    write(opened(directory, declared), rows, 0)
    write(opened(directory, declared), spark.createDataFrame([("a", 0), ("b", 3)], rows.schema), 1)
    found = snapshot(directory, TableFormat.DELTA)
    assert found is not None
    assert all(path.exists() for path in found.files)
    assert sorted(tuple(row) for row in rows_of(spark, found).collect()) == [("a", 1), ("b", 3)]


def test_small_files_are_made_few_while_readers_keep_theirs(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    batches = opened(directory, table("t"))
    rows = plain(spark, range(100)).repartition(MANY_SMALL_FILES // 2)
    write(batches, rows, 0)
    assert batches.tidy(now_ms=0) is None
    write(batches, rows, 1)
    before = snapshot(directory, TableFormat.DELTA)
    assert before is not None
    assert len(before.files) >= MANY_SMALL_FILES
    assert f"files of table t made {1}" in str(batches.tidy(now_ms=0))
    after = snapshot(directory, TableFormat.DELTA)
    assert after is not None
    assert len(after.files) == 1
    numbers = [row[1] for row in content(spark, directory)]
    assert sorted(numbers) == sorted([*range(100), *range(100)])
    assert rows_of(spark, before).count() == 200, "the files of an older snapshot are still there"
    assert batches.last_batch("query") == 1, "compaction forgets no batch"


def test_files_that_merges_replaced_are_removed_though_there_are_never_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "t"
    batches = opened(directory, table("t", key="id"))
    write(batches, plain(spark, [1]), 0)
    DeltaTable(directory).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    for batch_id in range(1, 4):
        write(batches, plain(spark, [1]), batch_id)
    found = snapshot(directory, TableFormat.DELTA)
    assert found is not None
    assert len(list(directory.glob("*.parquet"))) > len(found.files)
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.readlink(f"/proc/self/fd/{descriptor}")))
    written = set((directory / "_delta_log").glob("*.json"))
    assert batches.tidy(now_ms=0) is None, "nothing was compacted"
    assert {path.name for path in directory.glob("*.parquet")} == {path.name for path in found.files}
    assert {str(path) for path in set((directory / "_delta_log").glob("*.json")) - written} <= synced
    assert [row[1] for row in content(spark, directory)] == [1]

    # Cleaning happens once a day.
    write(batches, plain(spark, [1]), 4)
    batches.tidy(now_ms=23 * 3_600_000)
    left = len(list(directory.glob("*.parquet")))
    batches.tidy(now_ms=25 * 3_600_000)
    assert len(list(directory.glob("*.parquet"))) < left


def test_values_that_python_has_no_word_for_are_written_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """A time in microseconds instead of milliseconds, and bytes that a producer called text."""
    directory = tmp_path / "t"
    rows = spark.sql("select timestamp_millis(1700000000000000) as t, cast(x'ff61' as string) as s")
    write(opened(directory, table("t")), rows, 0)
    found = snapshot(directory, TableFormat.DELTA)
    assert found is not None
    (row,) = rows_of(spark, found).selectExpr("unix_millis(t) as t", "hex(s) as s").collect()
    assert tuple(row) == (1_700_000_000_000_000, "FF61")


@pytest.mark.usefixtures("merged_by")
def test_types_survive_the_way_into_a_table_and_back(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "select 'k' as id, cast(1.5 as decimal(10, 2)) as d, timestamp'2026-01-02 03:04:05.678901Z' as t, "
        "date'2026-01-02' as day, binary('x') as b, array(1, 2) as a, map('x', 1) as m, struct(1 as x, 'y' as y) as s, "
        "cast(null as double) as nothing, true as flag"
    )
    for declared in (table("append"), table("keyed", key="id"), table("iceberg", format="iceberg")):
        directory = tmp_path / declared.name
        write(opened(directory, declared), spark.sql(columns), 0)
        write(opened(directory, declared), spark.sql(columns.replace("'k'", "'l'")), 1)
        found = snapshot(directory, declared.format)
        assert found is not None
        expected = spark.sql(columns).union(spark.sql(columns.replace("'k'", "'l'"))).orderBy("id").collect()
        assert rows_of(spark, found).orderBy("id").collect() == expected
