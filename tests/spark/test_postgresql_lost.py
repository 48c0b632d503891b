"""A table of PostgreSQL that has taken batches and is gone is not made again: empty, it would hide the loss. So would a
database that was restored from an older copy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders
from tests.spark.postgresql_server import PASSWORD, PostgresServer

from cordwood.pipelines import jdbc
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.postgresql.batches import PostgresBatches, staged_parts
from cordwood.pipelines.postgresql.copying import copy_part
from cordwood.pipelines.postgresql.place import Database

EMPTY = "drop schema public cascade; create schema public"
FILE = """
    @pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string not null, amount double")),
              outputs=jdbc("{url}", "{name}", key="id"))
    def copied(orders):
        return orders.where("amount > 0 or _record.tombstone")
"""


class Shop:
    """A pipeline with a table in PostgreSQL, which leaves out negative amounts."""

    def __init__(self, workshop: Workshop, put: Produce, topic: str, url: str) -> None:
        self.workshop = workshop
        self.name = f"p-{topic[-6:]}"
        self._put = put
        self._topic = topic
        workshop.write(FILE.format(name=self.name, topic=topic, url=url))

    def run(self, records: Sequence[Record]) -> None:
        """Puts records, and reads them in one batch."""
        self._put(self._topic, records)
        self.workshop.run()


@pytest.fixture
def shop(
    broker: RunningBroker,
    make_topic: MakeTopic,
    put: Produce,
    spark: SparkSession,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return Shop(Workshop(tmp_path, spark, broker.bootstrap), put, make_topic(), postgres.url)


def write(table: PostgresBatches, place: Database, batch_id: int) -> None:
    """Takes a batch of two rows into the table."""
    columns = {"id": "bigint"}
    rows = pa.record_batch({"id": [1, 2]})
    staging = table.begin(columns, columns, ())
    part = copy_part(iter([rows]), rows.schema, place, staging, 1, (), frozenset())
    table.commit(staged_parts([part]), "application", batch_id)


def test_a_table_that_goes_while_its_pipeline_runs_is_not_made_again(postgres: PostgresServer) -> None:
    place = Database(postgres.url, "lost", "v1", "price", "price/v1-1", True, (("password", PASSWORD),))
    table = PostgresBatches(place, jdbc(postgres.url, "lost"), Path())
    write(table, place, 0)
    postgres.execute(EMPTY)
    with pytest.raises(WrongState, match="has taken batches, and is gone"):
        write(table, place, 1)
    for known in (table, PostgresBatches(replace(place, made=True), jdbc(postgres.url, "lost"), Path())):
        with pytest.raises(WrongState, match="has taken batches, and is gone"):
            known.last_batch("application")
    assert postgres.tables() == []


def test_a_run_on_a_database_that_was_made_anew_is_refused(shop: Shop, postgres: PostgresServer) -> None:
    shop.run(orders([1]))
    postgres.execute(EMPTY)
    with pytest.raises(WrongState, match="has taken batches, and is gone"):
        shop.run(orders([2]))
    assert postgres.tables() == []


def test_a_database_that_was_restored_from_an_older_copy_is_found_out_before_anything_is_written(
    postgres: PostgresServer,
) -> None:
    place = Database(postgres.url, "older", "v1", "price", "price/v1-1", True, (("password", PASSWORD),))
    declared = jdbc(postgres.url, "older")
    table = PostgresBatches(place, declared, Path())
    write(table, place, 0)
    write(table, place, 7)
    assert table.taken == {"application": 7}
    assert table.last_batch("another application") is None
    postgres.execute("update cordwood_batches set batch = 3 where relation = 'older__v1'")
    known = (("application", 7),)
    for reader in (table, PostgresBatches(replace(place, taken=known), declared, Path())):
        with pytest.raises(WrongState, match="has taken batch 7, and ends at batch 3 now: the database was restored"):
            reader.last_batch("application")
    postgres.execute("delete from cordwood_batches where relation = 'older__v1'")
    with pytest.raises(WrongState, match="has taken batch 7, and has none of its batches now"):
        PostgresBatches(replace(place, made=True, taken=known), declared, Path()).last_batch("application")


def test_a_run_on_an_older_copy_is_refused_also_after_batches_without_rows(
    shop: Shop, postgres: PostgresServer
) -> None:
    shop.run(orders([1]))
    shop.run(orders([2]))
    shop.run(orders([-1]))
    shop.run(orders([-2]))
    numbers = f"select batch from cordwood_batches where relation = '{shop.name}__v1'"
    assert postgres.rows(numbers) == [(1,)], "a batch without rows writes no number"
    postgres.execute(f"update cordwood_batches set batch = 0 where relation = '{shop.name}__v1'")
    postgres.execute(f"delete from \"{shop.name}__v1\" where id = 'o2'")
    with pytest.raises(WrongState, match="has taken batch 1, and ends at batch 0 now") as caught:
        shop.run(orders([3]))
    assert f"`cordwood pipeline replay {shop.name} --fresh`" in caught.value.hint
    assert postgres.rows(f'select id from "{shop.name}__v1"') == [("o1",)]
    postgres.execute(f"insert into \"{shop.name}__v1\" values ('o2', 2)")
    postgres.execute(f"update cordwood_batches set batch = 1 where relation = '{shop.name}__v1'")
    shop.workshop.run()
    assert postgres.rows(f'select id from "{shop.name}" order by id') == [("o1",), ("o2",), ("o3",)]


def test_an_edition_of_before_the_notes_learns_the_numbers_from_its_tables(
    shop: Shop, postgres: PostgresServer
) -> None:
    shop.run(orders([1]))
    state = shop.workshop.project.state(shop.name)
    path = state.edition_directory("v1") / "outputs.json"
    noted = state.files.read(path)
    assert noted is not None
    state.files.replace(path, {name: each for name, each in noted.items() if name != "batches"})
    shop.run(orders([-1]))
    assert state.files.read(path) == noted
