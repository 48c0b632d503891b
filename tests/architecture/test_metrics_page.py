"""docs/metrics.md says what there is: a metric that is not documented cannot be exposed."""

from pathlib import Path

import pytest

from cordwood.metrics.exposition import exposition
from cordwood.metrics.names import METRICS, Kind, Metric
from cordwood.metrics.pipeline_names import PIPELINE_METRICS
from cordwood.metrics.reference import reference_markdown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ALL = (*METRICS, *PIPELINE_METRICS)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_markdown(), "run: make docs"


def test_every_metric_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert [metric.name for metric in ALL if f"| `{metric.name}` |" not in page] == []


def test_names_are_unique_and_follow_the_custom() -> None:
    names = [metric.name for metric in ALL]
    assert len(set(names)) == len(names)
    for metric in ALL:
        assert metric.name.startswith("cordwood_")
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name


def test_a_metric_that_is_not_listed_is_not_exposed() -> None:
    with pytest.raises(AssertionError, match="missing from"):
        exposition({Metric("cordwood_secret", Kind.GAUGE, "?"): [((), 1)]})
