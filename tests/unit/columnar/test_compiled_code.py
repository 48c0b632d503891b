"""Where compiled code is kept: also for an installation that cannot be written to, for many processes at once, and
never where another could have put it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood.columnar.compiled

SOURCES = Path(cordwood.columnar.compiled.__file__).parent
KERNEL = """
from cordwood.columnar.compiled import kernel, types

@kernel(types.int64(types.int64))
def doubled(number):
    return 2 * number
"""
PROGRAM = """
from cordwood.columnar import compiled
from cordwood.columnar.small_kernels import doubled
assert doubled(21) == 42
print(compiled._directory, sum(doubled.stats.cache_hits.values()))
"""


class Installation:
    """Our sources in a place of their own, with one small kernel, and a home for the user who runs them."""

    def __init__(self, root: Path) -> None:
        self.package = root / "site" / "cordwood" / "columnar"
        self.home = root / "home"
        self.temporary = root / "home" / "tmp"
        self.package.mkdir(parents=True)
        self.temporary.mkdir(parents=True)
        (self.package.parent / "__init__.py").touch()
        for name in ("__init__.py", "compiled.py", "memory.py"):
            shutil.copy(SOURCES / name, self.package)
        (self.package / "small_kernels.py").write_text(KERNEL)

    def start(self) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
        places = {"PYTHONPATH": str(self.package.parent.parent), "HOME": str(self.home), "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            [sys.executable, "-B", "-c", PROGRAM],
            env={**kept, **places},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
        )

    def run(self) -> tuple[Path | None, int]:
        """Where it keeps compiled code, and how often it found some there."""
        return finished(self.start())


def finished(process: subprocess.Popen[str]) -> tuple[Path | None, int]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    directory, hits = out.split()
    return None if directory == "None" else Path(directory), int(hits)


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def close(directory: Path) -> None:
    """Nobody can write there, not even root: it is a file."""
    directory.touch()


def test_compiled_code_is_kept_beside_the_sources_and_not_used_for_others(installed: Installation) -> None:
    first, hits = installed.run()
    assert first is not None
    assert (first.parent, hits) == (installed.package / "__pycache__", 0)
    assert installed.run() == (first, 1)
    with (installed.package / "memory.py").open("a") as source:
        source.write("\n# another version\n")
    second, hits = installed.run()
    assert (second != first, hits) == (True, 0)


@pytest.mark.stories
def test_files_that_are_damaged_are_made_again(installed: Installation) -> None:
    directory, _ = installed.run()
    assert directory is not None
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) == 2
    for broken in files:
        broken.write_bytes(b"")
        assert installed.run() == (directory, 0)
    assert installed.run() == (directory, 1)


@pytest.mark.stories
def test_an_installation_that_cannot_be_written_to_uses_the_users_cache_even_all_at_once(
    installed: Installation,
) -> None:
    close(installed.package / "__pycache__")
    everyone = [finished(process) for process in [installed.start() for _ in range(3)]]
    directory, hits = installed.run()
    assert directory is not None
    assert (directory.parent, hits) == (installed.home / ".cache" / "cordwood", 1)
    assert {place for place, _ in everyone} == {directory}


@pytest.mark.stories
def test_without_a_home_there_is_a_temporary_place_unless_it_belongs_to_others(installed: Installation) -> None:
    close(installed.package / "__pycache__")
    close(installed.home / ".cache")
    installed.temporary.chmod(0o1777)
    ours = installed.temporary / f"cordwood-{os.getuid()}"
    directory, hits = installed.run()
    assert directory is not None
    assert (directory.parent, hits) == (ours, 0)
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.chmod(0o777)
    assert installed.run() == (None, 0)
