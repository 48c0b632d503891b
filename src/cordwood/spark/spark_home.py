"""Lets Spark import its own Python code from files, not from archives.

Spark starts each of its Python processes with `$SPARK_HOME/python/lib/pyspark.zip` on the path. Python compiles modules
of an archive at every import: about a second for each process, and a query needs several. So SPARK_HOME names a
directory of links to the installed Spark, in which the archives are directories that hold the installed packages, for
which pip has kept the compiled code. On one machine only: a cluster's workers have a home of their own.
"""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

ARCHIVES = {"pyspark": "pyspark.zip", "py4j": "py4j-*-src.zip"}
"""The package that each archive below python/lib holds."""

LINKED = ("bin", "conf", "data", "examples", "jars", "sbin")
"""The other directories of a home, if they exist."""


def ensure_spark_home(environment: MutableMapping[str, str] = os.environ) -> Path | None:
    """Sets SPARK_HOME unless it is set. Returns None if nothing was changed: Spark then works, more slowly."""
    if environment.get("SPARK_HOME"):
        return None
    packages = {name: _installed(name) for name in ARCHIVES}
    spark = packages["pyspark"]
    if spark is None or not (spark / "jars").is_dir() or os.name != "posix":
        return None
    archives: dict[str, Path] = {}
    for name, pattern in ARCHIVES.items():
        package = packages[name]
        for archive in (spark / "python" / "lib").glob(pattern):
            if package is not None:
                archives[archive.name] = package
    if not archives:
        return None
    place = _place(spark, archives)
    try:
        if not place.is_dir():
            _build(place, spark, archives)
    except OSError:
        return None
    environment["SPARK_HOME"] = str(place)
    return place


def _build(place: Path, spark: Path, archives: dict[str, Path]) -> None:
    """Builds the home beside its place and renames it: other sessions that start Spark find all of it or nothing."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        work.chmod(0o755)
        lib = work / "python" / "lib"
        lib.mkdir(parents=True)
        for name in LINKED:
            if (spark / name).exists():
                (work / name).symlink_to(spark / name)
        for name, package in archives.items():
            (lib / name).mkdir()
            (lib / name / package.name).symlink_to(package)
        try:
            work.rename(place)
        except OSError:
            if not place.is_dir():  # otherwise another session was quicker
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _installed(package: str) -> Path | None:
    found = importlib.util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _place(spark: Path, archives: dict[str, Path]) -> Path:
    """The home's place in the user's cache, one for all sessions with this Spark."""
    depends_on = repr((spark, sorted(archives.items()), (spark / "version.py").read_text()))
    name = f"spark-{hashlib.sha256(depends_on.encode()).hexdigest()[:16]}"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordwood" / name
