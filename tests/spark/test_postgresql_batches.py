"""Batches in tables of a real PostgreSQL, staged by real Spark: rows by key, each batch once, whatever crashes."""

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.deadline import eventually
from tests.spark.postgresql_server import PASSWORD, PostgresServer

from cordwood.pipelines import jdbc
from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.formats.table_formats import rows_of
from cordwood.pipelines.postgresql.batches import PostgresBatches
from cordwood.pipelines.postgresql.copying import unstorable_rows
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.postgresql.reading import postgres_snapshot

WITHIN_S = 600


def batches(postgres: PostgresServer, name: str, **options: Any) -> PostgresBatches:
    table = jdbc(postgres.url, name, **options)
    credentials = (("password", PASSWORD),)
    return PostgresBatches(Database(postgres.url, name, "v1", "price", "price/v1-1", True, credentials), table, Path())


def write(table: PostgresBatches, rows: DataFrame, batch_id: int) -> None:
    table.commit(table.stage(rows), "application", batch_id)


def staging(postgres: PostgresServer) -> list[str]:
    return [name for name in postgres.tables() if "__s" in name]


def test_values_of_all_types_are_in_the_table_and_come_back(postgres: PostgresServer, spark: SparkSession) -> None:
    rows = spark.sql(
        """select cast(id as tinyint) t, cast(id as smallint) s, cast(id as int) i, id,
        cast(id as float) / 4 f, if(id = 1, double('NaN'), if(id = 2, double('Infinity'), id / 4D)) d,
        cast(id as decimal(20, 3)) n, date'2020-01-01' + cast(id as int) day,
        timestamp'2020-01-01 10:00:00.123456+02:00' at, timestamp_ntz'2020-01-01 10:00:00.123456' local,
        if(id = 0, '', if(id = 1, null, 'a"b,\\n%s\\\\N')) text, cast('ab' as binary) bytes, id % 2 = 0 even,
        array(id, null) list, named_struct('x', id, 'y', null) struct, map('k', id) map from range(0, 3)"""
    )
    table = batches(postgres, "types")
    write(table, rows, 0)
    found = postgres.rows("select text, bytes, even, f::text, d::text, n::text, struct->>'x' from types order by id")
    assert found == [
        ("", b"ab", True, "0", "0", "0.000", "0"),
        (None, b"ab", False, "0.25", "NaN", "1.000", "1"),
        ('a"b,\n%s\\N', b"ab", True, "0.5", "Infinity", "2.000", "2"),
    ]
    times = postgres.rows("select distinct at at time zone 'UTC', local from types")
    assert [[str(each) for each in row] for row in times] == [
        ["2020-01-01 08:00:00.123456", "2020-01-01 10:00:00.123456"]
    ]
    taken = postgres_snapshot(Database(postgres.url, "types", "v1", "", "", given=(("password", PASSWORD),)))
    assert taken is not None
    assert taken.rows == 3
    read = rows_of(spark, taken).orderBy("id").collect()
    assert [row["text"] for row in read] == ["", None, 'a"b,\n%s\\N']
    assert [row["at"] for row in read] == ["2020-01-01T08:00:00.123456Z"] * 3


