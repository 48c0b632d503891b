"""Every command of the parser keeps the promises of docs/cli.md: which options it has, and how it prints tables.

A new command is in none of the sets below, and fails the first test until somebody has decided what it is.
"""

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import cordwood.cli
from cordwood.cli.app import app
from cordwood.cli.reference import commands
from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.options import AsJson, Quiet

LISTING = {
    "topic list",
    "topic describe",
    "group list",
    "group lag",
    "client list",
    "config list",
    "transaction list",
    "transaction families",
    "user list",
    "token list",
    "pipeline list",
    "recover list",
}
"""Commands whose table has a row for each of many things with names."""
LOOKING = {
    "cluster status",
    "cluster leaders",
    "acl list",
    "acl explain",
    "quota list",
    "quota describe",
    "consume",
    "group describe",
    "group watch",
    "config describe",
    "config check",
    "transaction describe",
    "pipeline status",
    "pipeline graph",
    "pipeline compare",
    "pipeline try",
    "audit",
    "doctor",
    "support-bundle",
    "inspect",
    "history check",
}
RUNNING = {"serve", "cluster up", "demo", "produce", "pipeline run", "pipeline serve", "pipeline replay"}
"""Commands that do one thing for as long as they run."""
CHANGING = {
    "cluster cordon",
    "cluster uncordon",
    "cluster move-dir",
    "cluster elect-preferred",
    "cluster forget",
    "topic create",
    "topic alter",
    "group reset",
    "config alter",
    "user add",
    "user password",
    "acl add",
    "quota add",
    "token create",
    "token renew",
    "pipeline start",
    "pipeline reload",
    "pipeline stop",
    "pipeline swap",
    "pipeline rollback",
    "pipeline requeue",
    "spark repair-checkpoint",
    "recover put-back",
    "recover metadata",
}
"""Commands whose change loses nothing, or that another command undoes."""
ASKING = {
    "cluster import",
    "cluster drain",
    "cluster rebalance",
    "cluster reassign",
    "cluster accept-loss",
    "cluster upgrade",
    "topic truncate",
    "topic delete",
    "group delete",
    "transaction abort",
    "transaction forget-family",
    "user remove",
    "acl remove",
    "quota remove",
    "token expire",
    "pipeline forget",
    "recover accept-lost-directory",
}
"""Commands that lose something, or that move data of a whole cluster."""
KINDS = [LISTING, LOOKING, RUNNING, CHANGING, ASKING]
ALL = {path.removeprefix("cordwood "): command for path, command in commands(app)}
WITHOUT_JSON = {"demo"}
OWN_WORDS = {("consume", "quiet"), ("group reset", "dry_run"), ("spark repair-checkpoint", "dry_run")}
"""Options with words of their own: consume lists no names, a reset is dry by default, a dry repair exits with 5."""


def _options(name: str) -> dict[str, Any]:
    return get_type_hints(ALL[name], include_extras=True)


def test_every_command_is_of_one_kind() -> None:
    assert Counter(chain.from_iterable(KINDS)) == Counter(ALL.keys())


@pytest.mark.parametrize("name", sorted(CHANGING | ASKING))
def test_a_command_that_changes_something_can_be_tried_without_changing_it(name: str) -> None:
    assert "dry_run" in _options(name)


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_command_asks_only_where_something_is_lost_and_tries_only_what_it_could_do(name: str) -> None:
    assert ("yes" in _options(name)) == (name in ASKING)
    assert ("dry_run" in _options(name)) == (name in CHANGING | ASKING)


@pytest.mark.parametrize("name", sorted(LISTING))
def test_a_list_can_be_had_as_names_alone(name: str) -> None:
    assert "quiet" in _options(name)


@pytest.mark.parametrize("name", sorted(ALL.keys() - WITHOUT_JSON))
def test_every_command_can_speak_json(name: str) -> None:
    assert _options(name)["as_json"] == AsJson


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_option_of_many_commands_is_spelled_alike_by_all(name: str) -> None:
    shared = {"dry_run": DryRun, "yes": Yes, "quiet": Quiet}
    for option, annotation in _options(name).items():
        if option in shared and (name, option) not in OWN_WORDS:
            assert annotation == shared[option], option
    assert all(parameter.default is not inspect.Parameter.empty for parameter in _switches(name))


def _switches(name: str) -> list[inspect.Parameter]:
    return [
        each for each in inspect.signature(ALL[name]).parameters.values() if each.annotation in (DryRun, Yes, Quiet)
    ]


def _calls() -> Iterator[tuple[str, str]]:
    """Every call in the command line's source: the file, and the called name."""
    home = Path(cordwood.cli.__file__).parent
    for path in sorted(home.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield str(path.relative_to(home)), ast.unparse(node.func)


def test_all_tables_and_all_colors_go_one_way() -> None:
    """`table.py` folds a table and drops nothing, `output.console` knows NO_COLOR: nobody goes round them."""
    calls = set(_calls())
    assert {file for file, name in calls if name == "Console"} == {"terminal/output.py"}
    assert {file for file, name in calls if name == "Table"} == {"terminal/table.py"}
    assert {file for file, name in calls if name == "Table.grid"} <= {
        "terminal/table.py",
        "terminal/output.py",
        "command.py",
    }
    assert {file for file, name in calls if name in ("typer.style", "typer.secho")} == set()
