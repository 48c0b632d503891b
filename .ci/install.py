"""Makes the environment of the Makefile, and prints each step: the first run installs for minutes.

    python3 .ci/install.py .venv 'dev'

Needs nothing but Python. pip's output is shortened to one line for each package, with the size that pip announces. The
lines are plain text, so they look the same in a terminal and in a file.
"""

import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

_FETCHED = re.compile(r"\s*(?:Downloading|Using cached) (\S+?)(?:\.metadata)? \(([\d.]+ [kMG]?B)\)")
_NAME = re.compile(r"([A-Za-z0-9_.]+?)-(\d[^-]*?)(?:-.*\.whl|\.tar\.gz|\.zip)$")
_BUILDS = re.compile(r"\s*Building (?:wheel|editable) for (\S+)")
_INSTALLS = re.compile(r"Installing collected packages: (.*)")
_LAST_LINES = 40
_SPARK = "pyspark"


def main() -> int:
    directory, extras = Path(sys.argv[1]), sys.argv[2]
    began = time.monotonic()
    _say(f"[1/4] an environment in {directory} (Python {sys.version.split()[0]})")
    venv.create(directory, with_pip=True, upgrade_deps=False)
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--no-compile"]
    _say("[2/4] Spark: a source distribution of some 450 MB, which pip makes a wheel of")
    # The wheel is unpacked at once, and its jars are compressed already: compressing them again takes half of the time.
    stored = "--config-settings=--build-option=--compression=stored"
    if _install([*pip, "--no-deps", stored, _spark_requirement()]) != 0:
        _say("      pip does not know the short cut: Spark is built with the other packages, which takes longer")
    _say(f"[3/4] the other packages of cordwood[{extras}]: some 250 MB")
    code = _install([*pip, "--editable", f".[{extras}]"])
    if code == 0:
        _say(f"[4/4] installed in {time.monotonic() - began:.0f} s; the next run begins at once")
    return code


def _spark_requirement() -> str:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    (found,) = (each for each in project["optional-dependencies"]["spark"] if each.startswith(_SPARK))
    return str(found)


def _install(command: list[str]) -> int:
    """Runs pip and prints its steps; if pip fails, prints its last lines."""
    options = ["--progress-bar", "off", "--disable-pip-version-check", "--no-input"]
    lines: list[str] = []
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line)
            if (told := _told(line)) is not None:
                _say(told)
    if pip.returncode != 0:
        print("".join(lines[-_LAST_LINES:]), end="", flush=True)
    return pip.returncode


def _told(line: str) -> str | None:
    """What to say about a line of pip's; None: nothing."""
    if found := _FETCHED.match(line):
        file, size = found.groups()
        if line.rstrip().split(" (")[0].endswith(".metadata"):
            return None
        named = _NAME.match(file)
        return f"      {' '.join(named.groups()) if named else file}, {size}"
    if found := _BUILDS.match(line):
        return None if "finished" in line or "still running" in line else f"      building {found[1].rstrip(':')}"
    if found := _INSTALLS.match(line):
        return f"      unpacking {found[1].count(',') + 1} packages"
    return None


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
