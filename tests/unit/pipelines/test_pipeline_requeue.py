"""The conditions of a requeue, checked before Spark starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import unfinished_batch
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.requeue_plan import OffsetSet, RequeuePlan, read_plan, write_plan
from cordwood.pipelines.execution.requeueing import Requeue
from cordwood.pipelines.execution.running import Running

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline(version=1, inputs=topic("orders"), outputs=table("latest", key="id"))
def enrich(orders):
    return orders
"""
NO_SPARK: Any = None


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "enrich.py").write_text(FILE)
    return load_pipeline(tmp_path / "enrich.py")


@pytest.fixture
def state(tmp_path: Path, pipeline: Pipeline) -> PipelineState:
    """The state of a pipeline that has run one batch."""
    state = Project(tmp_path / "project").state("enrich")
    state.note_query(state.begin(pipeline, starting="earliest", now_ms=1), "q1")
    for name in ("offsets", "commits"):
        (state.checkpoint("v1") / name).mkdir(parents=True)
        (state.checkpoint("v1") / name / "0").write_text("v1\n{}\n" + json.dumps({"orders": {"0": 5}}))
    (state.checkpoint("v1") / "metadata").write_text(json.dumps({"id": "q1"}))
    return state


def test_nothing_is_sent_again_before_a_batch_that_was_begun_is_finished(
    state: PipelineState, pipeline: Pipeline
) -> None:
    """The batch would put its older records over the requeued ones."""
    assert unfinished_batch(state.checkpoint("v1")) is None
    (state.checkpoint("v1") / "offsets" / "1").write_text("v1\n{}\n" + json.dumps({"orders": {"0": 7}}))
    with pytest.raises(WrongState, match="has begun batch 1 and not finished it"):
        Requeue(NO_SPARK, pipeline, state, state.edition("v1"), Bootstrap("nowhere:1")).run(superseded=True)


def test_nothing_is_read_before_a_requeue_that_was_begun_is_finished(state: PipelineState, pipeline: Pipeline) -> None:
    """The requeue would put its older records over the ones that were read."""
    plan = RequeuePlan(3, OffsetSet({0: ((0, 2),)}), OffsetSet({0: ((4, 5),)}))
    write_plan(state, "v1", plan)
    assert read_plan(state, "v1") == plan
    with pytest.raises(WrongState, match="a requeue of edition v1 of enrich was interrupted") as refused:
        Running(
            pipeline,
            state,
            state.edition("v1"),
            NO_SPARK,
            bootstrap=Bootstrap("nowhere:1"),
            once=True,
            tell=lambda event: None,
        )
    assert "cordwood pipeline requeue enrich" in refused.value.hint
