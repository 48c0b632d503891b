"""The output of commands: tables and words for people, JSON for scripts.

Results go to stdout. Remarks about results go to stderr, so that a pipe carries results only.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """A console for one command. Piped output is not folded: scripts cut columns out of tables."""
    file = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, soft_wrap=False, width=None if file.isatty() else 4096)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Prints a plain table: numbers are aligned to the right, and only the last column is folded."""
    console().print(table_of(columns, rows, title=title))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    materialised = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = bool(materialised) and all(isinstance(row[index], int | None) for row in materialised)
        last = index == len(columns) - 1
        table.add_column(column, justify="right" if numbers else "left", no_wrap=not last, overflow="fold")
    for row in materialised:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return table


def say(text: str) -> None:
    """Prints one line of result for people."""
    console().print(Text(text))


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Prints labelled sentences below a heading. A terminal shows each folded beside its label."""
    if not sys.stdout.isatty():
        for label, text in rows:
            say(f"  {label}: {text}")
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, text in rows:
        grid.add_row(Text(f"  {label}:"), Text(text))
    console().print(grid)


def remark(text: str) -> None:
    """Prints a fact worth knowing that is not part of the result, on stderr."""
    console(stderr=True).print(Text(text, style="dim" if sys.stderr.isatty() else ""))


def size_in_words(size_bytes: int) -> str:
    """1536 is `1.5 KiB`."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def count_in_words(count: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
