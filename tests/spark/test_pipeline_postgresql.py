"""Pipelines with tables in a real PostgreSQL, with Spark's streams: editions, and kills of either side."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders
from tests.spark.postgresql_server import PASSWORD, PostgresServer

from cordwood.pipelines.editions.swapping import rollback, swap

WITHIN_S = 600


def staging(postgres: PostgresServer) -> list[str]:
    return [name for name in postgres.tables() if "__s" in name]


FILE = """
    @pipeline("{name}", version={version}, quarantine=budget(rows=5),
              inputs=topic("{topic}", value=json("id string not null, amount double")),
              outputs=jdbc("{url}", "{name}", key="id"))
    def priced(orders):
        return orders.selectExpr("id", "amount * {factor} as total", "_record")
"""


def test_an_edition_is_built_beside_the_live_one_and_put_in_its_place(
    broker: RunningBroker,
    make_topic: MakeTopic,
    put: Produce,
    spark: SparkSession,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    topic = make_topic(partitions=1)
    name = f"p-{topic[-6:]}"
    put(topic, [*orders(range(3)), Record(b'{"id": "nul\\u0000", "amount": 1}'), Record(None, b"o1")])
    workshop = Workshop(tmp_path, spark, broker.bootstrap)
    workshop.write(FILE.format(name=name, version=1, topic=topic, url=postgres.url, factor=1))
    (batch,) = workshop.run()
    assert batch["quarantined"] == 1
    assert PASSWORD not in "".join(path.read_text() for path in workshop.project.directory.rglob("*.json"))

    def rows(relation: str = name) -> dict[str, float]:
        return dict(postgres.rows(f'select id, total from "{relation}"'))

    assert rows() == {"o0": 0.0, "o2": 2.0}
    workshop.write(FILE.format(name=name, version=2, topic=topic, url=postgres.url, factor=2))
    fresh = workshop.replay()
    assert rows() == {"o0": 0.0, "o2": 2.0}
    assert rows(f"{name}__v2") == {"o0": 0.0, "o2": 4.0}
    state = workshop.project.state(name)
    swap(state, None, force=False, skip_effects=False, timeout_s=60)
    assert rows() == {"o0": 0.0, "o2": 4.0}
    rollback(state, timeout_s=60)
    assert rows() == {"o0": 0.0, "o2": 2.0}
    swap(state, fresh.name, force=True, skip_effects=False, timeout_s=60)
    put(topic, orders([7]))
    workshop.run()
    assert rows() == {"o0": 0.0, "o2": 4.0, "o7": 14.0}
    state.forget("v1")
    assert [each for each in postgres.tables() if each.startswith(name)] == [f"{name}__v2"]


def test_each_row_is_there_once_when_the_driver_and_the_database_are_killed_in_the_middle(
    broker: RunningBroker, make_topic: MakeTopic, put: Produce, postgres: PostgresServer, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    name = f"p-{topic[-6:]}"
    count = 120
    (tmp_path / "pipeline.py").write_text(
        f"""
from cordwood.pipelines import *

@pipeline("{name}", version=1, max_rows_per_batch=20, trigger="100 milliseconds",
          inputs=topic("{topic}", value=json("n int not null")),
          outputs={{"all": jdbc("{postgres.url}", "{name}-all"), "latest": jdbc("{postgres.url}", "{name}", key="n")}},
          spark={{"spark.master": "local[2]", "spark.ui.enabled": "false"}})
def copied(numbers):
    return {{"all": numbers, "latest": numbers}}
"""
    )
    put(topic, [Record(json.dumps({"n": number}).encode(), partition=number % 2) for number in range(count)])
    output = tmp_path / "events"
    environment = {"CORDWOOD_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1", "PGPASSWORD": PASSWORD}
    with open(output, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood.cli", "pipeline", "run", "pipeline.py", "--json", "--max-restarts", "99"],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def events(kind: str) -> list[dict[str, Any]]:
        lines = output.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in found if event["event"] == kind]

    def holds(what: bool) -> bool:
        assert process.poll() is None, output.read_text()[-4000:]
        return what

    try:
        eventually(lambda: holds(len(events("batch")) >= 1), within_s=WITHIN_S, what="a batch")
        eventually(lambda: holds(bool(staging(postgres))), within_s=WITHIN_S, what="a batch under way")
        postgres.kill()
        eventually(lambda: holds(bool(events("failed"))), within_s=WITHIN_S, what="a failure")
        postgres.start()
        eventually(lambda: holds(len(events("started")) >= 2), within_s=WITHIN_S, what="another worker")
        done = len(events("batch"))
        eventually(lambda: holds(len(events("batch")) > done), within_s=WITHIN_S, what="a batch after the crash")
        eventually(lambda: holds(bool(staging(postgres))), within_s=WITHIN_S, what="a batch under way again")
        os.killpg(events("started")[-1]["pid"], signal.SIGKILL)
        # The event of a worker's first batch may not know the lag, and no other batch may follow: the tables tell.
        query = f'select (select count(distinct n) from "{name}-all"), (select count(distinct n) from "{name}")'
        at_end = lambda: holds(postgres.rows(query) == [(count, count)])  # noqa: E731
        eventually(at_end, within_s=WITHIN_S, what="the end of the log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0, output.read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    for relation in (f"{name}-all", name):
        found = [number for (number,) in postgres.rows(f'select n from "{relation}"')]
        assert Counter(found) == dict.fromkeys(range(count), 1), relation
    assert staging(postgres) == []
