"""Swaps and rolls back, and kills itself with kill -9 in the middle: `python swap_driver.py PROJECT`.

Each line of its standard input is `swap NAME STEPS` or `rollback NAME STEPS`. A process of its own does that, and is
killed before its step of that number: an operation on the files of the state, or a change or the commit in a database.
The answer is a line: `killed`, `done`, or what it was refused with.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from cordwood.pipelines.definition.errors import Refusal
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.set_swapping import roll_back_together, swap_together
from cordwood.pipelines.postgresql import place, relations


class Steps:
    def __init__(self, left: int) -> None:
        self._left = left

    def step(self, *_: Any) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def before(self, function: Any) -> Any:
        def stepping(*arguments: Any, **options: Any) -> Any:
            self.step()
            return function(*arguments, **options)

        return stepping


def act(project: Path, command: str, name: str, steps: Steps) -> str:
    relations.lead = steps.before(relations.lead)
    relations.commit = steps.before(place.commit)  # type: ignore[attr-defined]
    found = Project(project, StateFiles(steps.step))
    state = found.state(name)
    try:
        if command == "swap":
            swap_together(found, state, None, force=False, skip_effects=False, timeout_s=60)
        else:
            roll_back_together(found, state, skip_effects=False, timeout_s=60)
    except Refusal as refusal:
        return f"refused: {refusal.message}"
    return "done"


def main(project: Path) -> None:
    for line in sys.stdin:
        command, name, steps = line.split()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, act(project, command, name, Steps(int(steps))).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as told:
            answer = told.read()
        _, status = os.waitpid(pid, 0)
        print("killed" if os.WIFSIGNALED(status) else answer, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
