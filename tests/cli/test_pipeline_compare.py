"""`cordwood pipeline compare` of small editions, and an idle `run --once`: real tables and topics, and no Spark."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake
from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic

from cordwood.cli.pipeline.compared_outputs import _Comparing
from cordwood.client.bootstrap import Bootstrap
from cordwood.model.failure import ExitCode
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.requeue_plan import OffsetSet, RequeuePlan, write_plan
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.execution.idle import has_nothing_to_requeue
from cordwood.pipelines.execution.reading_here import topic_ids

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline("{name}", version={version}, inputs=topic("{topic}"), outputs={outputs})
def enrich(orders):
    return orders
"""
TABLES = '{"latest": table("latest", key="id"), "seen": table("seen"), "shared": table("shared", replayable=False)}'


class Stage:
    """A pipeline of two editions with outputs that a test writes itself."""

    def __init__(self, cordwood: Cordwood, directory: Path, topic: str) -> None:
        self.cordwood = cordwood
        self.file = directory / "enrich.py"
        self.topic = topic
        self.name = f"enrich-{topic[-8:]}"
        self.state: PipelineState = Project(directory / "project").state(self.name)

    def begin(self, outputs: str) -> tuple[Edition, Edition]:
        live = self._write(1, outputs)
        self.state.begin(live, starting="earliest", now_ms=1)
        fresh = self._write(2, outputs)
        made = self.state.make_edition(fresh, starting="earliest", now_ms=2, replayed=True)
        return self.state.edition("v1"), made

    def _write(self, version: int, outputs: str) -> Any:
        self.file.write_text(FILE.format(name=self.name, version=version, topic=self.topic, outputs=outputs))
        return load_pipeline(self.file)

    def rows(self, edition: Edition, table: str, rows: list[dict[str, Any]]) -> None:
        path = self.state.table_directory(edition, table)
        assert isinstance(path, Path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append")

    def records(self, topic: str, records: list[tuple[str | None, str | None]]) -> None:
        producer = Producer({"bootstrap.servers": self.cordwood.bootstrap})
        for key, value in records:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(30) == 0

    def compare(self, *options: str) -> Any:
        return self.cordwood.json("pipeline", "compare", self.name, *options)


@pytest.fixture
def stage(cordwood_cli: Cordwood, tmp_path: Path, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("CORDWOOD_PIPELINES", str(tmp_path / "project"))

    def no_spark(self: _Comparing) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(_Comparing, "_session", no_spark)
    return Stage(cordwood_cli, tmp_path, make_topic(2))


def test_topics_are_compared_by_key_and_by_content(stage: Stage, make_topic: MakeTopic) -> None:
    priced = make_topic(2)
    _, fresh = stage.begin(f'topic("{priced}", key="id")')
    stage.cordwood("topic", "create", fresh.topics[priced], "--partitions", "2")
    stage.records(priced, [("a", '{"n": 1}'), ("b", '{"n": 2, "m": 0}'), ("c", "x"), (None, "alone"), ("d", None)])
    stage.records(fresh.topics[priced], [("b", '{"n": 3, "m": 0}'), ("a", '{"n": 1}'), ("e", "new"), ("d", None)])
    (found,) = stage.compare()["topics"]
    assert (found["topic"], found["equal"], found["live_rows"], found["fresh_rows"]) == (priced, False, 5, 4)
    assert (found["only_live"], found["only_fresh"], found["changed"]) == (2, 1, 1)
    assert sorted(found["samples"], key=str) == [
        {"kind": "changed", "key": "b", "live": {"n": 2}, "fresh": {"n": 3}},
        {"kind": "only fresh", "key": "e", "fresh": {"value": "new"}},
        {"kind": "only live", "key": "c", "live": {"value": "x"}},
        {"kind": "only live", "key": None, "live": {"value": "alone"}},
    ]
    text = stage.cordwood("pipeline", "compare", stage.name)
    assert f"{priced}" in text
    assert "changed" in text
    assert '{"n": 2}' in text
    result = stage.cordwood.run("pipeline", "compare", stage.name, "--exit-code")
    assert result.exit_code == ExitCode.PROBLEM_FOUND


def test_a_record_that_is_there_twice_is_a_difference_and_order_is_none(stage: Stage, make_topic: MakeTopic) -> None:
    priced = make_topic()
    _, fresh = stage.begin(f'topic("{priced}", key="id")')
    stage.cordwood("topic", "create", fresh.topics[priced], "--partitions", "1")
    stage.records(priced, [("a", "1"), ("b", "2"), ("a", "3")])
    stage.records(fresh.topics[priced], [("b", "2"), ("a", "3"), ("a", "1")])
    assert stage.compare("--exit-code")["equal"]
    assert "no difference" in stage.cordwood("pipeline", "compare", stage.name)
    stage.records(fresh.topics[priced], [("b", "2")])
    (found,) = stage.compare()["topics"]
    assert (found["changed"], found["only_live"], found["only_fresh"]) == (1, 0, 0)


def test_tables_are_compared_by_key_or_row_by_row(stage: Stage) -> None:
    live, fresh = stage.begin(TABLES)
    stage.rows(
        live, "latest", [{"id": "a", "n": 1, "old": 1}, {"id": "b", "n": 2, "old": 1}, {"id": "c", "n": 3, "old": 1}]
    )
    stage.rows(fresh, "latest", [{"id": "a", "n": 1}, {"id": "b", "n": 5}, {"id": "d", "n": 4}])
    stage.rows(live, "seen", [{"id": "a"}, {"id": "a"}, {"id": "b"}])
    stage.rows(fresh, "seen", [{"id": "a"}, {"id": "b"}])
    latest, seen = stage.compare()["tables"]
    assert (latest["only_live"], latest["only_fresh"], latest["changed"]) == (1, 1, 1)
    assert (latest["columns_only_live"], latest["columns_only_fresh"]) == (["old"], [])
    assert latest["samples"][0] == {"kind": "changed", "key": {"id": "b"}, "live": {"n": 2}, "fresh": {"n": 5}}
    assert (seen["only_live"], seen["only_fresh"], seen["changed"], seen["live_rows"]) == (1, 0, 0, 3)
    assert seen["samples"] == [{"kind": "only live", "key": None, "live": {"id": "a"}}]


def test_what_one_edition_has_not_written_is_named(stage: Stage, make_topic: MakeTopic) -> None:
    priced = make_topic()
    live, _ = stage.begin(f'{{"t": table("latest", key="id"), "p": topic("{priced}", key="id")}}')
    stage.rows(live, "latest", [{"id": "a"}])
    assert stage.compare()["not_written_yet"] == ["table latest", f"topic {priced}"]
    assert stage.cordwood.run("pipeline", "compare", stage.name, "--exit-code").exit_code == ExitCode.PROBLEM_FOUND


def test_where_nothing_can_be_compared_it_says_so_with_another_exit_code(stage: Stage) -> None:
    stage.begin('table("shared", replayable=False)')
    code, error = stage.cordwood.error("pipeline", "compare", stage.name)
    assert (code, error["code"]) == (ExitCode.FAILED, "NOTHING_TO_COMPARE")
    assert "editions v1 and v2" in error["message"]


def test_an_idle_run_once_ends_without_spark(stage: Stage) -> None:
    stage.begin('table("latest", key="id")')
    stage._write(1, 'table("latest", key="id")')
    stage.records(stage.topic, [("a", "1"), ("b", "2"), ("c", "3")])
    _has_read_all(stage, "v1")
    began = time.monotonic()
    said = stage.cordwood("pipeline", "run", stage.file, "--once")
    assert said == f"{stage.name} v1: all that there was is read\n"
    assert time.monotonic() - began < 60, "as long as no Spark takes on any machine"
    assert not (stage.state.edition_directory("v1") / "worker.log").exists()


def test_a_replay_that_has_caught_up_ends_without_spark_when_it_is_asked_for_again(stage: Stage) -> None:
    stage.begin('table("latest", key="id")')
    stage.records(stage.topic, [("a", "1"), ("b", "2"), ("c", "3")])
    _has_read_all(stage, "v2")
    stage.state.note_caught_up(stage.state.edition("v2"), 3)
    said = stage.cordwood("pipeline", "replay", stage.file)
    assert said == f"{stage.name} v2: all that there was is read\n"
    assert not (stage.state.edition_directory("v2") / "worker.log").exists()


def test_a_requeue_that_finds_nothing_ends_without_spark(stage: Stage) -> None:
    stage.begin('table("latest", key="id")')
    stage._write(1, 'table("latest", key="id")')
    stage.records(stage.topic, [("a", "1")])
    _has_read_all(stage, "v1")
    quarantine = f"{stage.name}.quarantine"
    stage.cordwood("topic", "create", quarantine)
    producer = Producer({"bootstrap.servers": stage.cordwood.bootstrap})
    told = {"cordwood.topic": stage.topic, "cordwood.partition": "0", "cordwood.offset": "0"}
    for query in ("a query", "of another edition"):
        producer.produce(quarantine, value=b"poison", headers={**told, "cordwood.query": query})
    assert producer.flush(30) == 0
    state, edition = stage.state, stage.state.edition("v1")
    pipeline = load_pipeline(stage.file)
    assert not has_nothing_to_requeue(pipeline, state, edition, Bootstrap(stage.cordwood.bootstrap))

    id_ = topic_ids(Bootstrap(stage.cordwood.bootstrap), [quarantine])[quarantine]
    write_plan(state, "v1", RequeuePlan(0, OffsetSet().with_offsets([(0, 0)]), None, id_))
    kept = {path: path.read_bytes() for path in state.directory.rglob("*") if path.is_file()}
    result = stage.cordwood.run("pipeline", "requeue", stage.file, "--dry-run")
    assert result.stdout == f"{stage.name}: 0 records would be sent through again\n"
    assert result.stderr.endswith("Dry run: nothing was changed.\n")
    told = stage.cordwood.json("pipeline", "requeue", stage.file, "--dry-run")
    assert (told["would_send"], told["more"], told["dry_run"]) == ([], False, True)
    assert {path: path.read_bytes() for path in state.directory.rglob("*") if path.is_file()} == kept
    began = time.monotonic()
    said = stage.cordwood("pipeline", "requeue", stage.file)
    assert said == f"{stage.name}: 0 records sent through again, 0 failed again\n"
    assert time.monotonic() - began < 60, "as long as no Spark takes on any machine"
    # Offsets mean nothing in a topic that was made again.
    write_plan(state, "v1", RequeuePlan(0, OffsetSet().with_offsets([(0, 0)]), None, "another"))
    assert not has_nothing_to_requeue(pipeline, state, edition, Bootstrap(stage.cordwood.bootstrap))


def test_a_requeue_that_is_not_possible_is_refused_before_spark_starts(stage: Stage) -> None:
    stage.begin('table("latest", key="id")')
    stage._write(1, 'table("latest", key="id")')
    stage.records(stage.topic, [("a", "1")])
    _has_read_all(stage, "v1")
    (stage.state.checkpoint("v1") / "commits/0").unlink()
    for words in (["--dry-run"], []):
        code, error = stage.cordwood.error("pipeline", "requeue", stage.file, *words)
        assert (code, error["code"]) == (ExitCode.FAILED, "WRONG_STATE")
        assert "has begun batch 0 and not finished it" in error["message"]
    lock = RunLock(stage.state.edition_directory("v1") / "running")
    lock.take("it", 5)
    assert (
        "is being run by process" in stage.cordwood.error("pipeline", "requeue", stage.file, "--dry-run")[1]["message"]
    )
    lock.release()


def _has_read_all(stage: Stage, edition: str) -> None:
    """A checkpoint as Spark leaves it at the end of the log."""
    state = stage.state
    state.note_query(state.edition(edition), "a query")
    ids = {name: id_ for name, id_ in topic_ids(Bootstrap(stage.cordwood.bootstrap), [stage.topic]).items() if id_}
    state.note_inputs(state.edition(edition), ids)
    watermarks = {str(index): end for index, end in _ends(stage).items()}
    checkpoint = state.checkpoint(edition)
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "a query"}')
    (checkpoint / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps({stage.topic: watermarks})}")
    (checkpoint / "commits/0").write_text("v1\n{}")


def _ends(stage: Stage) -> dict[int, int]:
    from cordwood.pipelines.execution.reading_here import log_ends

    return dict(log_ends(Bootstrap(stage.cordwood.bootstrap), [stage.topic])[stage.topic])
