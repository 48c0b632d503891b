"""Pipelines in a row with tables in a real PostgreSQL: replayed together, swapped and rolled back as one, and killed in
the middle of the swap."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.chain_workshop import Chain
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import orders
from tests.spark.postgresql_server import PASSWORD, PostgresServer

from cordwood.pipelines.editions.edition_sets import EditionSets
from cordwood.pipelines.postgresql import relations
from cordwood.pipelines.postgresql.place import commit

FILES = {
    "priced": """
@pipeline("{name}-priced", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs={{"out": topic("{name}.priced", key="id"), "rows": jdbc("{url}", "{name}-priced", key="id")}})
def priced(orders):
    rows = orders.selectExpr("id", "amount * {version} as total", "_record")
    return {{"out": rows, "rows": rows}}
""",
    "big": """
@pipeline("{name}-big", version=1, inputs=output("{name}-priced", "{name}.priced", value=json("id string, total int")),
          outputs=jdbc("{url}", "{name}-big", key="id"))
def big(priced):
    return priced.where("total >= 4 or _record.tombstone")
""",
}
OLD = {"priced": {"o3": 3, "o4": 4}, "big": {"o4": 4}}
NEW = {"priced": {"o3": 6, "o4": 8}, "big": {"o3": 6, "o4": 8}}


class Dies(BaseException):
    """The process is gone."""


class Shop(Chain):
    def __init__(
        self, directory: Path, spark: SparkSession, bootstrap: str, topic: str, postgres: PostgresServer
    ) -> None:
        super().__init__(directory, spark, bootstrap, topic, FILES, url=postgres.url)
        self.postgres = postgres

    @property
    def tables(self) -> dict[str, dict[str, int]]:
        """What readers of the names get."""
        return {part: dict(self.postgres.rows(f'select id, total from "{self.name}-{part}"')) for part in FILES}

    @property
    def live(self) -> list[str]:
        return [self.project.state(f"{self.name}-{part}").live_edition().name for part in FILES]


@pytest.fixture
def shop(
    tmp_path: Path,
    spark: SparkSession,
    broker: RunningBroker,
    make_topic: MakeTopic,
    put: Produce,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """Both pipelines have run, and a fresh edition of each is beside them."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    topic = make_topic(1)
    made = Shop(tmp_path, spark, broker.bootstrap, topic, postgres)
    put(topic, orders([3, 4]))
    made.run()
    made.write("priced", 2)
    made.replay_downstream()
    assert (made.tables, made.live) == (OLD, ["v1", "v1"])
    return made


def test_the_names_of_all_members_lead_to_the_fresh_tables_and_back(shop: Shop) -> None:
    shop.swap("big")
    assert (shop.tables, shop.live) == (NEW, ["v2", "v1.2"])
    shop.rollback("priced")
    assert (shop.tables, shop.live) == (OLD, ["v1", "v1"])


def test_a_swap_that_is_killed_leaves_all_as_it_was_or_is_made_up_for_by_the_next_runs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = EditionSets.decide

    def dies_before(*_: Any) -> None:
        raise Dies

    def dies_after(*arguments: Any) -> None:
        decide(*arguments)
        raise Dies

    def dies_between(*arguments: Any) -> None:
        commit(*arguments)
        raise Dies

    with monkeypatch.context() as patched:
        patched.setattr(EditionSets, "decide", dies_before)
        with pytest.raises(Dies):
            shop.swap("priced")
    assert (shop.tables, shop.live) == (OLD, ["v1", "v1"])

    with monkeypatch.context() as patched:
        patched.setattr(EditionSets, "decide", dies_after)
        with pytest.raises(Dies):
            shop.swap("priced")
    assert (shop.tables, shop.live) == (OLD, ["v2", "v1.2"]), "decided for all, and no name moved yet"
    shop.run()
    assert shop.tables == NEW

    with monkeypatch.context() as patched:
        patched.setattr(relations, "commit", dies_between)
        with pytest.raises(Dies):
            shop.rollback("big")
    assert (shop.tables, shop.live) == ({**NEW, "priced": OLD["priced"]}, ["v1", "v1"])
    shop.write("priced", 1)
    shop.run()
    assert shop.tables == OLD
