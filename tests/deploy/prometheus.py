"""Prometheus's own `promtool`, of the PATH or else of Debian's package, fetched into the cache of the tests."""

import functools
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.debian import NotHere, unpacked


@functools.cache
def _found() -> Path | str:
    """The program, or why it cannot be had."""
    if (installed := shutil.which("promtool")) is not None:
        return Path(installed)
    try:
        return unpacked("prometheus", holds="usr/bin/promtool", place="prometheus") / "usr/bin/promtool"
    except NotHere as reason:
        return str(reason)


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs promtool. Skips the test, with the reason, where it cannot be had."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(f"no promtool: {found}")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=120, check=False)
