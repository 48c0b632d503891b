"""The output of commands: tables and words for people, plain lines for pipes, JSON for scripts.

Results go to stdout. Remarks about results go to stderr, so that a pipe carries results only. `table.py` makes tables.
No control character gets out: `escaping.py` shows them.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cordwood.cli.terminal.escaping import as_json_text, as_line, as_text
from cordwood.cli.terminal.table import fitting, plain_lines


def console(*, stderr: bool = False) -> Console:
    """The terminal. With NO_COLOR it gets no escape sequence at all."""
    no_color = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, highlight=False, soft_wrap=False, color_system=None if no_color else "auto")


def print_json(value: Any) -> None:
    sys.stdout.write(as_json_text(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def print_json_line(value: Any) -> None:
    sys.stdout.write(as_json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Prints a table: folded to the width of a terminal, lines with tabs in a pipe."""
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line}\n" for line in plain_lines(columns, rows))
        return
    out = console()
    out.print(fitting(columns, [list(row) for row in rows], out.width, title=title))
    out.print()


def print_names(names: Iterable[str | tuple[str, ...]]) -> None:
    """Prints names alone, one a line, for `--quiet`; those of a tuple in one line, with tabs between them."""
    lines = ((name,) if isinstance(name, str) else name for name in names)
    sys.stdout.writelines("\t".join(map(as_line, line)) + "\n" for line in lines)


def say(text: str, style: str = "") -> None:
    """Prints one line of result for people. A pipe gets it unfolded and without a style."""
    if sys.stdout.isatty():
        console().print(Text(as_text(text), style))
    else:
        sys.stdout.write(f"{as_text(text)}\n")


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Prints labelled sentences below a heading. A terminal shows each sentence folded beside its label."""
    if not sys.stdout.isatty():
        for label, text in rows:
            say(f"  {label}: {text}")
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", overflow="fold")
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(Text(f"  {as_line(label)}:"), Text(as_text(text)))
    console().print(grid)


def remark(text: str) -> None:
    """Prints a fact worth knowing that is not part of the result, on stderr."""
    if sys.stderr.isatty():
        console(stderr=True).print(Text(as_text(text), style="dim"))
    else:
        sys.stderr.write(f"{as_text(text)}\n")
