"""The progress of a command that has nothing to show yet: one living line on a terminal, plain lines elsewhere.

Progress always goes to standard error: standard output is for results. The lines have the duration of the step: a
reader of a log file has to tell a slow step from a command that hangs.
"""

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from cordwood.cli.terminal.output import console, remark

if TYPE_CHECKING:
    from rich.progress import Progress

AGAIN_AFTER_S: Final = 5.0
_GROWTH: Final = 0.25
"""A line is repeated after this share of the step's duration, so that an hour does not print 700 lines."""


class Doing:
    """Shows the present step: `show` begins, and `hide` ends it before anything else is printed. Both may be called
    from any thread."""

    def __init__(self, again_after_s: float = AGAIN_AFTER_S) -> None:
        self._again_after_s = again_after_s
        self._lock = threading.RLock()
        self._line: Progress | None = None
        self._repeating: _Repeating | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        self.hide()

    def show(self, text: str) -> None:
        with self._lock:
            self.hide()
            if sys.stderr.isatty():
                self._line = _living_line(text)
            else:
                self._repeating = _Repeating(text, self._again_after_s)

    def hide(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.stop()
                self._line = None
            if self._repeating is not None:
                self._repeating.stop()
                self._repeating = None


def _living_line(text: str) -> "Progress":
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    line = Progress(*columns, console=console(stderr=True), transient=True)
    line.add_task(text, total=None)
    line.start()
    return line


class _Repeating:
    """Prints a text, and prints it again with the time that has passed until `stop` returns."""

    def __init__(self, text: str, again_after_s: float) -> None:
        self._text = text
        self._again_after_s = again_after_s
        self._since_s = time.monotonic()
        self._stopped = threading.Event()
        remark(text)
        sys.stderr.flush()
        self._thread = threading.Thread(target=self._repeat, name="cordwood-doing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _repeat(self) -> None:
        wait_s = self._again_after_s
        while not self._stopped.wait(wait_s):
            passed_s = time.monotonic() - self._since_s
            remark(f"{self._text} {passed_s:.0f} s")
            sys.stderr.flush()
            wait_s = max(self._again_after_s, passed_s * _GROWTH)
