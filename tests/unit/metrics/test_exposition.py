"""Values as Prometheus's own parser reads them back."""

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from cordwood.metrics import names
from cordwood.metrics.exposition import exposition
from cordwood.metrics.histogram import BOUNDS_S, Histogram


def test_counters_gauges_and_labels_come_back_as_they_were() -> None:
    text = exposition(
        {names.REQUESTS: [(("Produce",), 3), (("Fetch",), 4)], names.GROUP_LAG: [(('a "quoted"\ngroup', "t", "0"), 7)]}
    ).decode()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("cordwood_requests_total", "Produce"): 3,
        ("cordwood_requests_total", "Fetch"): 4,
        ("cordwood_group_lag_records", "0", 'a "quoted"\ngroup', "t"): 7,
    }


def test_a_histogram_is_cumulated() -> None:
    histogram = Histogram()
    for duration_s in (0.0, 0.001, 0.002, 99.0):
        histogram.observe(duration_s)
    text = exposition({names.FSYNC_ROUND: [((), histogram)]}).decode()
    (family,) = text_string_to_metric_families(text)
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert buckets["0.001"] == 2
    assert buckets["0.0025"] == 3
    assert buckets[str(BOUNDS_S[-1])] == 3
    assert buckets["+Inf"] == 4
    sums = {sample.name: sample.value for sample in family.samples if not sample.name.endswith("_bucket")}
    assert sums == {"cordwood_fsync_round_seconds_count": 4, "cordwood_fsync_round_seconds_sum": 99.003}


def test_the_global_registry_is_left_alone() -> None:
    exposition({names.TOPICS: [((), 1)]})
    assert b"cordwood" not in prometheus_client.generate_latest(prometheus_client.REGISTRY)
