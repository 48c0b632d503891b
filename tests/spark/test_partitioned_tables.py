"""Tables in partitions, through Spark: what is written is read, files stay few, and editions may differ in them."""

import json
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop

from cordwood.pipelines.comparison.on_spark import compare
from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.partitions import bucket, days
from cordwood.pipelines.definition.table_output import OF_FILES, Table, TableFormat, table
from cordwood.pipelines.formats.table_formats import rows_of, snapshot, writer
from cordwood.pipelines.tables import parted_files, staged
from cordwood.pipelines.tables.delta import delta_snapshot
from cordwood.pipelines.tables.staged import BatchTable

STRANGE = ["a/b", "50%", "a%2Fb", "ü ñ", "#?&:*", "o'clock", None]
Content = list[tuple[str | None, int]]


def parted(spark: SparkSession, values: list[str | None], first: int = 0) -> DataFrame:
    return spark.createDataFrame([(value, first + n) for n, value in enumerate(values)], "part string, n int")


def opened(directory: Path, declared: Table) -> BatchTable:
    return writer(directory, declared, directory.parent / "staging")


def content(spark: SparkSession, directory: Path, format_: TableFormat = TableFormat.DELTA) -> Content:
    found = snapshot(directory, format_)
    assert found is not None
    taken = sorted(((row["part"], row["n"]) for row in rows_of(spark, found).collect()), key=lambda row: row[1])
    assert len(taken) == found.rows
    return taken


def test_rows_are_read_with_the_values_of_their_partition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list(zip(STRANGE, range(len(STRANGE)), strict=True))
    added = tmp_path / "t"
    batches = opened(added, table("t", partition_by="part"))
    batches.commit(batches.stage(parted(spark, STRANGE).repartition(3)), "q", 0)
    assert content(spark, added) == expected
    monkeypatch.setattr(staged, "MANY_SMALL_FILES", 2)
    batches.commit(batches.stage(parted(spark, STRANGE[:1], 100).coalesce(1)), "q", 1)
    assert batches.tidy(now_ms=0) == "2 files of table t made 1"
    # Files of `deltalake` are in directories now, and those of the executors are not.
    assert content(spark, added) == [*expected, (STRANGE[0], 100)]


@pytest.mark.usefixtures("merged_by")
def test_a_row_leaves_its_partition(spark: SparkSession, tmp_path: Path) -> None:
    expected = list(zip(STRANGE, range(len(STRANGE)), strict=True))
    keyed = tmp_path / "t"
    batches = opened(keyed, table("t", key="n", partition_by="part"))
    batches.commit(batches.stage(parted(spark, STRANGE)), "q", 0)
    assert content(spark, keyed) == expected
    one = delta_snapshot(keyed)
    moved = [*STRANGE[1:], STRANGE[0]]
    batches.commit(batches.stage(parted(spark, moved)), "q", 1)
    assert content(spark, keyed) == list(zip(moved, range(len(moved)), strict=True))
    two = delta_snapshot(keyed)
    assert one is not None
    assert two is not None
    found = compare(spark, "t", ["n"], one, two, samples=1)
    assert (found.changed, found.only_live) == (len(STRANGE), 0)


@pytest.mark.parametrize("format_", OF_FILES)
def test_a_batch_of_many_tasks_and_partitions_makes_few_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: TableFormat
) -> None:
    directory = tmp_path / "t"
    rows = spark.range(0, 60, 1, 6).selectExpr("cast(id % 5 as string) as part", "cast(id as int) as n")
    expected = [(str(n % 5), n) for n in range(60)]
    batches = opened(directory, table("t", format=format_.value, partition_by="part"))
    monkeypatch.setattr(parted_files, "MAX_FILES", 8)
    change = batches.commit(batches.stage(rows), "q", 0)
    assert change.files_added == 5
    assert content(spark, directory, format_) == expected
    assert len(list(directory.rglob("part-*.parquet"))) == 5, "files that were united are removed"
    monkeypatch.setattr(parted_files, "MAX_PARTITIONS", 4)
    with pytest.raises(InvalidRows, match="rows of more than 4 partitions by part, each a file"):
        batches.stage(rows)
    assert len(list(directory.rglob("part-*.parquet"))) == 5


def test_an_iceberg_table_has_partitions_by_transforms(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 48, 1, 3).selectExpr(
        "timestamp'2026-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, cast(id as int)) as at",
        "cast(id % 2 as string) as part",
        "cast(id as int) as n",
    )
    directory = tmp_path / "t"
    batches = opened(directory, table("t", format="iceberg", partition_by=[days("at"), bucket(2, "part")]))
    for number in range(2):
        batches.commit(batches.stage(rows.where(f"n % 2 = {number}")), "q", number)
    assert content(spark, directory, TableFormat.ICEBERG) == [(str(n % 2), n) for n in range(48)]


