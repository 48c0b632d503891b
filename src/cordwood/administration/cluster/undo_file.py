"""The file that undoes moves: a plan with the former replicas of partitions. No earlier file is overwritten."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from cordwood.model.failure import Failure


def write_undo(path: str | None, plan: Mapping[str, Any], say: Callable[[str], None]) -> str:
    """Writes the plan to a new file at `path`; None: a file in the present directory, with the time in its name.
    Returns the file's path. Raises Failure if no file was made."""
    for name in _names() if path is None else [path]:
        try:
            _write(name, plan)
        except FileExistsError:
            continue
        except OSError as error:
            raise Failure(
                "NO_UNDO_FILE",
                f"{name}, which is to undo the moves, cannot be written: {error.strerror}; nothing was changed",
                "--undo-file names another file",
            ) from None
        say(f"{name} has the present replicas: `cordwood cluster reassign --file {name}` undoes the moves")
        return name
    # A command that is repeated after an interruption would note replicas in the middle of a move as the former ones.
    raise Failure(
        "UNDO_FILE_EXISTS",
        f"{path} exists already, and may be the only note of where replicas were before earlier moves; nothing was "
        "changed",
        "name a new file with --undo-file, or leave the option out; remove the old file only if its moves need no undo",
    )


def _names() -> Iterator[str]:
    """Names for the file of a command: the second command of one second needs another name than the first."""
    stem = time.strftime("cordwood-undo-%Y%m%d-%H%M%S", time.gmtime())
    yield f"{stem}.json"
    for number in count(2):
        yield f"{stem}-{number}.json"


def _write(path: str, plan: Mapping[str, Any]) -> None:
    """Writes the file. Raises OSError: FileExistsError if there is one already, which stays as it is."""
    made = open(path, "x", encoding="utf-8")  # noqa: SIM115
    try:
        with made as file:
            json.dump(plan, file, indent=1)
    except BaseException:
        # A part of a plan undoes nothing, and would stop the next command with the same --undo-file.
        os.remove(path)
        raise
