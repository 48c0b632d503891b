"""`cordwood pipeline …` against a real broker: hopeless requests are refused at once, before Spark starts."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic

from cordwood.model.failure import ExitCode
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.project import Project

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline(version={version}, inputs=topic("{topic}"), outputs=table("copied-orders"))
def copied_orders(orders):
    return orders
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORDWOOD_PIPELINES", str(tmp_path / "project"))
    return tmp_path / "copied.py"


def pipeline_of(file: Path, topic: str, version: int = 1) -> PipelineState:
    file.write_text(FILE.format(topic=topic, version=version))
    return Project(file.parent / "project").state("copied-orders")


@pytest.mark.parametrize("command", ["run", "replay"])
def test_a_missing_input_topic_is_named_and_nothing_is_made(
    cordwood_cli: Cordwood, topic: str, file: Path, command: str
) -> None:
    state = pipeline_of(file, topic)
    code, error = cordwood_cli.error("pipeline", command, file)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "NOT_FOUND")
    assert error["message"] == f"copied-orders reads {topic}, and {cordwood_cli.bootstrap} has no such topic"
    assert f"`cordwood topic create {topic}` creates it" in error["hint"]
    assert not state.directory.exists()


@pytest.mark.parametrize("command", ["run", "replay", "requeue"])
def test_without_spark_the_command_says_how_to_install_it(
    cordwood_cli: Cordwood, make_topic: MakeTopic, file: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = pipeline_of(file, make_topic())
    modules: dict[str, Any] = sys.modules
    monkeypatch.setitem(modules, "pyspark", None)
    result = cordwood_cli.run("pipeline", command, file)
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr == "error: pyspark is not installed\n  hint: in a clone: pip install '.[spark]'\n"
    assert not state.directory.exists()


def test_another_version_is_refused_with_the_command_that_replays_the_file(
    cordwood_cli: Cordwood, make_topic: MakeTopic, file: Path
) -> None:
    topic = make_topic()
    state = pipeline_of(file, topic)
    state.begin(load_pipeline(file), starting="earliest", now_ms=1)
    kept = state.definition(state.live_edition()).read_bytes()
    pipeline_of(file, topic, version=2)
    result = cordwood_cli.run("pipeline", "run", file)
    assert result.exit_code == ExitCode.FAILED
    assert "copied.py has version 2 of copied-orders, and version 1 is live" in result.stderr
    assert "`cordwood pipeline replay copied.py` builds version 2 beside it" in result.stderr
    assert (state.live_edition().version, state.definition(state.live_edition()).read_bytes()) == (1, kept)


@pytest.mark.parametrize("name", ["copied-orders", "copied_orders"])
def test_a_name_is_taken_with_dashes_or_underscores(
    cordwood_cli: Cordwood, make_topic: MakeTopic, file: Path, name: str
) -> None:
    topic = make_topic()
    assert load_pipeline_named(file, topic, name) == "copied-orders"
    state = pipeline_of(file, topic)
    state.begin(load_pipeline(file), starting="earliest", now_ms=1)
    assert cordwood_cli.json("pipeline", "status", name)["pipeline"] == "copied-orders"
    code, error = cordwood_cli.error("pipeline", "run", f"{file}:{name}s")
    assert (code, error["hint"]) == (ExitCode.NOT_FOUND, "it declares copied-orders")


def load_pipeline_named(file: Path, topic: str, name: str) -> str:
    pipeline_of(file, topic)
    return load_pipeline(file, name).name


@pytest.mark.parametrize("command", ["run", "replay", "requeue"])
def test_a_name_means_the_kept_code_in_every_command_and_a_changed_file_is_pointed_at(
    cordwood_cli: Cordwood, topic: str, file: Path, command: str
) -> None:
    state = pipeline_of(file, topic)
    state.begin(load_pipeline(file), starting="earliest", now_ms=1)
    pipeline_of(file, topic, version=2)
    said = cordwood_cli.run("pipeline", command, "copied-orders").stderr
    assert "copied-orders is taken as edition v1 keeps it (version 1)." in said
    assert f"copied.py has changed since: `cordwood pipeline {command} copied.py` takes the file." in said
