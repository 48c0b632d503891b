"""What a run says of its figures, and what it reads from Kafka's own tools."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.bench import QUICK, Bench, OutOfTime, Sample
from benchmarks.figures import CORDWOOD, CPU, KAFKA, THROUGHPUT, Figure, Metric
from benchmarks.java_tools import read_consumer_summary, read_producer_summary
from benchmarks.load import LoadFailed
from rich.console import Console

RATE = Metric("MB/s", "MB/s", THROUGHPUT)
COST = Metric("broker CPU per GB", "s", CPU)


def console() -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, width=200, highlight=False, color_system=None), output


def bench(names: list[str], tmp_path: Path) -> Bench:
    return Bench(console()[0], QUICK, tmp_path, names, None, scenario="produce")


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (None, "MB/s", "-"),
        (1234567.8, "/s", "1,234,568 /s"),
        (512.34, "MB/s", "512 MB/s"),
        (12.345, "us", "12.3 us"),
        (0.12345, "s", "0.123 s"),
    ],
)
def test_figures_are_written_with_the_digits_that_mean_something(value: float | None, unit: str, words: str) -> None:
    assert report.in_words(value, unit) == words


def test_the_table_has_both_medians_the_ratio_the_target_and_what_came_of_it() -> None:
    fast, slow = Figure("produce", "1 KiB", RATE), Figure("produce", "1 KiB", COST)
    fast.add(CORDWOOD, 300.0, "client")
    fast.add(KAFKA, 200.0)
    slow.add(CORDWOOD, 0.9)
    slow.add(KAFKA, 1.0)
    screen, output = console()
    report.print_scenario(screen, "Produce", [fast, slow], {KAFKA: "Kafka 4.x"}, "python -m benchmarks produce")
    rate, cost = (line for line in output.getvalue().splitlines() if "/s" in line or "0.9 s" in line)
    for cell in ("1 KiB", "300 MB/s", "200 MB/s", "1.5x", "≥ 1.2x", "reached", "client / -"):
        assert cell in rate
    for cell in ("0.9 s", "0.9x", "≤ 0.7x", "missed"):
        assert cell in cost
    assert "Kafka 4.x" in output.getvalue()
    assert "reproduce: python -m benchmarks produce" in output.getvalue()


def test_a_system_that_fails_does_not_hide_the_other_and_its_message_is_said_once(tmp_path: Path) -> None:
    run = bench([CORDWOOD, KAFKA], tmp_path)

    def measure(name: str) -> Sample:
        if name == CORDWOOD:
            raise RuntimeError("refused [by a test]")
        return Sample((5.0, 1.0))

    run.alternate_names("1 KiB", (RATE, COST), run.names, measure, rounds=3)
    rate, cost = run.figures
    assert rate.samples == {KAFKA: [5.0, 5.0, 5.0]}
    assert cost.samples == {KAFKA: [1.0, 1.0, 1.0]}
    screen, output = console()
    report.print_scenario(screen, "Produce", run.figures, {}, "again")
    assert output.getvalue().count("refused [by a test]") == 1
    assert "failed" in output.getvalue()


def test_systems_take_turns_and_the_order_changes_each_round(tmp_path: Path) -> None:
    run = bench([CORDWOOD, KAFKA], tmp_path)
    order: list[str] = []

    def measure(name: str) -> Sample:
        order.append(name)
        return Sample((1.0,))

    run.alternate_names("1 KiB", (RATE,), run.names, measure, rounds=3)
    assert order == [CORDWOOD, KAFKA, KAFKA, CORDWOOD, CORDWOOD, KAFKA]


def test_a_scenario_that_has_used_its_share_makes_one_round_and_a_run_that_has_used_its_time_none(
    tmp_path: Path,
) -> None:
    run = bench([KAFKA], tmp_path)
    run.scenario_ends = 0.0
    run.alternate_names("1 KiB", (RATE,), run.names, lambda _: Sample((1.0,)), rounds=3)
    assert run.figures[0].samples == {KAFKA: [1.0]}
    assert QUICK.total_s is not None
    run._began -= QUICK.total_s + 1
    with pytest.raises(OutOfTime):
        run.alternate_names("1 KiB", (RATE,), run.names, lambda _: Sample((1.0,)), rounds=3)


def test_the_json_has_every_sample_and_the_machine(tmp_path: Path) -> None:
    rate = Figure("produce", "1 KiB", RATE)
    rate.add(CORDWOOD, 300.0, "client", "load produce")
    rate.add(KAFKA, 200.0)
    path = tmp_path / "results" / "run.json"
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    report.write_json(
        path, began=began, command="python -m benchmarks", facts={"cores": 2}, figures=[rate], notes=["x"]
    )
    content = json.loads(path.read_text())
    assert content["began"] == "2026-01-02T03:04:05+00:00"
    assert content["machine"] == {"cores": 2}
    assert content["notes"] == ["x"]
    (row,) = content["figures"]
    assert row["samples"] == {CORDWOOD: [300.0], KAFKA: [200.0]}
    assert row["ratio"] == 1.5
    assert row["verdict"] == "reached"
    assert row["client_commands"][CORDWOOD] == "load produce"


def test_the_producer_tool_is_read_from_its_last_summary() -> None:
    output = (
        "Option --producer-props has been deprecated.\n"
        "100 records sent, 50.0 records/sec (0.01 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n"
        "300000 records sent, 84388.185654 records/sec (8.05 MB/sec), 731.34 ms avg latency, 1121.00 ms max latency, "
        "667 ms 50th, 1077 ms 95th, 1102 ms 99th, 1118 ms 99.9th.\n"
    )
    assert read_producer_summary(output) == (300000, 84388.185654, 667, 1102)
    with pytest.raises(LoadFailed):
        read_producer_summary("nothing")


def test_the_consumer_tool_is_read_by_the_names_of_its_columns() -> None:
    output = (
        "Warning: --messages is deprecated. Use --num-records instead.\n"
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-11-15 02:16:35:904, 2026-11-15 02:16:37:838, 28.6, 14.7, 300000, 155118.9245, 1193, 741, 38.6103, 4.2\n"
    )
    assert read_consumer_summary(output) == (300000, 0.741)
    with pytest.raises(LoadFailed):
        read_consumer_summary("")
