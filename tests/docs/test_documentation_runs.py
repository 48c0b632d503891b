"""README.md and the pages under docs/: blocks marked to run are run, and links lead somewhere.

A block is marked behind its language: "```python run", "```python test" (for pytest) or "```sh run". Blocks of one page
and kind run in order, as one program, in an empty directory. A test that imports a file which shell blocks above it
write (`cat > orders.py`) runs among these, in its place. Shell blocks have `cordwood` on the path and find a broker
at the default address, which here is a free port: the page's own if it starts one, else one that is started for it. A
page that writes a configuration file gets its addresses from the file, with free ports in the place of those on the
page: a variable of the environment would override the file. A page that uses a STORE which it does not set gets the
address of an etcd.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker_process import free_port
from tests.debian import NotHere, unpacked
from tests.etcd.members import EtcdCluster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+ (?:run|test))\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WRITES = re.compile(r"^cat > (\w+)\.py\b", re.MULTILINE)
_IMPORTS = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_STARTS_SPARK = re.compile(r"cordwood\.spark|cordwood (?:audit|pipeline)|pyspark")
_LISTENERS_IN_FILE = re.compile(r"^listeners = ", re.MULTILINE)
_PORT = re.compile(r"127\.0\.0\.1:(\d+)")
_OPENSSL = re.compile(r"^openssl ", re.MULTILINE)
_PYTEST = "python -m pytest -q -p no:cacheprovider"
_LONG_STORIES = {
    "first-cluster.md",
    "growing.md",
    "hanging-transactions.md",
    "lost-etcd.md",
    "moving-a-rack.md",
    "nodes.md",
    "racks.md",
    "rolling-restart.md",
    "upgrade.md",
    "workers.md",
}
_FIRST_PAGES = {ROOT / "README.md", *(ROOT / "docs" / "start").glob("*.md")}
_TIMEOUT_S = 600
"""Some start Spark, which takes a minute on a machine with other things to do; one runs twenty queries on it."""


class Program(NamedTuple):
    """The blocks of one kind on one page, as one program."""

    page: Path
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)} ({self.kind})"


def _programs() -> list[Program]:
    programs = []
    for page in PAGES:
        blocks = list(_blocks(page.read_text()))
        for kind in sorted({kind for kind, _ in blocks}):
            text = "\n".join(block for block_kind, block in blocks if block_kind == kind)
            programs.append(Program(page, kind, text))
    return programs


def _blocks(page: str) -> Iterator[tuple[str, str]]:
    """The blocks of a page by kind. A test of a file that shell blocks above it write is itself a shell block."""
    written: set[str] = set()
    for kind, text in _BLOCK.findall(page):
        if kind == "sh run":
            written |= set(_WRITES.findall(text))
        if kind == "python test" and written & set(_IMPORTS.findall(text)):
            yield "sh run", f"cat > test_example.py <<'END OF TEST'\n{text}END OF TEST\n{_PYTEST} test_example.py"
        else:
            yield kind, text


def _programs_by_suite() -> list[Any]:
    """`make test` runs the first pages alone: what starts Spark, and clusters, have suites of their own."""
    return [pytest.param(program, id=str(program), marks=_marks(program)) for program in _programs()]


def _marks(program: Program) -> list[Any]:
    if _STARTS_SPARK.search(program.text):
        return [pytest.mark.spark]
    if program.page.name in _LONG_STORIES:
        return [pytest.mark.crash]
    return [] if program.page in _FIRST_PAGES else [pytest.mark.stories]


@pytest.mark.timeout(_TIMEOUT_S + 60)
@pytest.mark.parametrize("program", _programs_by_suite())
def test_a_page_does_what_it_says(program: Program, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    workplace = tmp_path / "here"
    workplace.mkdir()
    environment = _environment(tmp_path)
    if _LISTENERS_IN_FILE.search(program.text):
        program = _with_free_ports(program)
        environment = {name: text for name, text in environment.items() if not name.startswith("CORDWOOD_")}
    if '--store "$STORE"' in program.text and "STORE=" not in program.text:
        etcd: EtcdCluster = request.getfixturevalue("one_etcd")
        _forget_clusters_of_pages(etcd)
        environment["STORE"] = f"etcd://{','.join(etcd.endpoints)}"
    if _OPENSSL.search(program.text) and shutil.which("openssl") is None:
        environment = _with_openssl(environment)
    if program.kind == "python run":
        _run([sys.executable, "-c", program.text], workplace, environment)
    elif program.kind == "python test":
        (workplace / "test_example.py").write_text(program.text)
        _run([sys.executable, *_PYTEST.split()[1:], "test_example.py"], workplace, environment)
    else:
        assert program.kind == "sh run", program
        if "cordwood serve" in program.text:
            _run(["bash", "-euo", "pipefail", "-m", "-c", program.text], workplace, environment)
        else:
            with _broker(workplace, environment):
                _run(["bash", "-euo", "pipefail", "-c", program.text], workplace, environment)


def _with_free_ports(program: Program) -> Program:
    text = program.text
    for port in sorted(set(_PORT.findall(text))):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    return program._replace(text=text)


def test_something_runs_on_the_readme() -> None:
    kinds = {program.kind for program in _programs() if program.page.name == "README.md"}
    assert kinds == {"sh run"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in _LINK.findall(text):
        if "://" in target or target.startswith("#"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {target}"


def _environment(tmp_path: Path) -> dict[str, str]:
    """What a reader's shell has, with the default address and directory moved out of the way of others."""
    commands = tmp_path / "bin"
    commands.mkdir()
    script = commands / "cordwood"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cordwood.cli "$@"\n')
    script.chmod(0o755)
    address = f"127.0.0.1:{free_port()}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
    return {
        **kept,
        "PATH": f"{commands}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "CORDWOOD_BOOTSTRAP": address,
        "CORDWOOD_LISTEN": address,
        "CORDWOOD_DATA_DIR": str(tmp_path / "data"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def _with_openssl(environment: dict[str, str]) -> dict[str, str]:
    """A fresh Debian has the library of OpenSSL, and not its program."""
    try:
        root = unpacked("openssl", holds="usr/bin/openssl", place="openssl")
    except NotHere as reason:
        pytest.skip(f"no openssl: {reason}")
    path = f"{environment['PATH']}:{root}/usr/bin"
    return {**environment, "PATH": path, "OPENSSL_CONF": f"{root}/etc/ssl/openssl.cnf"}


def _forget_clusters_of_pages(etcd: EtcdCluster) -> None:
    """Deletes the clusters of other pages, which have the same name: pages share an etcd."""
    first, after = (base64.b64encode(key).decode() for key in (b"/cordwood/shop", b"/cordwood/shoq"))
    etcd.at(etcd.endpoints[0]).post("/v3/kv/deleterange", {"key": first, "range_end": after})


def _run(command: list[str], workplace: Path, environment: dict[str, str]) -> None:
    """Runs a program to its end; whatever it left running ends with it."""
    output = workplace.parent / "output"
    with open(output, "wb") as out:
        process = subprocess.Popen(
            command,
            cwd=workplace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=_TIMEOUT_S)
        finally:
            _end_session(process.pid)
    assert code == 0, f"exit code {code}:\n{output.read_text(errors='replace')}"


def _end_session(session: int) -> None:
    """Ends every process of a session: job control gives background jobs process groups of their own."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            with suppress(ProcessLookupError):
                os.kill(int(status.parent.name), signal.SIGKILL)


@contextmanager
def _broker(workplace: Path, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(["cordwood", "serve"], cwd=workplace, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready on" in line, line
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
