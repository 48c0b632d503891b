"""A command that loses something asks a person first, or takes --yes."""

import pytest

from cordwood.cli.terminal.asking import confirm
from cordwood.model.failure import Failure


def test_nobody_is_asked_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(Failure, match="deleting needs a confirmation, and there is no terminal to ask on"):
        confirm("deleting", "Delete?", yes=False)
    confirm("deleting", "Delete?", yes=True)
