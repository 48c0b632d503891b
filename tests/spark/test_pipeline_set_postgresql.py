"""Pipelines in a row with tables in a real PostgreSQL: replayed together, swapped and rolled back as one, and killed in
the middle of that."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.chain_workshop import Chain
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import orders
from tests.spark.postgresql_server import PASSWORD, PostgresServer

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.edition_sets import EditionSets

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
OLD_LIVE, NEW_LIVE = ["v1", "v1"], ["v2", "v1.2"]
IS_OLD, IS_NEW = (OLD, OLD_LIVE), (NEW, NEW_LIVE)
DRIVER = Path(__file__).with_name("swap_driver.py")


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


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
    broker: RunningBroker,
    make_topic: MakeTopic,
    put: Produce,
    postgres: PostgresServer,
) -> Iterator[Shop]:
    """Both pipelines have run, and a fresh edition of each is beside them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPASSWORD", PASSWORD)
        topic = make_topic(1)
        made = Shop(tmp_path_factory.mktemp("shop"), spark, broker.bootstrap, topic, postgres)
        put(topic, orders([3, 4]))
        made.run()
        made.write("priced", 2)
        made.replay_downstream()
        yield made


@pytest.fixture
def shop(built: Shop) -> Shop:
    """The old editions are live, and a set is beside them."""
    if built.live == NEW_LIVE:
        built.rollback("priced")
    assert (built.tables, built.live) == IS_OLD
    return built


def test_the_names_of_all_members_lead_to_the_fresh_tables_and_back(shop: Shop) -> None:
    shop.swap("big")
    assert (shop.tables, shop.live) == IS_NEW
    shop.rollback("priced")
    assert (shop.tables, shop.live) == IS_OLD


@pytest.fixture
def killed(shop: Shop) -> Iterator[Callable[[str, str, int], str]]:
    """`killed(command, member, steps)`: swaps or rolls back in a process that is killed before a step."""
    with subprocess.Popen(
        [sys.executable, str(DRIVER), str(shop.project.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def act(command: str, member: str, steps: int) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{command} {shop.name}-{member} {steps}\n")
            return process.stdout.readline().strip()

        yield act
        process.stdin.close()


def again(shop: Shop, command: Callable[[str], None]) -> None:
    """The same command again; it is refused if the killed one has decided."""
    with suppress(WrongState):
        command("priced")


@pytest.mark.parametrize("command", ["swap", "rollback"])
def test_a_command_that_is_killed_at_any_step_has_happened_for_all_or_for_none_and_a_second_one_goes_on_or_back(
    shop: Shop, killed: Callable[[str, str, int], str], command: str
) -> None:
    before, after = (IS_OLD, IS_NEW) if command == "swap" else (IS_NEW, IS_OLD)
    forth, back = (shop.swap, shop.rollback) if command == "swap" else (shop.rollback, shop.swap)
    if command == "rollback":
        shop.swap("big")
    outcomes = []
    for steps in range(1000):
        assert (shop.tables, shop.live) == before
        if killed(command, "big", steps) == "done":
            break
        assert shop.live in (OLD_LIVE, NEW_LIVE), "all live editions are of one set"
        assert shop.tables in (OLD, NEW), "all names lead to tables of one set"
        outcomes.append((shop.tables, shop.live))
        if steps % 2:
            again(shop, forth)
            assert (shop.tables, shop.live) == after
        if shop.live == after[1]:
            back("big")
    assert (shop.tables, shop.live) == after
    assert outcomes[0] == before
    assert outcomes[-1] == (before[0], after[1]), "it was killed between the decision and the names"


def test_the_next_run_of_one_member_moves_the_names_of_all(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = EditionSets.decide

    def dies_after(*arguments: Any) -> None:
        decide(*arguments)
        raise Dies

    with monkeypatch.context() as patched:
        patched.setattr(EditionSets, "decide", dies_after)
        with pytest.raises(Dies):
            shop.swap("priced")
    assert (shop.tables, shop.live) == (OLD, NEW_LIVE), "decided for all, and no name moved yet"
    shop.shops["big"].run()
    assert (shop.tables, shop.live) == IS_NEW
