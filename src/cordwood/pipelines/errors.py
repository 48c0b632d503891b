"""What can go wrong with a pipeline, in words for the person who runs it.

A refusal is final: running again would end alike, so the supervisor does not. Whatever else is raised while a pipeline
runs may pass, and is tried again.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple


class Site(NamedTuple):
    """A place in somebody's Python file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def calling_site() -> Site:
    """The line outside of this package that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("cordwood.pipelines"):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def shown_path(path: str | os.PathLike[str]) -> str:
    """As short as it can be typed where the user stands."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)


class Refusal(Exception):
    """Not done, and not worth another try as it is. `code` is for scripts, `hint` says what to do about it."""

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
    """The pipeline is not in the state that this needs."""

    code = "WRONG_STATE"


class StateMisfit(WrongState):
    """Spark's state was built by another function than the one that is to go on with it."""

    code = "STATE_DOES_NOT_FIT"


class Unusable(Refusal):
    """Spark, Java or a package that pipelines need is not installed."""

    code = "NO_SPARK"


class AlreadyRunning(WrongState):
    code = "ALREADY_RUNNING"


class DamagedState(Refusal):
    """A file of the state says something that no version of this program wrote."""

    code = "DAMAGED_STATE"


class OverBudget(Refusal):
    """More poison records in a batch than the pipeline allows. Nothing of that batch was written."""

    code = "OVER_BUDGET"


class Unrepeatable(Exception):
    """A batch that was interrupted gives other results when it is repeated, and records would be lost between the two.
    It may pass: what fails now and did not before may be a service that is away."""


class InvalidRows(Refusal):
    """Rows that an output cannot take: a table's key that is null or not unique, a column that changed its type."""

    code = "INVALID_ROWS"
