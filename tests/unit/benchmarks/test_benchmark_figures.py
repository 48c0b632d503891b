"""The arithmetic behind a comparison: medians, ratios, percentiles, targets, and what held a run back."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from benchmarks import load
from benchmarks.figures import (
    BACKFILL,
    CORDWOOD,
    KAFKA,
    LATENCY_P99,
    MEMORY,
    THROUGHPUT,
    Figure,
    Metric,
    Target,
    Verdict,
    limit_of,
    median,
    per_gigabyte,
    percentile,
    ratio,
)
from benchmarks.scenarios import SCENARIOS


def figure(target: Target | None, ours: list[float], theirs: list[float]) -> Figure:
    made = Figure("produce", "1 KiB", Metric("MB/s", "MB/s", target))
    for value in ours:
        made.add(CORDWOOD, value)
    for value in theirs:
        made.add(KAFKA, value)
    return made


def test_a_figure_is_the_median_of_its_rounds_so_that_one_bad_round_does_not_count() -> None:
    made = figure(None, [10.0, 500.0, 12.0], [5.0, 6.0])
    assert made.value(CORDWOOD) == 12.0
    assert made.value(KAFKA) == 5.5
    assert made.ratio == pytest.approx(12 / 5.5)


def test_nothing_measured_has_no_median_and_no_ratio() -> None:
    assert median([]) is None
    assert ratio(None, 1.0) is None
    assert ratio(1.0, None) is None
    assert ratio(1.0, 0.0) is None
    assert figure(THROUGHPUT, [1.0], []).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("target", "ours", "theirs", "verdict"),
    [
        (THROUGHPUT, 120.0, 100.0, Verdict.REACHED),
        (THROUGHPUT, 119.9, 100.0, Verdict.MISSED),
        (LATENCY_P99, 70.0, 100.0, Verdict.REACHED),
        (LATENCY_P99, 70.1, 100.0, Verdict.MISSED),
        (MEMORY, 50.0, 400.0, Verdict.REACHED),
        (None, 1.0, 1.0, Verdict.NONE),
    ],
)
def test_a_target_bounds_the_ratio(target: Target | None, ours: float, theirs: float, verdict: Verdict) -> None:
    assert figure(target, [ours], [theirs]).verdict is verdict


def test_the_backfill_target_bounds_our_own_figure_whatever_the_peer_does() -> None:
    assert figure(BACKFILL, [1.4], [1.0]).verdict is Verdict.REACHED
    assert figure(BACKFILL, [1.6], [100.0]).verdict is Verdict.MISSED
    assert figure(BACKFILL, [1.4], []).verdict is Verdict.REACHED


def test_targets_are_written_as_people_say_them() -> None:
    assert str(THROUGHPUT) == "≥ 1.2x"
    assert str(MEMORY) == "≤ 0.125x"
    assert str(BACKFILL) == "≤ 1.5"


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.999) == 100.0
    assert percentile([7.0], 0.01) == 7.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_the_client_in_c_has_the_same_percentiles() -> None:
    try:
        binary = load.binary()
    except load.LoadUnavailable as missing:
        pytest.skip(str(missing))
    source = random.Random(1)
    for count in (1, 2, 99, 100, 1001):
        values = [float(source.randrange(1, 10**6)) for _ in range(count)]
        text = "\n".join(map(str, values))
        done = subprocess.run([binary, "percentiles"], input=text, capture_output=True, text=True, check=True)
        result = load.read_result("percentiles", done.stdout)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert result.latency_us(name) == percentile(values, share)
        assert result.latency_us("max") == max(values)


def test_cpu_is_counted_per_billion_bytes_of_payload() -> None:
    assert per_gigabyte(3.0, 2_000_000_000) == 1.5


@pytest.mark.parametrize(
    ("client", "broker", "machine", "limit"),
    [(0.95, 0.95, 1.0, "client"), (0.5, 0.95, 1.0, "broker"), (0.5, 0.5, 0.95, "cores"), (0.5, 0.5, 0.6, "")],
)
def test_the_limit_is_the_first_part_that_has_no_time_left(
    client: float, broker: float, machine: float, limit: str
) -> None:
    assert limit_of(client=client, broker=broker, machine=machine) == limit


def test_the_limit_of_a_figure_is_the_one_of_most_rounds() -> None:
    made = Figure("produce", "1 KiB", Metric("MB/s", "MB/s"))
    for limit in ("client", "", "client"):
        made.add(CORDWOOD, 1.0, limit)
    assert made.limit(CORDWOOD) == "client"
    assert made.limit(KAFKA) == ""


def test_every_scenario_stands_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    assert [scenario.name for scenario in SCENARIOS if f"| `{scenario.name}` |" not in page] == []
