"""The report of a run: tables for people, JSON for scripts.

Promises: every number comes from a Figure of this run; a system that failed shows as failed, with its message below
the table; nothing is rounded so far that a missed target looks reached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.figures import CORDWOOD, KAFKA, Figure, Verdict

_MARK = {
    Verdict.REACHED: "[green]reached[/]",
    Verdict.MISSED: "[red]missed[/]",
    Verdict.UNKNOWN: "[yellow]?[/]",
    Verdict.NONE: "",
}


def in_words(value: float | None, unit: str) -> str:
    """A figure as people read it: about four digits, thousands separated."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        text = f"{value:,.0f}"
    elif abs(value) >= 100:
        text = f"{value:.0f}"
    elif abs(value) >= 10:
        text = f"{value:.1f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".strip()


def scenario_table(title: str, figures: Sequence[Figure], labels: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("case")
    table.add_column("figure")
    for system in (CORDWOOD, KAFKA):
        table.add_column(labels.get(system, system), justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    table.add_column("limit")
    last_case = None
    for figure in figures:
        if last_case not in (None, figure.case):
            table.add_section()
        ratio = figure.ratio
        table.add_row(
            "" if figure.case == last_case else escape(figure.case),
            escape(figure.metric.name),
            *(_cell(figure, system) for system in (CORDWOOD, KAFKA)),
            "-" if ratio is None else f"{ratio:.3g}x",
            str(figure.metric.target or ""),
            _MARK[figure.verdict],
            _limits(figure),
        )
        last_case = figure.case
    return table


def _cell(figure: Figure, system: str) -> str:
    value = figure.value(system)
    if value is None:
        return "[red]failed[/]" if system in figure.failures else "-"
    return escape(in_words(value, figure.metric.unit))


def _limits(figure: Figure) -> str:
    """The limit of both systems; if they differ, `client / broker` with ours first. Only a rate has a limit."""
    if not figure.metric.unit.endswith("/s"):
        return ""
    seen = [figure.limit(system) or "-" for system in (CORDWOOD, KAFKA) if figure.samples.get(system)]
    if all(limit == "-" for limit in seen):
        return ""
    return seen[0] if len(set(seen)) == 1 else " / ".join(seen)


def failures(figures: Sequence[Figure]) -> list[str]:
    """Each message once, with the first case it came from."""
    said: dict[str, str] = {}
    for figure in figures:
        for system, message in figure.failures.items():
            said.setdefault(f"{system}: {message}", f"{figure.case}: {system}: {message}")
    return list(said.values())


def print_scenario(
    console: Console, title: str, figures: Sequence[Figure], labels: Mapping[str, str], reproduce: str
) -> None:
    if figures:
        console.print(scenario_table(title, figures, labels))
    for message in failures(figures):
        console.print(f"[red]failed:[/] {escape(message)}")
    console.print(f"[dim]reproduce: {escape(reproduce)}[/]\n")


def print_targets(console: Console, figures: Sequence[Figure]) -> None:
    """One line per verdict: what was reached, what was missed, what could not be judged."""
    judged = [figure for figure in figures if figure.verdict is not Verdict.NONE]
    for verdict in (Verdict.REACHED, Verdict.MISSED, Verdict.UNKNOWN):
        count = sum(figure.verdict is verdict for figure in judged)
        console.print(f"targets {verdict.value}: {count} of {len(judged)}")


def as_json(figure: Figure) -> dict[str, object]:
    target = figure.metric.target
    return {
        "scenario": figure.scenario,
        "case": figure.case,
        "metric": figure.metric.name,
        "unit": figure.metric.unit,
        "samples": figure.samples,
        "median": {system: figure.value(system) for system in figure.samples},
        "limit": {system: figure.limit(system) for system in figure.samples},
        "failures": figure.failures,
        "client_commands": figure.commands,
        "ratio": figure.ratio,
        "target": str(target) if target else None,
        "verdict": figure.verdict.value,
    }


def write_json(
    path: Path,
    *,
    began: datetime,
    command: str,
    facts: Mapping[str, object],
    figures: Sequence[Figure],
    notes: Sequence[str],
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "began": began.isoformat(timespec="seconds"),
        "command": command,
        "machine": dict(facts),
        "notes": list(notes),
        "figures": [as_json(figure) for figure in figures],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
