"""Runs commands one after the other in one process with one Spark session: each session costs many seconds to start.

`python -m cordwood.cli.spark_process` reads the arguments of a command as a line of JSON, runs the command, and answers
with a line of JSON. It ends when its standard input ends.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from cordwood.cli.app import app


class Answer(NamedTuple):
    """The exit code of a command, and its texts on stdout and stderr."""

    code: int
    output: str
    errors: str


def run_command(arguments: list[str]) -> Answer:
    """Runs one command in this process."""
    output, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            app(arguments)
        except SystemExit as end:
            code = end.code
    return Answer(code if isinstance(code, int) else 1, output.getvalue(), errors.getvalue())


def main() -> None:
    # Spark's JVM and its Python workers write to this process's standard output: answers go out elsewhere.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from cordwood.pipelines.execution.sessions import pipeline_session

    pipeline_session("cordwood demo", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    for line in sys.stdin:
        answers.write(json.dumps(run_command(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
