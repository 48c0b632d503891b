"""Commands on Spark that share one process and one Spark session: each session costs many seconds to start.

The demo starts the process early, while the machine has little to do. The process reads the arguments of a command as a
line of JSON, runs the command, and answers with a line of JSON. It ends when its standard input ends.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple


class Ended(NamedTuple):
    """The exit code of a command, and its texts on stdout and stderr."""

    code: int
    output: str
    errors: str


class SparkCommands:
    """Runs `cordwood` commands one after the other, in the process of this module."""

    def __init__(self, environment: Mapping[str, str], log_path: str) -> None:
        with open(log_path, "a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cordwood.cli.demo.spark_commands"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(environment),
                start_new_session=True,
            )
        self._turns = ThreadPoolExecutor(max_workers=1, thread_name_prefix="demo-spark")

    def begin(self, *arguments: str) -> Future[Ended]:
        """Runs a command after those that were begun before it."""
        return self._turns.submit(self._ask, arguments)

    def _ask(self, arguments: tuple[str, ...]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(arguments) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return Ended(*json.loads(answer)) if answer else Ended(-1, "", "the process with the Spark session has ended")

    def close(self) -> None:
        """Ends the process and its JVM at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._turns.shutdown(cancel_futures=True)


def run_command(arguments: list[str]) -> Ended:
    """Runs one command in this process."""
    from cordwood.cli.app import app

    output, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            app(arguments)
        except SystemExit as end:
            code = end.code
    return Ended(code if isinstance(code, int) else 1, output.getvalue(), errors.getvalue())


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
