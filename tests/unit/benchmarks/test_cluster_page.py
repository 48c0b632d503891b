"""The figures of a run of clusters, written into a page between its marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cluster.page import CLUSTER, PAGE, marks, write_page
from benchmarks.figures import AS_MANY, CORDWOOD, KAFKA, Figure, Metric
from benchmarks.report import as_json

BEGIN, END = marks(CLUSTER)
MACHINE = {
    "cpu": "fast",
    "cores": 2,
    "memory_gib": 24,
    "filesystem": "ext4",
    "fdatasync_median_ms": 0.1,
    "load_average_at_start": 0.2,
    "commit": "abc",
    "kafka": "4.3.0",
}


def run_file(tmp_path: Path, figures: list[Figure]) -> Path:
    run: dict[str, Any] = {
        "began": "2026-11-17T05:50:00+00:00",
        "command": "python -m benchmarks.cluster --quick",
        "machine": MACHINE,
        "notes": ["all: a remark\nits second line"],
        "figures": [as_json(figure) for figure in figures],
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    return path


def test_figures_stand_between_the_marks_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    rate = Figure("produce", "1 KiB", Metric("MB/s", "MB/s", AS_MANY))
    rate.add(CORDWOOD, 150.0)
    rate.add(KAFKA, 100.0)
    broken = Figure("produce", "1 KiB", Metric("CPU", "s"))
    broken.failures[KAFKA] = "it died"
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold figures\n{END}\n\nafter\n")
    write_page(run_file(tmp_path, [rate, broken]), page)
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "old figures" not in text
    assert "| produce: 1 KiB | MB/s | 150 MB/s | 100 MB/s | **1.5x** | ≥ 1x: reached |" in text
    assert "|  | CPU | - | failed |  |  |" in text
    assert "- all: a remark\n" in text


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="lacks the marks"):
        write_page(run_file(tmp_path, []), page)
    assert page.read_text() == "nothing"


def test_each_suite_has_its_own_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = marks("benchmarks.cluster.moves")
    page.write_text(f"{BEGIN}\nfigures of clusters\n{END}\n{begin}\nold\n{end}\n")
    write_page(run_file(tmp_path, []), page, "benchmarks.cluster.moves")
    assert page.read_text().startswith(f"{BEGIN}\nfigures of clusters\n{END}\n{begin}\n`python")
    assert "old" not in page.read_text()


@pytest.mark.parametrize("program", [CLUSTER, "benchmarks", "benchmarks.cluster.moves"])
def test_the_page_has_a_place_for_the_figures_of_each_suite(program: str) -> None:
    assert all(PAGE.read_text().count(mark) == 1 for mark in marks(program))
