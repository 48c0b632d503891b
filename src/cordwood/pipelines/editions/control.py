"""How commands reach the process that serves the pipelines of a directory, and what that process says about them.

    <project>/.serving/
      running         locked by the serving process
      state.json      the stage and the restarts of each pipeline
      requests/       a file for each thing that a command asks for
      worker.log      the output of Spark and of the functions

A request is a file that appears whole, by a rename. The serving process looks several times a second, and removes a
request when `state.json` tells what has come of it: a command that waits for the removal reads no older state. A file
has no length limit on its path, needs no listener, and leaves nothing that hangs when either side is killed: a request
that nobody took is removed when the next serving process begins.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, Final

from cordwood.pipelines.definition.errors import AlreadyRunning, WrongState
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.run_lock import holder

DIRECTORY: Final = ".serving"
_LOOK_S: Final = 0.1
_numbers = count()


class Command(StrEnum):
    STOP = "stop"
    START = "start"
    RELOAD = "reload"


@dataclass(frozen=True)
class Request:
    command: Command
    pipeline: str
    path: Path


def is_kept_running(served: Mapping[str, Any] | None) -> bool:
    """True for the facts of a pipeline that its serving process runs, or will run by itself."""
    return served is not None and served["stage"] in ("waiting", "starting", "running")


class Serving:
    """The serving process of a project's directory, seen from outside."""

    def __init__(self, project: Path, files: StateFiles | None = None) -> None:
        self.directory = project / DIRECTORY
        self.lock = self.directory / "running"
        self.log = self.directory / "worker.log"
        self._files = files or StateFiles()

    def pipelines(self) -> Mapping[str, Mapping[str, Any]]:
        """The served pipelines by name, with `stage`, `restarts`, `edition` and `failure`; none if no process serves
        them."""
        if holder(self.lock) is None:
            return {}
        found: Mapping[str, Mapping[str, Any]] = self._report().get("pipelines", {})
        return found

    def ask(self, command: Command, pipeline: str) -> None:
        directory = self.directory / "requests"
        self._files.make_directory(directory)
        path = directory / f"{time.time_ns():020}-{os.getpid()}-{next(_numbers)}.json"
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"command": command.value, "pipeline": pipeline}))
        unfinished.rename(path)

    def stop(self, pipeline: str, timeout_s: float) -> None:
        """Stops a served pipeline after the batch under way. It stays stopped until a command starts it."""
        self.ask(Command.STOP, pipeline)
        self.await_stage(pipeline, ("stopped",), timeout_s)

    def ask_and_await(self, command: Command, pipeline: str, timeout_s: float) -> Mapping[str, Any]:
        """Asks, and waits until the pipeline runs, is done or has failed because of that. Returns its facts."""
        requests = self.directory / "requests"
        self.ask(command, pipeline)
        deadline = time.monotonic() + timeout_s
        while list(requests.glob("*.json")) and holder(self.lock) is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return self.await_stage(pipeline, ("running", "done", "failed"), max(0.0, deadline - time.monotonic()))

    def await_stage(self, pipeline: str, stages: tuple[str, ...], timeout_s: float) -> Mapping[str, Any]:
        """Waits until the pipeline is in one of these stages. Returns its facts; none if the serving process is gone,
        or about to be."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.pipelines().get(pipeline, {})
            if not found or found["stage"] in stages:
                return found
            if time.monotonic() > deadline:
                raise AlreadyRunning(
                    f"{pipeline} is still {found['stage']} after {timeout_s:g} s", "a longer --timeout waits on"
                )
            time.sleep(_LOOK_S)

    def check(self, pipeline: str) -> None:
        """Refuses a pipeline that no process serves."""
        served = self.pipelines()
        if pipeline not in served:
            there = f"there are {', '.join(served)}" if served else "`cordwood pipeline serve DIR` serves pipelines"
            raise WrongState(f"{pipeline} is not served in {self.directory.parent}", there)

    # In the serving process

    def requests(self) -> list[Request]:
        """The requests that are not removed yet, in their order. A file that is no request is removed."""
        found = []
        directory = self.directory / "requests"
        for path in sorted(directory.glob("*.json")) if directory.is_dir() else []:
            try:
                asked = json.loads(path.read_text())
                found.append(Request(Command(asked["command"]), asked["pipeline"], path))
            except (ValueError, KeyError, TypeError, OSError):
                path.unlink(missing_ok=True)
        return found

    def remove(self, requests: Sequence[Request]) -> None:
        for request in requests:
            request.path.unlink(missing_ok=True)

    def stopped_before(self) -> list[str]:
        """The pipelines that a command has stopped, while this process or an earlier one served them."""
        there: Mapping[str, Mapping[str, Any]] = self._report().get("pipelines", {})
        return [name for name, facts in there.items() if facts.get("stage") == "stopped"]

    def report(self, pipelines: Mapping[str, Mapping[str, Any]]) -> None:
        self._files.replace(self.directory / "state.json", {"pipelines": {n: dict(f) for n, f in pipelines.items()}})

    def _report(self) -> Mapping[str, Any]:
        return self._files.read(self.directory / "state.json") or {}
