"""docs/cli.md says what the commands say."""

import inspect
import re
from pathlib import Path
from typing import get_args, get_type_hints

from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.cli.reference import commands, render

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_reference_is_not_stale() -> None:
    assert PAGE.read_text() == render(), "run: python -m cordwood.cli.reference > docs/cli.md"


def test_every_command_and_option_is_explained() -> None:
    for path, command in commands(app):
        assert (inspect.getdoc(command) or "").strip(), path
        hints = get_type_hints(command, include_extras=True)
        for name in inspect.signature(command).parameters:
            info = get_args(hints[name])[1]
            assert info.help, f"{path}: {name}"


def test_every_option_has_its_name() -> None:
    # A name that typer makes of the parameter's was left blank.
    blank = [line for line in render().splitlines() if line.startswith("|  ")]
    assert not blank
    assert "`--skew-ratio` N" in render()


def test_the_usage_line_of_a_command_is_that_of_the_reference() -> None:
    # typer adds brackets and dots of its own: a metavar that has them was shown as `[[VALUE]...]...`.
    page = render()
    for path, arguments in (("produce", ["produce"]), ("inspect", ["inspect"]), ("topic delete", ["topic", "delete"])):
        shown = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "200"}).stdout
        [usage] = re.findall(r"Usage: \S+ (.*\S)", shown)
        assert f"cordwood {usage.replace('{', '').replace('}', '')}\n" in page
        assert path in usage
        assert "[[" not in usage
        assert "......" not in usage


def test_every_row_of_a_table_has_the_cells_of_its_head() -> None:
    columns = 0
    for line in render().splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        columns = columns or cells
        assert cells == columns, line
