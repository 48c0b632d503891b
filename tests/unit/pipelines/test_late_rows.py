"""Rows that a stateful function leaves out as too late are counted where a person looks."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import in_words
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.progress import note_progress
from cordwood.pipelines.execution.spark_progress import rows_too_late

FILE = """
from cordwood.pipelines import pipeline, topic

@pipeline("sessions", version=1, inputs=topic("clicks"), outputs=topic("sessions"), stateful=True)
def sessions(clicks):
    return clicks
"""


def batch(number: int, too_late: int) -> dict[str, Any]:
    return {
        "event": "batch",
        "batch": number,
        "at_ms": 0,
        "rows_in": 5,
        "rows_out": {"sessions": 2},
        "repeated": [],
        "quarantined": 0,
        "quarantined_by_input": {},
        "rules": {},
        "too_late": too_late,
        "lag": 0,
        "duration_ms": 100,
    }


def test_the_operators_of_a_batch_tell_how_many() -> None:
    operators = [{"numRowsDroppedByWatermark": 2}, {"numRowsTotal": 7}, {"numRowsDroppedByWatermark": 1}]
    assert rows_too_late({"stateOperators": operators}) == 3
    assert rows_too_late({}) == rows_too_late(None) == 0


def test_the_line_of_a_batch_names_them_if_there_are_any() -> None:
    assert in_words(batch(0, 3)) == "00:00:00 batch 0, 5 in, 2 to sessions, 3 too late, lag 0, 0.1 s"
    assert "too late" not in in_words(batch(0, 0))


def test_status_has_all_of_them_and_those_of_the_last_batch(tmp_path: Path) -> None:
    (tmp_path / "sessions.py").write_text(FILE)
    project = Project(tmp_path / "project")
    state = project.state("sessions")
    edition = state.begin(load_pipeline(tmp_path / "sessions.py"), starting="earliest", now_ms=1)
    words = ["pipeline", "status", "sessions", "-d", str(project.directory), "--bootstrap-server", "127.0.0.1:1"]
    note_progress(state, edition, batch(0, 0))
    assert "too late" not in CliRunner().invoke(app, words).stdout
    note_progress(state, edition, batch(1, 1_200))
    note_progress(state, edition, batch(2, 34))
    said = CliRunner().invoke(app, words).stdout
    assert "v1 has left out 1,234 rows as too late, 34 in the last batch" in said
    (told,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["editions"]
    assert told["too_late"] == 1_234
