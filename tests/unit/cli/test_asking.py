"""Every command that changes something has --dry-run; every command that loses something asks first, or takes --yes."""

import inspect

import pytest

from cordwood.cli.app import app
from cordwood.cli.asking import confirm
from cordwood.cli.failure import Failure
from cordwood.cli.reference import commands

LOOKING = {
    "cluster status",
    "cluster leaders",
    "topic list",
    "topic describe",
    "consume",
    "group list",
    "group lag",
    "group describe",
    "group watch",
    "client list",
    "config list",
    "config describe",
    "config check",
    "transaction list",
    "transaction describe",
    "transaction families",
    "pipeline status",
    "pipeline list",
    "pipeline compare",
    "audit",
    "doctor",
    "support-bundle",
    "inspect",
    "recover list",
    "history check",
}
RUNNING = {"serve", "cluster up", "demo", "produce", "pipeline run", "pipeline replay", "pipeline requeue"}
"""Commands that do one thing for as long as they run."""
UNDONE_BY_THE_OTHER = {"pipeline swap", "pipeline rollback"}
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
    "pipeline forget",
    "recover accept-lost-directory",
}
ALL = {path.removeprefix("cordwood "): command for path, command in commands(app)}
CHANGING = sorted(ALL.keys() - LOOKING - RUNNING - UNDONE_BY_THE_OTHER)


@pytest.mark.parametrize("name", CHANGING)
def test_a_command_that_changes_something_can_be_tried_without_changing_it(name: str) -> None:
    taken = inspect.signature(ALL[name]).parameters
    assert "dry_run" in taken
    assert ("yes" in taken) == (name in ASKING)


def test_the_lists_name_commands_that_exist() -> None:
    assert ALL.keys() >= LOOKING | RUNNING | UNDONE_BY_THE_OTHER | ASKING


def test_nobody_is_asked_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(Failure, match="deleting needs a confirmation, and there is no terminal to ask on"):
        confirm("deleting", "Delete?", yes=False)
    confirm("deleting", "Delete?", yes=True)
