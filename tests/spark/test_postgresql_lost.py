"""A table of PostgreSQL that has taken batches and is gone is not made again: empty, it would hide the loss."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce
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
        return orders
"""


def test_a_table_that_goes_while_its_pipeline_runs_is_not_made_again(postgres: PostgresServer) -> None:
    place = Database(postgres.url, "lost", "v1", "price", "price/v1-1", True, (("password", PASSWORD),))
    table = PostgresBatches(place, jdbc(postgres.url, "lost"), Path())
    columns = {"id": "bigint"}
    rows = pa.record_batch({"id": [1, 2]})

    def write(batch_id: int) -> None:
        staging = table.begin(columns, columns, ())
        part = copy_part(iter([rows]), rows.schema, place, staging, 1, (), frozenset())
        table.commit(staged_parts([part]), "application", batch_id)

    write(0)
    postgres.execute(EMPTY)
    with pytest.raises(WrongState, match="has taken batches, and is gone"):
        write(1)
    for known in (table, PostgresBatches(replace(place, made=True), jdbc(postgres.url, "lost"), Path())):
        with pytest.raises(WrongState, match="has taken batches, and is gone"):
            known.last_batch("application")
    assert postgres.tables() == []


def test_a_run_on_a_database_that_was_made_anew_is_refused(
    broker: RunningBroker,
    make_topic: MakeTopic,
    put: Produce,
    spark: SparkSession,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop = Workshop(tmp_path, spark, broker.bootstrap)
    workshop.write(FILE.format(name=name, topic=topic, url=postgres.url))
    put(topic, orders([1]))
    workshop.run()
    postgres.execute(EMPTY)
    put(topic, orders([2]))
    with pytest.raises(WrongState, match="has taken batches, and is gone"):
        workshop.run()
    assert postgres.tables() == []
