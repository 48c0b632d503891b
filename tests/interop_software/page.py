"""docs/compatibility.md, written from the last result of each story, which `results.json` keeps."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.interop_software.stories import STORIES, Story

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
RESULTS = Path(__file__).parent / "results.json"

_INTRODUCTION = """\
# Compatibility with other people's software

This page is written by `make interop`, which runs unmodified software against real brokers and fails if any of it does
not do its work. Software that the machine cannot get is skipped, with the reason. The clients for Python, librdkafka,
kcat, the Java client and Kafka's command line tools are in `make test` and `make test-interop`.

Each row is the last run of one story: how it ended, how long it took, when, and with which commit of Cordwood.

| software | version | what it did | result | seconds | when | Cordwood |
| --- | --- | --- | --- | --- | --- | --- |
"""

_NOTES = """
## What to know

- Access control lists: DescribeAcls, CreateAcls and DeleteAcls are answered with SECURITY_DISABLED, as by a Kafka
  without an authorizer.
- `compression.type` of a topic is obeyed. `preallocate` reserves disk. The throttles of replicas that are moved slow
  down only replicas that are not in sync.
- A request behind a fetch that waits for records is answered at once, and the fetch with it; Kafka lets both wait
  ([why, and how often](decisions/early-answers.md)).
- [Protocol support](protocol-support.md) lists every API and version; [configuration](configuration.md) every setting.
"""


class Outcome(NamedTuple):
    """How the last run of a story ended."""

    version: str
    result: str
    """"passed", "failed: why" or "skipped: why"."""
    seconds: float
    when: str
    commit: str


def remember(outcomes: Mapping[str, Outcome]) -> None:
    """Keeps these results, by story, beside those of stories that were not played now, and writes the page."""
    results = {**remembered(), **outcomes}
    RESULTS.write_text(json.dumps({name: each._asdict() for name, each in sorted(results.items())}, indent=2) + "\n")
    PAGE.write_text(markdown(STORIES, results))


def remembered() -> dict[str, Outcome]:
    if not RESULTS.exists():
        return {}
    return {name: Outcome(**values) for name, values in json.loads(RESULTS.read_text()).items()}


def markdown(stories: Sequence[Story], results: Mapping[str, Outcome]) -> str:
    return _INTRODUCTION + "".join(_row(story, results.get(story.name)) for story in stories) + _NOTES


def _row(story: Story, last: Outcome | None) -> str:
    """A result of another version of the software says nothing about this one."""
    if last is None or last.version != story.version:
        return f"| {story.software} | {story.version} | {story.what} | not run yet | | | |\n"
    result = f"{_cell(last.result)} | {last.seconds:.0f} | {last.when} | {last.commit}"
    return f"| {story.software} | {story.version} | {story.what} | {result} |\n"


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _cell(text: str) -> str:
    """One line of a table."""
    return " ".join(text.replace("|", "\\|").split())[:200]


def commit() -> str:
    """The last commit that changed what is run."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--untracked-files=no", "--", "src") else ""
    return f"{git('log', '-1', '--format=%h', '--', 'src') or 'unknown'}{changed}"
