"""What the pipeline commands say of chained pipelines: the lag of now, who reads what, and who is left behind."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic, RunningBroker

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.following import noting_places
from cordwood.pipelines.editions.positions import Positions, to_json
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.switches import Followed
from cordwood.pipelines.execution.legs import Route

WRITER = """
from cordwood.pipelines import pipeline, topic

@pipeline("enrich", version={version}, inputs=topic("{orders}"), outputs=topic("{enriched}", key="id"))
def enrich(orders):
    return orders
"""
READER = """
from cordwood.pipelines import output, pipeline, topic

@pipeline("report", version=1, inputs={inputs}, outputs=topic("reports", key="id"))
def report(enriched):
    return enriched
"""


class Chain:
    """`enrich` has a live edition v1 and a fresh one, v2, which is to write another topic; `report` reads `enrich`."""

    def __init__(self, directory: Path, bootstrap: str, make_topic: MakeTopic) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.project = Project(directory / "project")
        self.orders, self.enriched = make_topic(), make_topic()
        self.writer = self.project.state("enrich")
        self.reader = self.project.state("report")
        self.put(self.orders, 10)
        self.put(self.enriched, 10)
        made = self.load("enrich", WRITER.format(version=1, orders=self.orders, enriched=self.enriched))
        self.writer.begin(made, starting="earliest", now_ms=1)
        self.read_up_to(self.writer, "v1", {self.orders: {0: 10}})
        made = self.load("enrich", WRITER.format(version=2, orders=self.orders, enriched=self.enriched))
        fresh = self.writer.make_edition(made, starting="earliest", now_ms=2, replayed=True)
        self.new = fresh.topics[self.enriched]
        self.read_up_to(self.writer, "v2", {self.orders: {0: 10}})
        self.writer.note_caught_up(fresh, 3)

    def load(self, name: str, text: str) -> Pipeline:
        path = self.directory / f"{name}.py"
        path.write_text(text)
        return load_pipeline(path)

    def put(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(60) == 0

    def read_up_to(self, state: PipelineState, edition: str, end: Positions) -> None:
        """A checkpoint as Spark leaves it."""
        checkpoint = state.checkpoint(edition)
        for kind in ("offsets", "commits"):
            (checkpoint / kind).mkdir(parents=True, exist_ok=True)
            (checkpoint / kind / "0").write_text(f"v1\n{{}}\n{json.dumps(to_json(end))}")

    def read(self, inputs: str, offset: int) -> None:
        made = self.load("report", READER.format(inputs=inputs))
        edition = self.reader.begin(made, starting="earliest", now_ms=1)
        edition = noting_places(self.project, self.reader, made, edition)
        self.reader.note_inputs(edition, {self.enriched: "an id"})
        self.read_up_to(self.reader, "v1", {self.enriched: {0: offset}})


@pytest.fixture
def chain(tmp_path: Path, broker: RunningBroker, make_topic: MakeTopic, cordwood_cli: Cordwood) -> Chain:
    return Chain(tmp_path, broker.bootstrap, make_topic)


def test_the_lag_of_a_reader_counts_what_it_is_still_to_go_over_to(chain: Chain, cordwood_cli: Cordwood) -> None:
    at = ("-d", str(chain.project.directory))
    chain.read(f'output("enrich", "{chain.enriched}")', offset=4)

    def lag() -> int:
        return int(cordwood_cli.json("pipeline", "status", "report", *at)["editions"][0]["lag"])

    assert lag() == 6
    said = cordwood_cli("pipeline", "swap", "enrich", *at)
    assert f"pipeline report (v1) reads {chain.enriched} as this pipeline's output, and goes over by itself." in said
    code, error = cordwood_cli.error("pipeline", "forget", "enrich", "v1", "--yes", *at)
    assert (code, error["message"]) == (1, "readers of enrich are still to go over from edition v1 to v2")
    cordwood_cli("topic", "create", chain.new)
    chain.put(chain.new, 10)
    made = load_pipeline(chain.directory / "enrich.py")
    assert (
        Route(chain.project, chain.writer, made, Bootstrap(chain.bootstrap), chain.writer.edition("v2"))
        .next_leg()
        .is_last
    )
    chain.put(chain.new, 3)
    assert lag() == 9, "six to the end of the old topic, and three in the new one"
    said = cordwood_cli("pipeline", "forget", "enrich", "v1", "--dry-run", *at)
    assert f"topic {chain.enriched} is read by the pipeline report (v1)" in said


def test_a_topic_that_a_reader_still_has_to_read_is_not_said_to_be_deletable(
    chain: Chain, cordwood_cli: Cordwood
) -> None:
    at = ("-d", str(chain.project.directory))
    chain.read(f'output("enrich", "{chain.enriched}")', offset=10)
    cordwood_cli("topic", "create", chain.new)
    made = load_pipeline(chain.directory / "enrich.py")
    cordwood_cli("pipeline", "swap", "enrich", *at)
    Route(chain.project, chain.writer, made, Bootstrap(chain.bootstrap), chain.writer.edition("v2")).next_leg()
    place = Followed("enrich", chain.enriched, "v2", chain.new, 1)
    chain.reader.note_followed(chain.reader.edition("v1"), place)
    cordwood_cli("pipeline", "rollback", "enrich", *at)
    Route(chain.project, chain.writer, made, Bootstrap(chain.bootstrap), chain.writer.edition("v1")).next_leg()
    said = cordwood_cli("pipeline", "forget", "enrich", "v2", "--yes", *at)
    assert f"topic {chain.new} is still there, and has to be until report went over to the next one" in said


def test_a_swap_names_readers_of_an_output_that_is_not_written_any_more(chain: Chain, cordwood_cli: Cordwood) -> None:
    at = ("-d", str(chain.project.directory))
    chain.read(f'output("enrich", "{chain.enriched}")', offset=10)
    made = chain.load("enrich", WRITER.format(version=3, orders=chain.orders, enriched=f"{chain.enriched}.other"))
    chain.writer.note_caught_up(chain.writer.make_edition(made, starting="earliest", now_ms=9, replayed=True), 10)
    said = cordwood_cli("pipeline", "swap", "enrich", *at)
    assert (
        f"pipeline report (v1) reads {chain.enriched}, which edition v3 does not write: it gets nothing more." in said
    )


def test_a_reader_that_names_an_abandoned_topic_is_not_said_to_be_up_to_date(
    chain: Chain, cordwood_cli: Cordwood
) -> None:
    at = ("-d", str(chain.project.directory))
    chain.read(f'topic("{chain.enriched}")', offset=10)
    assert "pipeline report (v1) names the topic, and gets nothing more" in cordwood_cli(
        "pipeline", "swap", "enrich", *at
    )
    words = f"reads the topic {chain.enriched}, to which enrich has written nothing since its edition v2 is live"
    assert words in cordwood_cli("pipeline", "status", "report", *at)
    code, error = cordwood_cli.error("pipeline", "run", str(chain.directory / "report.py"), "--once", *at)
    assert (code, error["code"]) == (1, "WRONG_STATE")
    assert words in error["message"]
    assert f"inputs=output('enrich', '{chain.enriched}', …)" in error["hint"]
