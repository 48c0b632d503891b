"""Delta's own jars beside `deltalake`: either merges, both leave the same table, and each goes on after the other.

The tests run if `CORDWOOD_DELTA_JARS` names a directory with the jars.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record, delta_jars
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.table_output import TableFormat, table
from cordwood.pipelines.editions.project import table_path
from cordwood.pipelines.formats.table_formats import rows_of, snapshot
from cordwood.pipelines.tables.delta import DeltaBatches
from cordwood.pipelines.tables.delta_spark import MIN_BYTES, is_for_spark
from cordwood.pipelines.tables.staged import MANY_SMALL_FILES

SCHEMA = "id string, n int, t timestamp, list array<int>"


def opened(directory: Path, *, staging: str = "staging", key: str = "id") -> DeltaBatches:
    return DeltaBatches(directory, table("t", key=key or ()), directory.parent / staging)


def rows(spark: SparkSession, ids: Iterable[str], n: int) -> DataFrame:
    return spark.sql("values " + ", ".join(f"('{each}', {n}, timestamp'3000-01-01', array({n}))" for each in ids)).toDF(
        "id", "n", "t", "list"
    )


def write(batches: DeltaBatches, added: DataFrame, batch_id: int) -> None:
    batches.commit(batches.stage(added), "query", batch_id)


def content(spark: SparkSession, directory: Path) -> dict[str, int]:
    found = snapshot(directory, TableFormat.DELTA)
    assert found is not None
    taken = [(row["id"], row["n"]) for row in rows_of(spark, found).collect()]
    assert len(taken) == len(dict(taken)) == found.rows
    return dict(taken)


def by_delta(spark: SparkSession, directory: Path) -> dict[str, int]:
    return {row["id"]: row["n"] for row in spark.read.format("delta").load(str(directory)).collect()}


def engines(directory: Path) -> list[str]:
    """The engine that wrote each entry of the log."""
    found = []
    for entry in sorted((directory / "_delta_log").glob("*.json")):
        actions: list[dict[str, Any]] = [json.loads(line) for line in entry.read_text().splitlines()]
        (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
        found.append("delta-spark" if "Delta-Lake" in info.get("engineInfo", "") else "deltalake")
    return found


@pytest.fixture
def fitting(delta_misfit: str | None) -> None:
    if delta_misfit is not None:
        pytest.skip(delta_misfit)


def test_spark_merges_into_tables_that_are_large_enough(spark: SparkSession) -> None:
    asked_for = bool(delta_jars())
    assert not is_for_spark(spark, 1 << 50), "the executors of a local Spark are the driver"
    spark.conf.set(MIN_BYTES, 1000)
    try:
        assert [is_for_spark(spark, size) for size in (999, 1000)] == [False, asked_for]
    finally:
        spark.conf.unset(MIN_BYTES)


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("2k", 2048), ("four", None), ("-1", None), ("", None)])
def test_how_large_a_table_must_be_is_a_size_or_is_refused_by_name(
    spark: SparkSession, text: str, size: int | None
) -> None:
    spark.conf.set(MIN_BYTES, text)
    try:
        if size is None:
            with pytest.raises(WrongState, match=f"the setting {MIN_BYTES}: expected a size"):
                is_for_spark(spark, 1)
        else:
            assert [is_for_spark(spark, each) for each in (size - 1, size)] == [False, bool(delta_jars())]
    finally:
        spark.conf.unset(MIN_BYTES)


@pytest.mark.usefixtures("delta_merging")
def test_jars_that_do_not_fit_this_spark_are_put_aside(
    spark: SparkSession, tmp_path: Path, delta_misfit: str | None
) -> None:
    if delta_misfit is None:
        pytest.skip("these jars fit")
    batches = opened(tmp_path / "t")
    write(batches, rows(spark, "ab", 1), 0)
    assert str(batches.tidy(now_ms=0)).startswith("table t is merged in the driver: Delta's jars do not fit Spark")
    write(batches, rows(spark, "bc", 2), 1)
    assert batches.tidy(now_ms=0) is None, "it is said once"
    assert content(spark, tmp_path / "t") == {"a": 1, "b": 2, "c": 2}
    assert set(engines(tmp_path / "t")) == {"deltalake"}


@pytest.mark.usefixtures("fitting", "delta_merging")
def test_spark_merges_and_leaves_what_deltalake_would(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    batches = opened(directory)
    write(batches, rows(spark, "ab", 1), 0)
    before = DeltaTable(directory).protocol()
    write(batches, rows(spark, "bc", 2), 1)
    assert engines(directory) == ["deltalake", "delta-spark", "delta-spark"]
    assert DeltaTable(directory).protocol() == before
    found = snapshot(directory, TableFormat.DELTA)
    assert found is not None
    assert {str(pq.ParquetFile(path).schema.column(2).physical_type) for path in found.files} == {"INT64"}
    assert not list(directory.rglob(".*")), "files that nobody would remove"
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", "none") == "none"


@pytest.mark.usefixtures("fitting", "delta_merging")
def test_of_two_that_merge_a_batch_at_once_one_does(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    write(opened(directory), rows(spark, "a", 0), 0)
    writers = [opened(directory, staging=f"staging-{number}") for number in range(2)]
    staged = [writer.stage(rows(spark, "ab", number)) for number, writer in enumerate(writers, 1)]

    def commit(number: int) -> bool:
        try:
            writers[number].commit(staged[number], "query", 1)
        except Exception:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        done = list(pool.map(commit, range(2)))
    assert sorted(done) == [False, True]
    assert content(spark, directory) == dict.fromkeys("ab", 1 + done.index(True))


@pytest.mark.usefixtures("fitting", "delta_merging")
def test_a_pipeline_whose_batches_spark_merges_writes_each_once(
    spark: SparkSession, tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    workshop, source = Workshop(tmp_path, spark, broker.bootstrap), make_topic()
    workshop.write(f"""
        @pipeline("p", version=1, inputs=topic("{source}", key=text(), value=json("id string, amount int")),
                  outputs=table("latest", key="id"))
        def latest(orders):
            return orders.select("id", "amount", "_record")
    """)
    put(source, orders([1, 2]))
    workshop.run()
    put(source, [Record(None, b"o1"), *orders([3])])
    (event,) = workshop.run()
    workshop.forget_commit("p", event["batch"])
    (again,) = workshop.run()
    assert again["repeated"] == ["latest"]
    assert workshop.rows("latest") == [("o2", 2), ("o3", 3)]
    assert engines(table_path("latest", workshop.project.directory)) == ["deltalake", "delta-spark", "delta-spark"]


@pytest.mark.usefixtures("fitting", "delta_merging")
def test_a_table_that_was_removed_and_made_again_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "t"
    for name in ("first", "second"):
        batches = opened(directory)
        write(batches, rows(spark, "ab", 1), 0)
        write(batches, rows(spark, "bc", 2), 1)
        assert content(spark, directory) == {"a": 1, "b": 2, "c": 2}
        directory.rename(tmp_path / name)


@pytest.mark.usefixtures("fitting", "delta_merging")
def test_a_table_with_parts_that_are_never_null_is_merged_in_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """Earlier versions made such tables: not all their columns were nullable throughout."""
    directory = tmp_path / "t"
    made = spark.sql("select 'a' as id, 1 as n, timestamp'3000-01-01' as t, array(1) as list")
    made.limit(0).write.format("delta").save(str(directory))
    metadata = directory / "_delta_log" / f"{0:020}.json"
    metadata.write_text(metadata.read_text().replace(r"\"containsNull\":true", r"\"containsNull\":false"))
    for checksum in (directory / "_delta_log").glob("*.crc"):
        checksum.unlink()
    for checksum in (directory / "_delta_log").glob(".*.crc"):
        checksum.unlink()
    batches = opened(directory)
    write(batches, rows(spark, "ab", 1), 0)
    assert engines(directory) == ["delta-spark", "deltalake"]
    assert content(spark, directory) == {"a": 1, "b": 1}


@pytest.mark.parametrize("key", ["id", ""])
@pytest.mark.usefixtures("fitting", "merged_by")
def test_delta_reads_and_changes_a_table_of_ours_and_we_go_on(spark: SparkSession, tmp_path: Path, key: str) -> None:
    directory = tmp_path / "t"
    named = f"delta.`{directory}`"
    write(opened(directory, key=key), rows(spark, "abcd", 1), 0)
    DeltaTable(directory).alter.set_table_properties({"delta.checkpointInterval": "2"})
    expected = dict.fromkeys("abcd", 1)
    assert by_delta(spark, directory) == expected
    for batch_id in (1, 2):
        added, kept, changed = f"add{batch_id}", f"keep{batch_id}", f"change{batch_id}"
        appended = rows(spark, [added], batch_id).write.format("delta").mode("append")
        appended.option("txnAppId", "theirs").option("txnVersion", batch_id).save(str(directory))
        spark.sql(f"update {named} set n = n + 10 where id = '{added}'")
        write(opened(directory, key=key), rows(spark, [kept, changed], batch_id), batch_id)
        spark.sql(f"delete from {named} where id = '{kept}'")
        rows(spark, [changed], -batch_id).createOrReplaceTempView("changes")
        spark.sql(f"merge into {named} t using changes s on t.id = s.id when matched then update set *")
        expected |= {added: batch_id + 10, changed: -batch_id}
        assert content(spark, directory) == by_delta(spark, directory) == expected
    spark.sql(f"optimize {named}")
    batches = opened(directory, key=key)
    assert (batches.last_batch("query"), batches.last_batch("theirs")) == (2, 2)
    write(batches, rows(spark, map(str, range(40)), 5).repartition(MANY_SMALL_FILES), 3)
    batches.tidy(now_ms=0)
    assert not (directory / "_delta_log" / "._last_checkpoint.crc").exists(), "it would be of another checkpoint"
    assert content(spark, directory) == by_delta(spark, directory) == expected | dict.fromkeys(map(str, range(40)), 5)
