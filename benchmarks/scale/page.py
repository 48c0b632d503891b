"""The figures of a run as a table of docs/scale.md, between two marks that stay."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cluster.page import replace_figures
from benchmarks.report import in_words

SCALE = "benchmarks.scale"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
_FACTS = ("cpu", "cores", "memory_gib", "filesystem", "fdatasync_median_ms", "load_average_at_start", "commit")


def write_page(run: Mapping[str, Any], page: Path = PAGE) -> None:
    replace_figures(page, SCALE, table(run))


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
