"""Small JSON files that are replaced as a whole: a reader sees the old content or the new, also after a crash.

Every operation on the disk goes through one method, so that a test can stop the program before each of them.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordwood.model.durable_files import Step, replace_file, sync
from cordwood.pipelines.definition.errors import DamagedState


def _go_on(operation: str, path: str) -> None:
    """Lets the operation happen."""


class StateFiles:
    """`step` is called before every operation on the disk."""

    def __init__(self, step: Step = _go_on) -> None:
        self._step = step

    def read(self, path: Path) -> dict[str, Any] | None:
        """The object in a file; None if there is no file."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            value = json.loads(content.decode("utf-8"))
        except ValueError as error:
            raise DamagedState(f"{path} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise DamagedState(f"{path} holds no object")
        return value

    def replace(self, path: Path, value: dict[str, Any]) -> None:
        """Replaces the file; after this returns, the content survives a power cut, too."""
        self.replace_bytes(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())

    def replace_bytes(self, path: Path, content: bytes) -> None:
        unfinished = f"{path.parent}/.{path.name}.{os.getpid()}"
        replace_file(path, content, unfinished=unfinished, step=self._step)

    def make_directory(self, path: Path) -> None:
        """Creates the directory and its parents durably."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        self._step("mkdir", str(path))
        path.mkdir(exist_ok=True)
        self.sync_directory(path.parent)

    def remove_file(self, path: Path) -> None:
        self._step("remove", str(path))
        path.unlink()
        self.sync_directory(path.parent)

    def remove_tree(self, path: Path) -> None:
        self._step("remove", str(path))
        shutil.rmtree(path, ignore_errors=False)

    def sync_directory(self, path: Path) -> None:
        self._step("sync directory", str(path))
        sync(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, which the system takes back from dead processes. Waits for another holder."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
