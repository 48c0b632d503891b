"""The demo's output: chapters, sentences, tables, and claims that are counted."""

import time
from collections.abc import Sequence

from rich.padding import Padding
from rich.text import Text

from cordwood.cli.terminal.output import console
from cordwood.cli.terminal.table import fitting


class Stage:
    """The demo's output. `check` counts every claim, and `finish` prints the verdict."""

    def __init__(self) -> None:
        self._console = console()
        self._began = time.monotonic()
        self._chapter = 0
        self.held = 0
        self.failed: list[str] = []

    def title(self, text: str, explanation: str) -> None:
        self._console.print()
        self._console.print(Text(text, style="bold"))
        self._console.print(Text(explanation, style="dim"))

    def chapter(self, text: str) -> None:
        self._chapter += 1
        self._console.print()
        self._console.print(Text.assemble((f"{self._chapter}. ", "bold cyan"), (text, "bold")))

    def say(self, text: str) -> None:
        self._console.print(Padding(Text(text), (0, 0, 0, 3)))

    def lines(self, texts: Sequence[str]) -> None:
        """Prints the output of a program."""
        for text in texts:
            self._console.print(Padding(Text(text, style="dim"), (0, 0, 0, 5)))

    def command(self, text: str) -> None:
        self._console.print(Padding(Text.assemble(("$ ", "dim"), (text, "green")), (0, 0, 0, 3)))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        indent = 2
        self._console.print(Padding(fitting(columns, rows, self._console.width - indent), (0, 0, 1, indent)))

    def check(self, claim: str, holds: bool) -> None:
        """Prints a claim, and its outcome."""
        if holds:
            self.held += 1
            self._console.print(Padding(Text.assemble(("✓ ", "bold green"), claim), (0, 0, 0, 3)))
        else:
            self.failed.append(claim)
            self._console.print(Padding(Text.assemble(("✗ ", "bold red"), claim), (0, 0, 0, 3)))

    def finish(self) -> int:
        """Prints the verdict, and returns the exit code."""
        took = f"{time.monotonic() - self._began:.0f} s"
        self._console.print()
        if self.failed:
            self._console.print(
                Text(f"{len(self.failed)} of {self.held + len(self.failed)} claims did not hold:", "red")
            )
            for claim in self.failed:
                self._console.print(Text(f"  {claim}"))
            return 1
        self._console.print(Text.assemble(("All ", "bold"), (str(self.held), "bold"), f" claims held, in {took}."))
        return 0
