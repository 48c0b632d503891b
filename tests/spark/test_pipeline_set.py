"""A bug in the first of three pipelines on Spark: replayed with all that reads it, swapped and rolled back as one."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.downstream import Planned, begun_set, with_downstream
from cordwood.pipelines.editions.edition_sets import EditionSet
from cordwood.pipelines.editions.following import bound
from cordwood.pipelines.editions.set_swapping import roll_back_together, swap_together
from cordwood.pipelines.execution.reading_here import records_behind
from cordwood.pipelines.execution.replaying import replay
from cordwood.pipelines.execution.running import Running
from cordwood.pipelines.execution.topics import prepare_topics

FILES = {
    "priced": """
@pipeline("{name}-priced", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=topic("{name}.priced", key="id"), max_rows_per_batch=3)
def priced(orders):
    return orders.selectExpr("id", "amount * {version} as total", "_record")
""",
    "big": """
@pipeline("{name}-big", version=1, inputs=output("{name}-priced", "{name}.priced", value=json("id string, total int")),
          outputs=topic("{name}.big", key="id"))
def big(priced):
    return priced.where("total >= 4 or _record.tombstone")
""",
    "sums": """
@pipeline("{name}-sums", version=1, stateful=True, output_mode="update",
          inputs=output("{name}-big", "{name}.big", value=json("id string, total int")),
          outputs=table("{name}-sums", key="parity"))
def sums(big):
    return big.groupBy((F.col("total") % 2).alias("parity")).agg(F.count("*").alias("n"), F.sum("total").alias("sum"))
""",
}


class Row:
    """Three pipelines in one project, each after the one that it reads."""

    def __init__(self, directory: Path, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self.topic, self.name = topic, f"p-{topic[-6:]}"
        self.shops: dict[str, Workshop] = {}
        for part in FILES:
            (directory / part).mkdir()
            self.shops[part] = Workshop(directory / part, spark, bootstrap)
            self.shops[part].project = self.shops["priced"].project
            self.write(part, 1)
        self.project = self.shops["priced"].project

    def write(self, part: str, version: int) -> None:
        self.shops[part].write(FILES[part].format(name=self.name, topic=self.topic, version=version))

    def run(self) -> None:
        for shop in self.shops.values():
            shop.run()

    def replay_downstream(self) -> EditionSet:
        """What `replay --downstream` does, in this process."""
        shop = self.shops["priced"]
        root = load_pipeline(shop.file)
        planned = with_downstream(self.project, Planned(root, shop.file))
        made = begun_set(self.project, root.name, planned, fresh=False, now_ms=int(time.time() * 1000))
        for member, each in zip(made.members, planned, strict=True):
            self.replay(shop, member.edition, each)
        return made

    def replay(self, shop: Workshop, name: str, planned: Planned) -> None:
        state = self.project.state(planned.pipeline.name)
        edition = state.edition(name)
        pipeline = bound(self.project, planned.pipeline, edition)
        prepare_topics(pipeline, state, edition, shop.bootstrap)

        def begin(once: bool) -> Running:
            again = state.edition(name)
            return Running(
                planned.pipeline,
                state,
                again,
                shop.spark,
                bootstrap_servers=shop.bootstrap,
                once=once,
                tell=shop.told.append,
            )

        def behind() -> int:
            position = committed_position(state.checkpoint(name))
            return records_behind(shop.bootstrap, [topic.name for topic in pipeline.inputs.values()], position)

        replay(begin, state, edition, follow=False, behind=behind, batch_rows=0, tell=shop.told.append)

    def swap(self) -> None:
        state = self.project.state(f"{self.name}-big")
        swap_together(self.project, state, None, force=False, skip_effects=False, timeout_s=10)

    def rollback(self) -> None:
        roll_back_together(self.project, self.project.state(f"{self.name}-sums"), skip_effects=False, timeout_s=10)

    @property
    def sums(self) -> list[tuple[int, ...]]:
        return self.shops["sums"].rows(f"{self.name}-sums")


@pytest.fixture
def row(tmp_path: Path, spark: SparkSession, broker: RunningBroker, make_topic: MakeTopic) -> Row:
    return Row(tmp_path, spark, broker.bootstrap, make_topic(2))


def test_a_bug_upstream_is_mended_for_all_that_reads_it_at_one_moment(row: Row, put: Produce) -> None:
    put(row.topic, [*orders(range(1, 6)), *orders(range(6, 9), partition=1)])
    row.run()
    wrong = [(0, 3, 4 + 6 + 8), (1, 2, 5 + 7)]
    assert row.sums == wrong

    row.write("priced", 2)
    made = row.replay_downstream()
    assert str(made) == f"{row.name}-priced v2, {row.name}-big v1.2, {row.name}-sums v1.2"
    assert row.sums == wrong, "what is live is as it was"
    row.write("priced", 1)
    put(row.topic, orders([9]))
    row.run()
    assert row.sums == [(0, 3, 18), (1, 3, 21)], "and runs on beside the set"

    row.swap()
    row.write("priced", 2)
    assert row.sums == [(0, 7, 2 * sum(range(2, 9)))]
    put(row.topic, orders([10]))
    row.run()
    assert row.sums == [(0, 9, 2 * sum(range(2, 11)))], "each record once, as version 2 has it"

    row.rollback()
    row.write("priced", 1)
    row.run()
    assert row.sums == [(0, 4, 28), (1, 3, 21)], "the old editions go on where each of them stopped"
