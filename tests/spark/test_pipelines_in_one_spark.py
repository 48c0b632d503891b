"""Several pipelines that one process runs in one Spark session: each as if it were alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines import start
from cordwood.pipelines.definition.errors import AlreadyRunning, OverBudget
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.execution.running import Running

PIPELINE = """
@pipeline("{name}", version=1, trigger="100 milliseconds", quarantine=budget(rows={budget}),
          inputs=topic("{topic}", value=json("id string, amount int")),
          outputs={{"rows": table("{name}", key="id"), "out": topic("{name}.out", key="id")}})
def numbers(orders):
    rows = orders.selectExpr("id", "amount * {factor} as total", "_record")
    return {{"rows": rows, "out": rows}}
"""


class Started:
    """A pipeline that runs in this process, waited for by a thread of its own."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.failure: BaseException | None = None
        self.running = self.begin()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def begin(self) -> Running:
        shop = self.workshop
        directory = shop.project.directory
        made = load_pipeline(shop.file)
        return start(made, shop.spark, bootstrap_servers=shop.bootstrap, directory=directory, tell=lambda event: None)

    def _wait(self) -> None:
        try:
            self.running.wait()
        except BaseException as failure:
            self.failure = failure

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self.running.stop()
        eventually(lambda: self.has_ended, what="the end of the query")


Begin = Callable[[str, str, int, int], Started]


@pytest.fixture
def begin(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Iterator[Begin]:
    with ExitStack() as stack:

        def begin(name: str, topic: str, factor: int, budget: int) -> Started:
            directory = tmp_path / name
            directory.mkdir()
            workshop = Workshop(directory, spark, broker.bootstrap)
            workshop.write(PIPELINE.format(name=name, topic=topic, factor=factor, budget=budget))
            started = Started(workshop)
            stack.callback(started.stop)
            return started

        yield begin


def test_pipelines_in_one_spark_do_not_mix(begin: Begin, put: Produce, make_topic: MakeTopic) -> None:
    topics = [make_topic(2), make_topic(2)]
    suffix = topics[0][-6:]
    both = [begin(f"p{factor}-{suffix}", topic, factor, 5) for factor, topic in enumerate(topics, 1)]
    for step in range(4):
        for number, topic in enumerate(topics):
            first = 1 + 1000 * number + 10 * step
            put(topic, [*orders(range(first, first + 10)), Record(b"no JSON", b"x", 1)])
    for number, started in enumerate(both):
        first = 1 + 1000 * number
        rows = partial(started.workshop.rows, f"p{number + 1}-{suffix}")
        eventually(lambda: len(rows()), to_be=40, what="the rows of all records", every_s=0.5)  # noqa: B023
        assert sorted(row[1] for row in rows()) == [each * (number + 1) for each in range(first, first + 40)]
    with pytest.raises(AlreadyRunning):
        both[0].begin()


def test_a_pipeline_that_fails_leaves_the_others_running(begin: Begin, put: Produce, make_topic: MakeTopic) -> None:
    good, bad = make_topic(), make_topic()
    suffix = good[-6:]
    fine, failing = begin(f"fine-{suffix}", good, 1, 0), begin(f"bad-{suffix}", bad, 1, 0)
    put(bad, [Record(b"no JSON", b"x", 0)])
    eventually(lambda: failing.has_ended, what="the end of the pipeline without a budget")
    assert isinstance(failing.failure, OverBudget)
    put(good, orders(range(1, 6)))
    eventually(lambda: len(fine.workshop.rows(f"fine-{suffix}")), to_be=5, what="rows of the other one", every_s=0.5)
    assert not fine.has_ended
