"""Counts what the events of pipelines and queries tell. Knows no brokers, no files and no sockets.

Counters begin at zero with the process. An event of an unknown kind, or with unknown fields, counts for what is known
of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cordwood.metrics import pipeline_names as names
from cordwood.metrics.exposition import Labelled
from cordwood.metrics.histogram import Histogram
from cordwood.metrics.names import Metric

Values = dict[Metric, Labelled]


class Who(NamedTuple):
    """An edition of a pipeline, or a query."""

    pipeline: str
    edition: str


class Counts:
    """What has happened to one edition, or one query."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.running = self.failed = False
        self.failures = self.restarts = self.batches = self.rows_in = self.quarantined = 0
        self.too_late = 0
        self.rows_out: Counter[str] = Counter()
        self.by_rule: Counter[tuple[str, str]] = Counter()
        self.durations = Histogram()
        self.last_duration_s: float | None = None
        self.last_batch_s: float | None = None

    def heard(self, event: Mapping[str, Any]) -> None:
        if "version" in event:
            self.version = str(event["version"])
        match event["event"]:
            case "started":
                self.running = True
            case "batch":
                self._batch(event)
            case "failed":
                self.failed, self.running = True, False
                self.failures += 1
                self.restarts += event.get("again_in_s") is not None
            case "ended":
                self.running = False

    def _batch(self, event: Mapping[str, Any]) -> None:
        self.running, self.failed = True, False
        self.batches += 1
        self.rows_in += event.get("rows_in") or 0
        self.quarantined += event.get("quarantined") or 0
        self.too_late += event.get("too_late") or 0
        self.rows_out.update(event.get("rows_out") or {})
        for rule, outcomes in (event.get("rules") or {}).items():
            self.by_rule.update({(rule, outcome): count for outcome, count in outcomes.items()})
        if "duration_ms" in event:
            self.last_duration_s = event["duration_ms"] / 1000
            self.durations.observe(self.last_duration_s)
        if "at_ms" in event:
            self.last_batch_s = event["at_ms"] / 1000


def values_of(counted: Iterable[tuple[Who, Counts]]) -> Values:
    """The metrics of these editions. The histograms are copies."""
    found = sorted(counted, key=lambda each: each[0])
    return {
        names.RUNNING: [((*who, each.version), each.running) for who, each in found if each.version is not None],
        names.FAILED: [(who, each.failed) for who, each in found],
        names.FAILURES: [(who, each.failures) for who, each in found],
        names.RESTARTS: [(who, each.restarts) for who, each in found],
        names.BATCHES: [(who, each.batches) for who, each in found],
        names.ROWS_IN: [(who, each.rows_in) for who, each in found],
        names.ROWS_OUT: [((*who, name), rows) for who, each in found for name, rows in sorted(each.rows_out.items())],
        names.QUARANTINED: [(who, each.quarantined) for who, each in found],
        names.TOO_LATE: [(who, each.too_late) for who, each in found],
        names.RULE_ROWS: [((*who, *by), rows) for who, each in found for by, rows in sorted(each.by_rule.items())],
        names.BATCH_DURATION: [(who, each.durations.copy()) for who, each in found],
        names.LAST_BATCH_DURATION: [
            (who, each.last_duration_s) for who, each in found if each.last_duration_s is not None
        ],
        names.LAST_BATCH_AT: [(who, each.last_batch_s) for who, each in found if each.last_batch_s is not None],
    }
