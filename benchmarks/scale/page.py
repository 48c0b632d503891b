"""The figures of a run as a table of docs/scale.md, between two marks that stay."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import in_words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- figures of benchmarks.scale: begin -->", "<!-- figures of benchmarks.scale: end -->"
_FACTS = ("cpu", "cores", "memory_gib", "filesystem", "fdatasync_median_ms", "load_average_at_start", "commit")


def write_page(run: Mapping[str, Any], page: Path = PAGE) -> None:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the marks {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{table(run)}{END}{after}")


def table(run: Mapping[str, Any]) -> str:
    machine = run["machine"]
    lines = [
        f"`{run['command']}`, begun {run['began']}, {run['seconds']:.0f} s in all, etcd {run['etcd']}: "
        + ", ".join(f"{name} {machine[name]}" for name in _FACTS)
        + ".",
        "",
        "| phase | figure | value |",
        "| --- | --- | --- |",
    ]
    last = ""
    for row in run["rows"]:
        phase = "" if row["phase"] == last else row["phase"]
        lines.append(f"| {phase} | {row['figure']} | {in_words(row['value'], row['unit'])} |")
        last = row["phase"]
    return "\n".join(lines) + "\n"
