"""Programs for the tests from Debian's archive, unpacked into a cache. Nothing is installed.

The packages come from the mirror that this machine's own apt uses. apt works in directories of the cache and leaves the
machine's state as it is.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FETCH_WITHIN_S = 180


class NotHere(Exception):
    """A program cannot be had on this machine; says why."""


def unpacked(*packages: str, holds: str, suite: str | None = None, place: str) -> Path:
    """The directory with the files of the packages, fetched if it lacks the file `holds`. Raises NotHere.

    `suite`: Debian's release, else the machine's own. `place`: the directory's name below the cache of the tests.
    """
    with cached(place) as directory:
        if not (directory / holds).exists():
            _fetch(directory, packages, suite or release()["VERSION_CODENAME"])
        return directory


@contextmanager
def cached(name: str) -> Iterator[Path]:
    """A directory in the cache of the tests. Of several processes one fetches, and the others wait for it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordwood"
    try:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        lock = (home / f"{name}.lock").open("w")
    except OSError as error:
        raise NotHere(f"the cache {home} cannot be written: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home / name


def _fetch(directory: Path, packages: tuple[str, ...], suite: str) -> None:
    for tool in ("apt-get", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotHere(f"no {tool} to fetch Debian's packages with")
    work = directory.with_name(f"{directory.name}.apt")
    shutil.rmtree(work, ignore_errors=True)
    try:
        environment = _isolated_apt(work, suite)
        run(["apt-get", "update"], within_s=_FETCH_WITHIN_S, environment=environment, directory=work)
        run(["apt-get", "download", *packages], within_s=_FETCH_WITHIN_S, environment=environment, directory=work)
        unpacked = work / "unpacked"
        for package in packages:
            (archive,) = work.glob(f"{package}_*.deb")
            run(["dpkg-deb", "-x", str(archive), str(unpacked)], within_s=60)
        shutil.rmtree(directory, ignore_errors=True)
        unpacked.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _isolated_apt(work: Path, suite: str) -> dict[str, str]:
    """The environment of an apt that has its state, cache and sources in `work`. The machine's configuration gives only
    its mirror, and how to reach it (proxies, certificates)."""
    for inside in ("state/lists/partial", "cache/archives/partial"):
        (work / inside).mkdir(parents=True)
    (work / "status").touch()
    keys = f"[signed-by={_KEYS}] " if _KEYS.exists() else ""
    (work / "sources.list").write_text(f"deb {keys}{_mirror()} {suite} main\n")
    dumped = run(["apt-config", "dump"], within_s=30)
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


def release() -> dict[str, str]:
    """What the machine says about its system. Raises NotHere if it is no Debian."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    if release.get("ID") != "debian":
        raise NotHere("this machine is not a Debian")
    return release


def _mirror() -> str:
    """The address from which this machine gets Debian's main archive."""
    own = release().get("VERSION_CODENAME")
    shape = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = run(["apt-get", "indextargets", "--format", shape, "Created-By: Packages"], within_s=30)
    for line in told.splitlines():
        uri, suite, component = line.split()
        if suite == own and component == "main":
            return uri
    raise NotHere("apt has no source of Debian's main archive")


def run(
    command: list[str], *, within_s: float, environment: dict[str, str] | None = None, directory: Path | None = None
) -> str:
    """The output of a command. Raises NotHere if it fails."""
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
        raise NotHere(f"{' '.join(command[:2])} failed: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise NotHere(f"{' '.join(command[:2])} failed: {' '.join(said)}")
    return ended.stdout
