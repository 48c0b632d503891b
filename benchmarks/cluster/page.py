"""The figures of a run as a table of docs/benchmarks.md, between two marks that stay: one pair for each suite.

Promises: every number is one of the run's file; what stands outside of the marks is not touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import CORDWOOD, KAFKA
from benchmarks.report import in_words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
CLUSTER = "benchmarks.cluster"
_FACTS = ("cpu", "cores", "memory_gib", "filesystem", "fdatasync_median_ms", "load_average_at_start", "commit")


def marks(program: str) -> tuple[str, str]:
    return f"<!-- figures of {program}: begin -->", f"<!-- figures of {program}: end -->"


def write_page(results: Path, page: Path = PAGE, program: str = CLUSTER) -> None:
    """`program` is the module that made the results."""
    replace_figures(page, program, table(json.loads(results.read_text())))


def replace_figures(page: Path, program: str, figures: str) -> None:
    begin, end = marks(program)
    before, found_begin, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"{page} lacks the marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{figures}{end}{after}")


def table(run: Mapping[str, Any]) -> str:
    machine = run["machine"]
    lines = [
        f"`{run['command']}`, begun {run['began']}, beside Apache Kafka {machine['kafka']}: "
        + ", ".join(f"{name} {machine[name]}" for name in _FACTS)
        + ".",
        "",
        "| case | figure | Cordwood | Kafka | ratio | target |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    last = ""
    for figure in run["figures"]:
        title = f"{figure['scenario']}: {figure['case']}"
        lines.append(_row("" if title == last else title, figure))
        last = title
    notes: Sequence[str] = run["notes"]
    if notes:
        lines += ["", *(f"- {note.splitlines()[0]}" for note in notes)]
    return "\n".join(lines) + "\n"


def _row(title: str, figure: Mapping[str, Any]) -> str:
    values = [_value(figure, system) for system in (CORDWOOD, KAFKA)]
    ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.3g}x"
    target = figure["target"] or ""
    if target:
        reached = figure["verdict"]
        ratio, target = (f"**{ratio}**" if ratio and reached == "reached" else ratio), f"{target}: {reached}"
    return f"| {title} | {figure['metric']} | {values[0]} | {values[1]} | {ratio} | {target} |"


def _value(figure: Mapping[str, Any], system: str) -> str:
    if system in figure["failures"]:
        return "failed"
    return in_words(figure["median"].get(system), figure["unit"])
