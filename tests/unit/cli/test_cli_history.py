"""`cordwood history check`: the exit code is the verdict."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.history import Recorder
from cordwood.model.failure import ExitCode

runner = CliRunner()


def _history(path: Path, values_read: list[tuple[int, str]]) -> Path:
    with Recorder(path) as recorder:
        producer = recorder.producer("writer")
        for offset, value in enumerate(["a", "b", "c"]):
            producer.send("orders", value)
            producer.acked("orders", value, 0, offset)
        reader = recorder.reader("reader")
        reader.positioned("orders", 0, 0)
        reader.polled("orders", 0, values_read)
        reader.drained("orders", 0)
    return path


def test_a_clean_history_is_a_success(tmp_path: Path) -> None:
    file = _history(tmp_path / "run.jsonl", [(0, "a"), (1, "b"), (2, "c")])
    result = runner.invoke(app, ["history", "check", str(file)])
    assert result.exit_code == ExitCode.DONE, result.output
    assert "No anomaly found" in result.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_a_lost_record_is_a_problem_found(tmp_path: Path, as_json: bool) -> None:
    file = _history(tmp_path / "run.jsonl", [(0, "a"), (2, "c")])
    result = runner.invoke(app, ["history", "check", str(file), *(["--json"] if as_json else [])])
    assert result.exit_code == ExitCode.PROBLEM_FOUND
    if as_json:
        assert json.loads(result.stdout)["clean"] is False
    else:
        assert "lost write" in result.stdout


def test_a_file_that_is_no_history_or_not_there_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text("not an event\n")
    wrong = runner.invoke(app, ["history", "check", str(file), "--json"])
    assert wrong.exit_code == ExitCode.FAILED
    assert json.loads(wrong.stderr)["error"]["code"] == "INVALID_HISTORY"
    missing = runner.invoke(app, ["history", "check", str(tmp_path / "nowhere")])
    assert missing.exit_code == ExitCode.NOT_FOUND
