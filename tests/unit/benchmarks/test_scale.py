"""The simulation of the metadata plane runs at a small size, and its figures get into the page."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.cluster.page import marks
from benchmarks.scale.__main__ import measure, parse
from benchmarks.scale.page import SCALE, write_page
from tests.etcd.finding import Etcd

BEGIN, END = marks(SCALE)


def value(told: dict[str, Any], phase: str, figure: str) -> float:
    (found,) = (row["value"] for row in told["rows"] if row["phase"] == phase and row["figure"] == figure)
    return float(found)


def test_brokers_join_and_fail_and_partitions_have_leaders(
    etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    sizes = [
        "--partitions",
        "60",
        "--partitions-per-topic",
        "20",
        "--rest-s",
        "0.2",
        "--churn",
        "5",
        "--lease-ms",
        "60000",
    ]
    told = measure(parse(["rest", "late", "churn", "controller", "--directory", str(tmp_path), *sizes]))
    dead = "the controller dies, seen by others"
    assert value(told, "create", "partitions") == 60
    assert value(told, "in-sync sets", "changes") >= 5
    assert value(told, dead, "partitions that lose their leader") > 0
    assert value(told, dead, "all have leaders after") < 60
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(told, page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n`python -m benchmarks.scale")
    assert "| create | partitions | 60.0 |" in text
    assert "old" not in text
    assert text.endswith(f"{END}\nafter\n")
