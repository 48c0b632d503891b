"""The one way in which commands print tables.

On a terminal a table fits the width: long texts are folded within their column, and if the columns still do not fit,
each row becomes a block of labelled lines. No column and no character is left out. In a pipe a table is plain: a line
of names, then a line for each row, with tabs in between, no frame and no padding.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cordwood.cli.terminal.escaping import as_line

NARROWEST = 12
"""A folded column of texts keeps this many characters: narrower ones cannot be read. Numbers are never folded."""
_GAP = 2

Rows = Sequence[Sequence[object]]


def cell_text(cell: object) -> str:
    """The text of a cell: `-` for None, control characters escaped."""
    return "-" if cell is None else as_line(str(cell))


def plain_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The table for a pipe."""
    yield "\t".join(columns)
    for row in rows:
        yield "\t".join(cell_text(cell) for cell in row)


def fitting(columns: Sequence[str], rows: Rows, width: int, *, title: str | None = None) -> RenderableType:
    """The table for a terminal of this width."""
    texts = [[cell_text(cell) for cell in row] for row in rows]
    numbers = [bool(rows) and all(isinstance(row[index], int | None) for row in rows) for index in range(len(columns))]
    widths = _widths(columns, texts, numbers, width)
    if widths is None:
        return _blocks(columns, texts, title)
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column, number, each in zip(columns, numbers, widths, strict=True):
        table.add_column(Text(column), justify="right" if number else "left", width=each, overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    return table


def _widths(columns: Sequence[str], texts: list[list[str]], numbers: list[bool], width: int) -> list[int] | None:
    """The columns' widths; None if the table would not fit with every column at its narrowest. Texts are folded between
    words as long as that is enough."""
    widths, least, whole_words = [], [], []
    for index, column in enumerate(columns):
        cells = [row[index] for row in texts]
        widest = max(map(cell_len, cells), default=0)
        name = max(map(cell_len, column.split()), default=0)
        word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        narrow = widest if numbers[index] else min(widest, NARROWEST)
        widths.append(max(widest, cell_len(column)))
        least.append(max(name, narrow))
        whole_words.append(max(name, narrow, word))
    return _shrunk(widths, whole_words, width) or _shrunk(widths, least, width)


def _shrunk(widths: list[int], least: list[int], width: int) -> list[int] | None:
    """The widths, made smaller until they fit; None if they do not fit even at their least."""
    widths = list(widths)
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        # The widest column gives first: it loses least by another fold.
        widest = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        if widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
        excess -= 1
    return widths


def _blocks(columns: Sequence[str], texts: list[list[str]], title: str | None) -> RenderableType:
    """Each row as labelled lines, with an empty line between rows."""
    parts: list[RenderableType] = [] if title is None else [Text(title, style="bold")]
    for number, row in enumerate(texts):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(style="bold", overflow="fold")
        grid.add_column(overflow="fold")
        for column, text in zip(columns, row, strict=True):
            grid.add_row(Text(f"{column}:" if column else ""), Text(text))
        parts += [Text(""), grid] if number or title is not None else [grid]
    return Group(*parts)
