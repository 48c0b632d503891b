"""Tables: on a terminal of any width nothing is left out; in a pipe they are lines with tabs."""

import io
import os
import pty
import subprocess
import sys
from collections import Counter

import pytest
from rich.console import Console

from cordwood.cli.terminal import output
from cordwood.cli.terminal.table import fitting, plain_lines

COLUMNS = ["partition", "leader", "replicas", "in sync", "why it waits", "size", "member"]
ROWS: list[list[object]] = [
    [
        0,
        1,
        "1,2,3",
        "1",
        "broker 2 lags 12,345 offsets behind, and broker 3 is gone since 10:00",
        "1.5 GiB",
        "consumer-1",
    ],
    [
        999,
        None,
        "4,5,6",
        None,
        "no leader: all replicas that have every record are away",
        "69 B",
        "m-" + "0123456789" * 6,
    ],
]


def shown(width: int, *, columns: list[str] = COLUMNS, rows: list[list[object]] = ROWS) -> str:
    file = io.StringIO()
    Console(width=width, file=file, color_system=None).print(fitting(columns, rows, width))
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200, 400])
def test_nothing_is_left_out_at_any_width(width: int) -> None:
    said = shown(width)
    assert all(len(line) <= width for line in said.splitlines())
    for column in COLUMNS:
        assert all(word in said for word in column.split()), column
    # A folded word is in parts, and columns stand side by side: the characters are counted.
    letters = Counter("".join(str(cell) for row in ROWS for cell in row if cell is not None))
    del letters[" "]
    assert letters <= Counter(said)


def test_words_stay_whole_where_that_is_enough() -> None:
    rows: list[list[object]] = [["under-replicated, and below min.insync.replicas", "3 (its node is gone)"]]
    for width in (40, 60):
        said = shown(width, columns=["trouble", "not in sync"], rows=rows)
        assert all(word in said.split() for cell in rows[0] for word in str(cell).split()), said


def test_a_wide_terminal_shows_each_row_in_one_line() -> None:
    assert len(shown(250).splitlines()) == 2 + len(ROWS)


def test_a_narrow_terminal_shows_each_row_as_labelled_lines() -> None:
    said = shown(30)
    assert "leader:       1" in said
    assert "─" not in said


def test_a_table_without_rows_has_its_names() -> None:
    assert shown(80, rows=[]).split() == [*" ".join(COLUMNS).split(), "─" * len("  ".join(COLUMNS))]


def test_a_pipe_gets_tabs_and_neither_frames_nor_padding() -> None:
    lines = list(plain_lines(COLUMNS, ROWS))
    assert lines[0] == "partition\tleader\treplicas\tin sync\twhy it waits\tsize\tmember"
    assert [line.split("\t") for line in lines[1:]] == [
        ["-" if cell is None else str(cell) for cell in row] for row in ROWS
    ]


def test_a_name_that_a_client_chose_neither_moves_the_cursor_nor_ends_a_cell() -> None:
    row: list[object] = ["a\tb\nc\x1b[2J\x9b"]
    assert list(plain_lines(["client"], [row]))[1] == "a\\tb\\nc\\x1b[2J\\x9b"
    assert "a\\tb\\nc\\x1b[2J\\x9b" in shown(80, columns=["client"], rows=[row])


def test_no_color_means_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.console().color_system is not None
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.console().color_system is None


def _on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """What a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "cordwood.cli", *arguments],
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            timeout=60,
            check=False,
        )
        return os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("arguments", [["config", "list", "retention.ms"], ["topic", "--help"], ["no-such-command"]])
def test_a_command_with_no_color_writes_plain_text_to_a_terminal(arguments: list[str]) -> None:
    said = _on_a_terminal(*arguments, NO_COLOR="1")
    assert said
    assert b"\x1b" not in said


def test_an_encoding_that_lacks_a_character_gets_it_escaped() -> None:
    program = "from cordwood.cli.app import app; app(['config', 'check', 'ж.toml'])"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"\\u0436.toml cannot be read" in ended.stderr, ended.stderr
    assert b"Traceback" not in ended.stderr