def test_rows_replace_those_of_their_key_in_the_order_that_spark_has(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    table = batches(postgres, "latest", key="k", latest_by="at", delete_when="v < 0")

    def rows(*values: tuple[str, str | None, int]) -> DataFrame:
        return spark.createDataFrame(list(values), "k string, at string, v int").repartition(2)

    write(table, rows(("a", "1", 1), ("b", "2", 2), ("a", "B", 3), ("a", "a", 4), ("c", None, 5), ("x", "9", -1)), 0)
    assert postgres.rows("select * from latest order by k") == [("a", "a", 4), ("b", "2", 2), ("c", None, 5)]
    write(table, rows(("a", "Z", 9), ("b", "3", 7), ("c", "0", -6), ("d", None, 1)), 1)
    assert postgres.rows("select * from latest order by k") == [("a", "a", 4), ("b", "3", 7), ("d", None, 1)]
    unordered = batches(postgres, "unordered", key="k")
    with pytest.raises(InvalidRows, match="several rows of one k"):
        write(unordered, rows(("a", "1", 1), ("a", "2", 2)), 0)
    write(unordered, rows(("a", "1", 1), ("b", "2", 2)), 0)
    assert len(postgres.rows("select * from unordered")) == 2


def test_late_rows_stay_away_while_their_delete_is_remembered(postgres: PostgresServer, spark: SparkSession) -> None:
    """As a Delta table has them: `test_remembered_deletes.py`."""
    options = {"key": "k", "latest_by": "at", "delete_when": "gone", "remember_deletes": "7d"}
    table = batches(postgres, "kept", **options)

    def take(batch_id: int, *values: tuple[str, int | None, bool]) -> list[tuple[str, int]]:
        write(table, spark.createDataFrame(list(values), "k string, at int, gone boolean"), batch_id)
        return postgres.rows("select k, at from kept order by k")

    assert take(0, ("a", 1, False), ("b", 1, False), ("early", 9, True)) == [("a", 1), ("b", 1)]
    assert take(1, ("a", 5, True), ("b", None, True)) == []
    assert take(2, ("a", 4, False), ("b", 0, False), ("early", 8, False)) == [("b", 0)]
    assert take(3, ("a", 3, True), ("a", 2, False)) == [("b", 0)]
    assert take(4, ("a", 4, False), ("early", 9, False)) == [("b", 0), ("early", 9)]
    assert take(5, ("a", 6, False)) == [("a", 6), ("b", 0), ("early", 9)]
    postgres.execute("update kept__v1__deleted set _deleted_at = now() - interval '8 days' where k = 'a'")
    table.tidy(0)
    assert postgres.rows("select k, at from kept__v1__deleted") == [("early", 9)]


def test_a_row_that_cannot_be_stored_is_counted_and_found(postgres: PostgresServer, spark: SparkSession) -> None:
    schema = (
        "k string, v string, at string, list array<string>, _record struct<topic string, key binary, tombstone boolean>"
    )
    record = ("t", b"q", False)
    good = [("ok", "x", "9999-12-31", ["\\u0000", "ü"], record), ("none", None, None, None, record)]
    bad = [
        (None, "x", None, None),
        ("nul", "\0", None, None),
        ("in", "x", None, ["\\\0"]),
        ("far", "x", "10000-01-01", None),
    ]
    for each in ("date", "timestamp", "timestamp_ntz"):
        given = spark.createDataFrame([*good, *((*row, record) for row in bad)], schema)
        rows = given.withColumn("at", F.regexp_replace("at", "^1", "+1").cast(each))
        table = batches(postgres, f"storable_{each}", key="k", latest_by="v")
        staged = table.stage(rows.drop("_record"))
        assert staged.null_keys == 4
        table.discard(staged)
        assert staging(postgres) == []
        found = unstorable_rows(rows, jdbc(postgres.url, "storable", key="k")).collect()
        assert sorted(row.error for row in found) == [
            "table storable: at is in no year from 1 to 9999",
            "table storable: list has the character U+0000, which PostgreSQL cannot store",
            "table storable: v has the character U+0000, which PostgreSQL cannot store",
            "the key of table storable (k) is null",
        ]
        write(table, rows.where("k in ('ok', 'none')").drop("_record"), 0)
        assert postgres.rows(f"select at::date::text, list->>0 from storable_{each} order by k desc") == [
            ("9999-12-31", "\\u0000"),
            (None, None),
        ]
    cut = spark.createDataFrame(
        [("cut", b"\xff", record)], "k string, v binary, _record struct<topic string, key binary, tombstone boolean>"
    ).withColumn("v", F.col("v").cast("string"))
    table = batches(postgres, "cut", key="k")
    staged = table.stage(cut.drop("_record"))
    assert staged.null_keys == 1
    table.discard(staged)
    assert [row.error for row in unstorable_rows(cut, jdbc(postgres.url, "cut", key="k")).collect()] == [
        "table cut: v is no text of UTF-8"
    ]


def test_a_batch_is_written_once_also_by_a_driver_that_was_killed_while_it_committed(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    first, second = batches(postgres, "once"), batches(postgres, "once")
    rows = spark.range(10).selectExpr("id")
    write(first, rows, 0)
    write(first, rows, 0)
    assert postgres.rows("select count(*) from once") == [(10,)]
    staged = second.stage(rows)
    with psycopg.connect(postgres.url, password=PASSWORD) as killed:
        # The first driver's transaction is still at work when the second one commits the same batch.
        killed.execute("update cordwood_batches set batch = 1 where application = 'application'")
        killed.execute("insert into once__v1 select generate_series(0, 9)")
        late = threading.Thread(target=lambda: second.commit(staged, "application", 1))
        late.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        eventually(lambda: postgres.rows(waiting), to_be=[(1,)], what="the second transaction waits for the first")
    late.join()
    assert postgres.rows("select count(*) from once") == [(20,)]
    assert second.last_batch("application") == 1


def test_rows_that_a_crash_of_postgresql_took_from_the_staging_table_are_missed(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    table = batches(postgres, "crashed", key="id")
    rows = spark.range(10).selectExpr("id")
    staged = table.stage(rows)
    postgres.kill()
    postgres.start()
    with pytest.raises(RuntimeError, match="10 rows were staged and 0 are there"):
        table.commit(staged, "application", 0)
    assert table.last_batch("application") is None
    assert len(staging(postgres)) == 1
    write(table, rows, 0)
    assert staging(postgres) == [], "tables of interrupted batches are dropped"
    assert postgres.rows("select count(*) from crashed") == [(10,)]
    postgres.execute("drop view crashed; drop table crashed__v1")
    with pytest.raises(WrongState, match="is gone: going on would lose their rows"):
        table.last_batch("application")