def test_an_edition_may_be_parted_otherwise_and_a_change_in_place_is_refused(
    spark: SparkSession, tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=1)
    workshop = Workshop(tmp_path, spark, broker.bootstrap)

    def declare(version: int, partition_by: str) -> None:
        workshop.write(f"""
            @pipeline("parts", version={version}, inputs=topic("{topic}", value=json("id string, day date, n int")),
                      outputs=table("parts", key="id", {partition_by}))
            def parts(rows):
                return rows
        """)

    def row(id_: str, day: int, n: int) -> Record:
        return Record(json.dumps({"id": id_, "day": f"2026-01-{day:02}", "n": n}).encode(), id_.encode())

    put(topic, [row("a", 1, 1), row("b", 2, 2), row("a", 3, 3), Record(None, b"b"), row("c", 2, 4)])
    declare(1, 'partition_by="day"')
    (batch,) = workshop.run()
    assert batch["tables"]["parts"]["files_added"] == 2
    expected = [("a", date(2026, 1, 3), 3), ("c", date(2026, 1, 2), 4)]
    assert workshop.rows("parts") == expected
    workshop.forget_commit("parts", 0)
    (batch,) = workshop.run()
    assert batch["repeated"] == ["parts"]

    declare(2, 'partition_by=["n", "day"]')
    with pytest.raises(WrongState, match="the table parts has other partitions than in edition v1"):
        workshop.run(in_place=True)
    put(topic, [row("c", 1, 5)])
    fresh = workshop.replay()
    state = workshop.project.state("parts")
    declare(1, 'partition_by="day"')
    workshop.run()
    live_place, fresh_place = (state.table_directory(each, "parts") for each in (state.edition("v1"), fresh))
    live, other = (snapshot(each, TableFormat.DELTA) for each in (live_place, fresh_place))
    assert live is not None
    assert other is not None
    assert compare(spark, "parts", ["id"], live, other, samples=1).is_equal
    state.swap(fresh.name, position={}, now_ms=1)
    assert workshop.rows("parts") == [("a", date(2026, 1, 3), 3), ("c", date(2026, 1, 1), 5)]
    state.rollback(position={}, now_ms=2)
    state.forget(fresh.name)
    assert workshop.rows("parts") == [("a", date(2026, 1, 3), 3), ("c", date(2026, 1, 1), 5)]


def test_a_key_goes_from_partition_to_partition_with_the_batches(
    spark: SparkSession, tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=1)
    workshop = Workshop(tmp_path, spark, broker.bootstrap)
    workshop.write(f"""
        @pipeline("moves", version=1, inputs=topic("{topic}", value=json("id string, day string, n int")),
                  outputs=table("moves", key="id", partition_by="day"))
        def moves(rows):
            return rows
    """)

    def batch(*given: tuple[str, str | None, int]) -> dict[str | None, list[str]]:
        """Runs a batch, and returns the keys in each partition."""
        values = [json.dumps({"id": id_, "day": day, "n": n}).encode() for id_, day, n in given]
        put(topic, [Record(value, id_.encode()) for value, (id_, _, _) in zip(values, given, strict=True)])
        workshop.run()
        found: dict[str | None, list[str]] = {}
        for id_, day, _ in workshop.rows("moves"):
            found.setdefault(day, []).append(id_)
        return found

    assert batch(("a", "mon", 1), ("b", "mon", 2), ("c", None, 3)) == {"mon": ["a", "b"], None: ["c"]}
    assert batch(("a", "tue", 4), ("c", "mon", 5)) == {"mon": ["b", "c"], "tue": ["a"]}
    workshop.forget_commit("moves", 1)
    assert batch(("a", "wed", 6), ("a", None, 7)) == {"mon": ["b", "c"], None: ["a"]}
    assert batch(("a", "mon", 8), ("b", "tue", 9), ("b", "mon", 10)) == {"mon": ["a", "b", "c"]}
    put(topic, [Record(None, b"a")])
    assert batch(("b", "tue", 11)) == {"mon": ["c"], "tue": ["b"]}


def test_an_iceberg_table_is_replayed_into_other_partitions_swapped_and_rolled_back(
    spark: SparkSession, tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=1)
    workshop = Workshop(tmp_path, spark, broker.bootstrap)

    def declare(version: int, partition_by: str) -> None:
        workshop.write(f"""
            @pipeline("ice", version={version}, inputs=topic("{topic}", value=json("id string, at timestamp, n int")),
                      outputs=table("ice", format="iceberg", partition_by={partition_by}))
            def ice(rows):
                return rows.withColumn("n", rows.n * {version})
        """)

    def add(first: int, end: int) -> None:
        values = [
            {"id": f"i{n}", "at": f"2026-01-{n % 3 + 1:02}T{n % 24:02}:00:00Z", "n": n} for n in range(first, end)
        ]
        put(topic, [Record(json.dumps(value).encode()) for value in values])

    def taken() -> list[tuple[str, int]]:
        return sorted(((id_, n) for id_, _, n in workshop.rows("ice")), key=lambda row: row[1])

    def expected(count: int, times: int) -> list[tuple[str, int]]:
        return [(f"i{n}", n * times) for n in range(count)]

    declare(1, '[days("at"), bucket(2, "id")]')
    add(0, 20)
    workshop.run()
    add(20, 30)
    workshop.run()
    workshop.forget_commit("ice", 1)
    workshop.run()
    assert taken() == expected(30, 1)
    declare(2, '[hours("at"), truncate(10, "n")]')
    with pytest.raises(WrongState, match="the table ice has other partitions than in edition v1"):
        workshop.run(in_place=True)
    fresh = workshop.replay()
    assert taken() == expected(30, 1)
    state = workshop.project.state("ice")
    live, other = (
        snapshot(state.table_directory(each, "ice"), TableFormat.ICEBERG) for each in (state.edition("v1"), fresh)
    )
    assert live is not None
    assert other is not None
    found = compare(spark, "ice", ["id"], live, other, samples=1)
    assert (found.changed, found.only_live, found.only_fresh) == (29, 0, 0)
    state.swap(fresh.name, position={}, now_ms=1)
    assert taken() == expected(30, 2)
    add(30, 40)
    workshop.run()
    assert taken() == expected(40, 2)
    state.rollback(position={}, now_ms=2)
    assert taken() == expected(30, 1)
