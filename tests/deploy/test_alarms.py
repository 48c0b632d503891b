"""The alarms for Prometheus name metrics that exist, with labels that they have, and each is explained."""

import re
import textwrap
from pathlib import Path

import pytest
from tests.deploy.prometheus import promtool

from cordwood.metrics.names import METRICS as METRICS_OF_BROKERS
from cordwood.metrics.names import Kind, Metric
from cordwood.metrics.pipeline_names import PIPELINE_METRICS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "cordwood.rules.yml"
PAGE = ROOT / "docs" / "operations" / "sizing.md"
SCRAPES = ROOT / "deploy" / "prometheus" / "prometheus.yml"
MONITORING = ROOT / "docs" / "operations" / "monitoring.md"
METRICS = {metric.name: metric for metric in (*METRICS_OF_BROKERS, *PIPELINE_METRICS)}
PARTS_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
OF_PROMETHEUS = {"instance", "job", "le"}
TARGETS = "up"
"""Prometheus's own metric: whether a target answered."""


def alarms() -> dict[str, str]:
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", RULES.read_text()))


def metric_of(name: str) -> Metric | None:
    for part in PARTS_OF_HISTOGRAMS:
        found = METRICS.get(name.removesuffix(part))
        if name.endswith(part) and found is not None and found.kind is Kind.HISTOGRAM:
            return found
    found = METRICS.get(name)
    return None if found is None or found.kind is Kind.HISTOGRAM else found


def test_every_alarm_was_found() -> None:
    assert len(alarms()) == RULES.read_text().count("alert:") > 15


@pytest.mark.parametrize(("alarm", "expression"), alarms().items())
def test_an_alarm_is_about_metrics_and_labels_that_exist(alarm: str, expression: str) -> None:
    used = [(name, metric_of(name)) for name in re.findall(r"\bcordwood_\w+", expression)]
    assert used or re.match(rf"{TARGETS}\{{", expression)
    assert [name for name, metric in used if metric is None] == []
    known = OF_PROMETHEUS.union(*(metric.labels for _, metric in used if metric is not None))
    matched = re.findall(r"(\w+)!?=~?\"", expression)
    grouped = [label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(", ")]
    assert set(matched) | set(grouped) <= known
    for name, metric in used:
        assert metric is not None
        if metric.kind is Kind.COUNTER:
            assert re.search(rf"\b(?:rate|increase)\({name}\b", expression), f"{name} of {alarm} only ever grows"


@pytest.mark.parametrize("alarm", alarms())
def test_an_alarm_is_explained_with_what_to_do(alarm: str) -> None:
    assert re.search(rf"^\| `{alarm}` \| .+ \| .+ \|$", PAGE.read_text(), re.MULTILINE)


def test_prometheus_understands_the_rules_and_the_scrape_configuration() -> None:
    # The configuration names the rules, and is checked with them.
    verdict = promtool("check", "config", "--lint=all", "--lint-fatal", str(SCRAPES))
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert f"{len(alarms())} rules found" in verdict.stdout


def test_the_page_about_monitoring_shows_the_scrape_configuration() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", MONITORING.read_text(), re.DOTALL)
    assert block == SCRAPES.read_text()


def test_the_alarms_of_the_metrics_page_are_understood_by_prometheus(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "metrics.md").read_text(), re.DOTALL)
    rules = tmp_path / "rules.yml"
    rules.write_text("groups:\n- name: page\n  rules:\n" + textwrap.indent(block, "  "))
    verdict = promtool("check", "rules", str(rules))
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
