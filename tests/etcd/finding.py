"""Finds an etcd for the tests: on the PATH, in Debian's archive, or built by Go. Fetched and built ones are cached.

    python -m tests.etcd.finding    # finds or fetches one, and prints which

Debian's package comes from the mirror that this machine's own apt uses, in a later suite than the machine's. It is
unpacked into the cache, not installed; apt works in directories of the cache and leaves the machine's state as it is.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

SUITE = "forky"
PACKAGE = "etcd-server"
GO_VERSION = "3.6.16"
BUILD_VARIABLE = "CORDWOOD_BUILD_ETCD"
REQUIRE_VARIABLE = "REQUIRE_ETCD"
FLOORS = {(3, 5): 28, (3, 6): 9}
"""The first release of each minor version that the tests accept; later minor versions are accepted whole."""
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FETCH_WITHIN_S = 180
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


class _NotHere(Exception):
    """One of the ways to an etcd is closed."""


@cache
def find_etcd() -> Etcd:
    """Raises NoEtcd. Go builds an etcd only if asked to, or where one is required: that takes minutes."""
    reasons = []
    ways: list[Callable[[], Etcd]] = [_from_path, _from_debian, _from_go]
    for way in ways:
        try:
            return way()
        except _NotHere as reason:
            reasons.append(str(reason))
    command = f"{BUILD_VARIABLE}=1 {sys.executable} -m tests.etcd.finding"
    raise NoEtcd(f"no etcd: {'; '.join(reasons)}. Install etcd 3.5.28, 3.6.9 or later, or have Go build one: {command}")


def required() -> bool:
    """Whether a missing etcd fails the tests instead of skipping them."""
    return os.environ.get(REQUIRE_VARIABLE) == "1"


def _from_path() -> Etcd:
    path = shutil.which("etcd")
    if path is None:
        raise _NotHere("the PATH has none")
    return _usable(path, "on the PATH")


def _from_debian() -> Etcd:
    origin = f"Debian {SUITE}"
    with _cached(f"debian-{SUITE}") as directory:
        binary = directory / "usr" / "bin" / "etcd"
        if not binary.exists():
            _unpack_package(directory)
        return _usable(str(binary), origin)


def _from_go() -> Etcd:
    with _cached(f"go-{GO_VERSION}") as directory:
        binary = directory / "etcd"
        if not binary.exists():
            _build(directory, binary)
        return _usable(str(binary), "built by Go")


def _usable(path: str, origin: str) -> Etcd:
    said = _run([path, "--version"], within_s=30)
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
    if found is None:
        raise _NotHere(f"{path} does not say its version")
    major, minor, patch = map(int, found.groups())
    version = f"{major}.{minor}.{patch}"
    if (major, minor) < min(FLOORS) or patch < FLOORS.get((major, minor), 0):
        raise _NotHere(f"{path} is etcd {version}, which is too old")
    return Etcd(path, version, origin)


@contextmanager
def _cached(name: str) -> Iterator[Path]:
    """The directory of one etcd in the cache. Of several processes one fetches, and the others wait for it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordwood" / "etcd"
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / f"{name}.lock").open("w")
    except OSError as error:
        raise _NotHere(f"the cache {home} cannot be written: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home / name


def _unpack_package(directory: Path) -> None:
    for tool in ("apt-get", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise _NotHere(f"no {tool} to fetch Debian's package with")
    work = directory.with_name(f"{directory.name}.apt")
    shutil.rmtree(work, ignore_errors=True)
    try:
        environment = _isolated_apt(work)
        _run(["apt-get", "update"], within_s=_FETCH_WITHIN_S, environment=environment, directory=work)
        _run(["apt-get", "download", PACKAGE], within_s=_FETCH_WITHIN_S, environment=environment, directory=work)
        (package,) = work.glob(f"{PACKAGE}_*.deb")
        unpacked = work / "unpacked"
        _run(["dpkg-deb", "-x", str(package), str(unpacked)], within_s=60)
        shutil.rmtree(directory, ignore_errors=True)
        unpacked.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _isolated_apt(work: Path) -> dict[str, str]:
    """The environment of an apt that has its state, cache and sources in `work`. The machine's configuration gives only
    its mirror, and how to reach it (proxies, certificates)."""
    for inside in ("state/lists/partial", "cache/archives/partial"):
        (work / inside).mkdir(parents=True)
    (work / "status").touch()
    keys = f"[signed-by={_KEYS}] " if _KEYS.exists() else ""
    (work / "sources.list").write_text(f"deb {keys}{_mirror()} {SUITE} main\n")
    dumped = _run(["apt-config", "dump"], within_s=30)
    reaching = [line for line in dumped.splitlines() if line.startswith("Acquire::") and "IndexTargets" not in line]
    (work / "apt.conf").write_text(
        "\n".join(
            (
                *reaching,
                'Acquire::Languages "none";',
                'Acquire::GzipIndexes "true";',
                f'Acquire::http::Timeout "{_FETCH_WITHIN_S // 6}";',
                f'Acquire::https::Timeout "{_FETCH_WITHIN_S // 6}";',
                f'Dir::State "{work}/state";',
                f'Dir::State::status "{work}/status";',
                f'Dir::Cache "{work}/cache";',
                f'Dir::Etc::main "{os.devnull}";',
                f'Dir::Etc::parts "{work}/state";',
                f'Dir::Etc::sourcelist "{work}/sources.list";',
                f'Dir::Etc::sourceparts "{work}/state";',
                f'Dir::Etc::preferences "{os.devnull}";',
                f'Dir::Etc::preferencesparts "{work}/state";',
                'APT::Sandbox::User "";',  # the user _apt may not see the cache
                'APT::Get::List-Cleanup "false";',
                "",
            )
        )
    )
    return {**os.environ, "APT_CONFIG": str(work / "apt.conf"), "LC_ALL": "C"}


def _mirror() -> str:
    """The address from which this machine gets Debian's main archive."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    if release.get("ID") != "debian":
        raise _NotHere("this machine is not a Debian")
    shape = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = _run(["apt-get", "indextargets", "--format", shape, "Created-By: Packages"], within_s=30)
    for line in told.splitlines():
        uri, suite, component = line.split()
        if suite == release.get("VERSION_CODENAME") and component == "main":
            return uri
    raise _NotHere("apt has no source of Debian's main archive")


def _build(directory: Path, binary: Path) -> None:
    if os.environ.get(BUILD_VARIABLE) != "1" and not required():
        raise _NotHere("none was built")
    if shutil.which("go") is None:
        raise _NotHere("no Go to build one with")
    directory.mkdir(exist_ok=True)
    (directory / "main.go").write_text(_GO_MAIN)
    (directory / "go.mod").write_text("module etcd\n")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    module = f"go.etcd.io/etcd/server/v3@v{GO_VERSION}"
    for command in (["go", "get", module], ["go", "build", "-trimpath", "-o", f"{binary}.new", "."]):
        _run(command, within_s=_BUILD_WITHIN_S, environment=environment, directory=directory)
    Path(f"{binary}.new").rename(binary)


def _run(
    command: list[str], *, within_s: float, environment: dict[str, str] | None = None, directory: Path | None = None
) -> str:
    """The output of a command. Raises _NotHere if it fails."""
    try:
        ended = subprocess.run(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotHere(f"{' '.join(command[:2])} failed: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise _NotHere(f"{' '.join(command[:2])} failed: {' '.join(said)}")
    return ended.stdout


if __name__ == "__main__":
    try:
        print(find_etcd())
    except NoEtcd as reason:
        sys.exit(str(reason))
