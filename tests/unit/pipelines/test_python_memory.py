"""Whose fault a Python worker's end is: that of a kill for its memory, or of the rows."""

from pathlib import Path

import pytest

from cordwood.pipelines.definition.errors import OverMemory
from cordwood.pipelines.execution.python_memory import KilledPython, PythonKilled, default_limit_bytes

CRASHED = RuntimeError("Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")


def test_each_kill_explains_one_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.pipelines.execution.python_memory._NOTE_COMES_WITHIN_S", 0.01)
    killed = KilledPython()
    killed.check(CRASHED)
    killed.note(PythonKilled("it was large"))
    killed.check(ValueError("odd"))
    with pytest.raises(OverMemory, match="it was large"):
        killed.check(CRASHED)
    killed.check(CRASHED)


def test_a_container_may_have_less_memory_than_the_machine(tmp_path: Path) -> None:
    machine = default_limit_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert default_limit_bytes(tmp_path) == machine > 0
    (tmp_path / "memory.max").write_text("1048576\n")
    assert default_limit_bytes(tmp_path) == 524288
