"""An environment for each version of Spark, below `~/.cache/cordwood/spark-versions`: 480 MB each, made once.

An environment has its own PySpark and takes all other packages from the environment of the tests. A directory that
exists is complete. Directories of versions that are not told any more are removed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

VERSIONS = ("4.2.1", "4.1.4", "4.0.5", "3.5.9")
"""The newest release of each line before the one that the tests run on."""


class NotFetched(Exception):
    """The package index did not give this version; the message has the end of pip's output."""


def python_of(version: str) -> Path:
    """Python of the version's environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordwood" / "spark-versions"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{version}-{sys.version_info.major}.{sys.version_info.minor}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_others(cache)
        if not place.is_dir():
            _make(version, place)
    # Whichever clone runs the tests: its packages lie beneath.
    (_packages(place) / "beneath.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return place / "bin" / "python"


ROOT = Path(__file__).parents[2]


def _make(version: str, place: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=place.parent, prefix="making-"))
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", work], check=True)
        # Without a cache, a version takes its 480 MB once.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--target"]
        ran = subprocess.run(
            [*pip, str(_packages(work)), f"pyspark=={version}"], capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            raise NotFetched(ran.stderr[-2000:])
        work.rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _packages(place: Path) -> Path:
    return place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _remove_others(cache: Path) -> None:
    for found in cache.iterdir():
        if found.is_dir() and found.name.rpartition("-")[0] not in VERSIONS:
            shutil.rmtree(found, ignore_errors=True)
