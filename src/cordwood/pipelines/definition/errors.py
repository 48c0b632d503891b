"""The errors of pipelines, in words for the person who runs one.

A refusal is final: another run would end alike, so the supervisor does not try. Any other error of a running pipeline
may pass, and the run is tried again.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple


class Site(NamedTuple):
    """A line of a user's Python file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def calling_site() -> Site:
    """The innermost running line outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("cordwood.pipelines"):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def shown_path(path: str | os.PathLike[str]) -> str:
    """The path in its shortest form as seen from the working directory."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)


class Refusal(Exception):
    """The request is refused, and would be again. `code` is for scripts; `hint` says what to do."""

    code = "REFUSED"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidDefinition(Refusal):
    """A pipeline's file is wrong; the message begins with file and line."""

    code = "INVALID_DEFINITION"

    def __init__(self, message: str, site: Site | None, hint: str = "") -> None:
        super().__init__(message if site is None else f"{site}: {message}", hint)
        self.site = site


class NotFound(Refusal):
    """No such pipeline, edition or table."""

    code = "NOT_FOUND"


class WrongState(Refusal):
    """The pipeline is not in the state that the request needs."""

    code = "WRONG_STATE"


class StateMisfit(WrongState):
    """Spark's state was built by another function than the one that is to continue it."""

    code = "STATE_DOES_NOT_FIT"


class Unusable(Refusal):
    """Spark, Java or a package that pipelines need is not installed."""

    code = "NO_SPARK"


class AlreadyRunning(WrongState):
    code = "ALREADY_RUNNING"


class DamagedState(Refusal):
    """A file of the state has content that no version of this program writes."""

    code = "DAMAGED_STATE"


class OverBudget(Refusal):
    """A batch has more poison records than the pipeline allows. Nothing of that batch was written."""

    code = "OVER_BUDGET"


class BatchCutShort(Exception):
    """A batch was ended because it took too much of what all pipelines share. The next try may take less. `hint` says
    what the author can change."""

    code = "BATCH_CUT_SHORT"
    hint = ""


class BatchOverdue(BatchCutShort):
    """A batch took longer than its deadline."""

    code = "BATCH_OVERDUE"
    hint = "look for a loop or a slow call in the function, or give it a longer batch_deadline="


class OverMemory(BatchCutShort):
    """The function of a batch took more memory than Python's processes may."""

    code = "OVER_MEMORY"
    hint = "look for what the function keeps from row to row, or allow more by --python-memory"


class BatchStuck(BatchOverdue):
    """An overdue batch goes on although its jobs were cancelled: only the end of the process ends it."""


class RuleBroken(Refusal):
    """A row breaks a rule that fails the batch. Nothing of that batch was written."""

    code = "RULE_BROKEN"


class Unrepeatable(Exception):
    """A repeated batch gives other results than before it was interrupted, and records would be lost between the two.
    The error may pass: a service that the function needs may be away."""


class InvalidRows(Refusal):
    """An output cannot take rows: a table's key is null or not unique, or a column changed its type."""

    code = "INVALID_ROWS"
