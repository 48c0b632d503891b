"""Finds an etcd for the tests: on the PATH, in Debian's archive, or built by Go. Fetched and built ones are cached.

    python -m tests.etcd.finding    # finds or fetches one, and prints which

Debian's package is of a later suite than the machine's (`tests/debian.py`).
"""

import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.debian import NotHere, cached, run, unpacked

SUITE = "forky"
PACKAGE = "etcd-server"
GO_VERSION = "3.6.16"
BUILD_VARIABLE = "CORDWOOD_BUILD_ETCD"
REQUIRE_VARIABLE = "REQUIRE_ETCD"
FLOORS = {(3, 5): 28, (3, 6): 9}
"""The first release of each minor version that the tests accept; later minor versions are accepted whole."""
_BUILD_WITHIN_S = 900
_GO_MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


class Etcd(NamedTuple):
    """An etcd that runs on this machine."""

    path: str
    version: str
    origin: str

    def __str__(self) -> str:
        return f"etcd {self.version} ({self.origin}: {self.path})"


class NoEtcd(Exception):
    """No etcd can be had; says why, and the command that helps."""


@cache
def find_etcd() -> Etcd:
    """Raises NoEtcd. Go builds an etcd only if asked to, or where one is required: that takes minutes."""
    reasons = []
    ways: list[Callable[[], Etcd]] = [_from_path, _from_debian, _from_go]
    for way in ways:
        try:
            return way()
        except NotHere as reason:
            reasons.append(str(reason))
    command = f"{BUILD_VARIABLE}=1 {sys.executable} -m tests.etcd.finding"
    raise NoEtcd(f"no etcd: {'; '.join(reasons)}. Install etcd 3.5.28, 3.6.9 or later, or have Go build one: {command}")


def required() -> bool:
    """Whether a missing etcd fails the tests instead of skipping them."""
    return os.environ.get(REQUIRE_VARIABLE) == "1"


def _from_path() -> Etcd:
    path = shutil.which("etcd")
    if path is None:
        raise NotHere("the PATH has none")
    return _usable(path, "on the PATH")


def _from_debian() -> Etcd:
    inside = "usr/bin/etcd"
    directory = unpacked(PACKAGE, holds=inside, suite=SUITE, place=f"etcd/debian-{SUITE}")
    return _usable(str(directory / inside), f"Debian {SUITE}")


def _from_go() -> Etcd:
    with cached(f"etcd/go-{GO_VERSION}") as directory:
        binary = directory / "etcd"
        if not binary.exists():
            _build(directory, binary)
        return _usable(str(binary), "built by Go")


def _usable(path: str, origin: str) -> Etcd:
    said = run([path, "--version"], within_s=30)
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
    if found is None:
        raise NotHere(f"{path} does not say its version")
    major, minor, patch = map(int, found.groups())
    version = f"{major}.{minor}.{patch}"
    if (major, minor) < min(FLOORS) or patch < FLOORS.get((major, minor), 0):
        raise NotHere(f"{path} is etcd {version}, which is too old")
    return Etcd(path, version, origin)


def _build(directory: Path, binary: Path) -> None:
    if os.environ.get(BUILD_VARIABLE) != "1" and not required():
        raise NotHere("none was built")
    if shutil.which("go") is None:
        raise NotHere("no Go to build one with")
    directory.mkdir(exist_ok=True)
    (directory / "main.go").write_text(_GO_MAIN)
    (directory / "go.mod").write_text("module etcd\n")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    module = f"go.etcd.io/etcd/server/v3@v{GO_VERSION}"
    for command in (["go", "get", module], ["go", "build", "-trimpath", "-o", f"{binary}.new", "."]):
        run(command, within_s=_BUILD_WITHIN_S, environment=environment, directory=directory)
    Path(f"{binary}.new").rename(binary)


if __name__ == "__main__":
    try:
        print(find_etcd())
    except NoEtcd as reason:
        sys.exit(str(reason))
