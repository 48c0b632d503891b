"""Commands that share a process answer as commands in processes of their own do."""

import json

from cordwood.cli.spark_process import run_command
from cordwood.model.failure import ExitCode


def test_output_and_exit_code_of_a_command_come_back() -> None:
    code, output, errors = run_command(["config", "list", "ordering.scope", "--topics", "--json"])
    assert (code, errors) == (ExitCode.DONE, "")
    assert [setting["name"] for setting in json.loads(output)] == ["ordering.scope"]


def test_a_failure_comes_back_with_its_text() -> None:
    code, output, errors = run_command(["topic", "create"])
    assert (code, output) == (ExitCode.USAGE, "")
    assert "error:" in errors


def test_a_failed_command_does_not_hinder_the_next() -> None:
    assert run_command(["nonsense"]).code == ExitCode.USAGE
    assert run_command(["--version"]).code == ExitCode.DONE
