"""Plays scraped metrics to Prometheus's promtool, which judges them by the rules: two hours pass in a moment.

Counters, and other values that are said to grow, go on as between the two scrapes; all other values stay.
"""

import json
import math
import re
import time
import urllib.request
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tests.deploy.prometheus import promtool

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "cordwood.rules.yml"
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
GROWS = ("_total", "_bucket", "_sum", "_count", "_transaction_seconds", "_pipeline_lag_records")


class Scrape(NamedTuple):
    at_s: float
    values: dict[str, float]
    """By the series' text, with labels."""


def scrape(addresses: dict[str, str]) -> Scrape:
    """All targets, by the labels that Prometheus gives them. A target that does not answer is down."""
    values: dict[str, float] = {}
    for target, address in addresses.items():
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        values[f"up{{{target}}}"] = float(bool(text))
        for line in text.splitlines():
            if (found := LINE.match(line)) is not None:
                name, labels, value = found.groups()
                values[f"{name}{{{target}{',' + labels if labels else ''}}}"] = float(value)
    return Scrape(time.monotonic(), values)


def total(found: Scrape, name: str) -> float:
    return sum(value for series, value in found.values.items() if series.startswith(f"{name}{{"))


def series_of(first: Scrape, second: Scrape) -> list[dict[str, str]]:
    """The series that the rules name, for two hours."""
    used = set(re.findall(r"\b(?:cordwood_\w+|up)\b", RULES.read_text()))
    series = []
    for name, value in second.values.items():
        metric = name.partition("{")[0]
        if metric not in used or math.isinf(value):
            continue
        grown = value - first.values.get(name, 0.0) if metric.endswith(GROWS) else 0.0
        per_minute = 60 * grown / (second.at_s - first.at_s)
        series.append({"series": name, "values": f"{value:.6f}+{max(per_minute, 0.0):.6f}x120"})
    return series


def check(directory: Path, scrapes: tuple[Scrape, Scrape], fires: Collection[str], quiet: Collection[str]) -> None:
    tests = []
    for alarm in fires:
        expression = f'count(ALERTS{{alertname="{alarm}",alertstate="firing"}}) > bool 0'
        tests.append({"expr": expression, "eval_time": "2h", "exp_samples": [{"labels": "{}", "value": 1}]})
    for alarm in quiet:
        expression = f'count(ALERTS{{alertname="{alarm}",alertstate="firing"}})'
        tests.append({"expr": expression, "eval_time": "2h", "exp_samples": []})
    played = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series_of(*scrapes), "promql_expr_test": tests}],
    }
    path = directory / "played.yml"
    path.write_text(json.dumps(played))  # JSON is YAML
    verdict = promtool("test", "rules", str(path))
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
