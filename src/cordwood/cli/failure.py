"""The failure of a command: its message, a hint what to do, and the exit code of the process.

All errors have one shape for scripts: `{"error": {"code", "message", "hint"}}`.
"""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of the process. docs/cli.md has their meanings from EXIT_CODE_MEANINGS."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    PROBLEM_FOUND = 5
    INTERRUPTED = 130


EXIT_CODE_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed: the broker refused, or something went wrong on the way",
    ExitCode.USAGE: "the command line is wrong; nothing was tried",
    ExitCode.NOT_REACHABLE: "no broker answered",
    ExitCode.NOT_FOUND: "a topic, partition, group, file or setting that the command names does not exist",
    ExitCode.PROBLEM_FOUND: (
        "a check was made and found a problem: `cluster status --exit-code`, `config check`, `doctor`, "
        "`transaction list --hanging`, "
        "`inspect --verify`, `history check`, `audit`, a pipeline over its budget, a requeue of which records "
        "failed again, `pipeline compare --exit-code`, `spark repair-checkpoint --dry-run`"
    ),
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}


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
