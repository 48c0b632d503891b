"""What a command does while it has nothing to show yet: one living line on a terminal, plain lines elsewhere.

Always on standard error: standard output is for results.
"""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cordwood.cli.output import console, remark

if TYPE_CHECKING:
    from rich.progress import Progress


class Doing:
    """`show` says what is done now; `hide` takes the living line away, before anything else is printed."""

    def __init__(self) -> None:
        self._line: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        self.hide()

    def show(self, text: str) -> None:
        self.hide()
        if not sys.stderr.isatty():
            remark(text)
            sys.stderr.flush()
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._line = Progress(*columns, console=console(stderr=True), transient=True)
        self._line.add_task(text, total=None)
        self._line.start()

    def hide(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None
