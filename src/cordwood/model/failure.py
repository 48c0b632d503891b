"""A failure as people are told it: its message, a hint what to do, and the exit code of a command that it ends.

Every floor that knows the remedy raises a `Failure`, so that each message and hint is written once. All errors have one
shape for scripts: `{"error": {"code", "message", "hint"}}`.
"""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of the process. `cli/reference.py` has their meanings."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    PROBLEM_FOUND = 5
    INTERRUPTED = 130


class Failure(Exception):
    """Ends a command. `code` is for scripts, `message` says what is wrong, `hint` what to do about it."""

    def __init__(self, code: str, message: str, hint: str = "", exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def as_json(self) -> str:
        import json  # here, since a broker's start loads this module and needs no JSON

        return json.dumps({"error": {"code": self.code, "message": self.message, "hint": self.hint}})

    def as_text(self) -> str:
        lines = [f"error: {self.message}"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def near_names(name: str, known: Iterable[str]) -> str:
    """Similar names as text: `did you mean orders?`; empty if no known name is similar."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""
