"""Commands on Spark that share one process (`cordwood.cli.spark_process`) and one Spark session.

The demo starts the process early, while the machine has little to do.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple


class Ended(NamedTuple):
    """The exit code of a command, and its texts on stdout and stderr."""

    code: int
    output: str
    errors: str


class SparkCommands:
    """Runs `cordwood` commands one after the other, in a process of their own."""

    def __init__(self, environment: Mapping[str, str], log_path: str) -> None:
        with open(log_path, "a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cordwood.cli.spark_process"],
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
