"""The text of metrics for Prometheus, made by a registry of our own: the library's global registry is never touched."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from cordwood.metrics.histogram import BOUNDS_S, Histogram
from cordwood.metrics.names import METRICS, Kind, Metric
from cordwood.metrics.pipeline_names import PIPELINE_METRICS

Labelled = Iterable[tuple[tuple[str, ...], float | Histogram]]
"""Values by the values of their labels, in the labels' order."""

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(values: Mapping[Metric, Labelled]) -> bytes:
    """The text of one scrape. Runs in a thread: many values take long."""
    return generate_latest(registry_of(lambda: values))


def registry_of(take: Callable[[], Mapping[Metric, Labelled]]) -> CollectorRegistry:
    """A registry that takes the values anew for each scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Values(take))
    return registry


class _Values(Collector):
    def __init__(self, take: Callable[[], Mapping[Metric, Labelled]]) -> None:
        self._take = take

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        taken = self._take()
        unknown = [metric.name for metric in taken if metric not in METRICS and metric not in PIPELINE_METRICS]
        assert not unknown, f"metrics missing from `names`: {unknown}"
        for metric, values in taken.items():
            match metric.kind:
                case Kind.COUNTER:
                    yield _counter(metric, values)
                case Kind.GAUGE:
                    yield _gauge(metric, values)
                case Kind.HISTOGRAM:
                    yield _histogram(metric, values)


def _counter(metric: Metric, values: Labelled) -> Family:
    family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    for labels, value in values:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _gauge(metric: Metric, values: Labelled) -> Family:
    family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, values: Labelled) -> Family:
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values:
        assert isinstance(value, Histogram)
        bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum_s)
    return family
