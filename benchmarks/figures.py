"""The arithmetic of a comparison: samples, medians, ratios and targets.

Owns the meaning of a printed figure. Promises: a figure is the median of the samples of this run; a ratio is always
Cordwood's figure divided by Kafka's; a figure that was not measured has no number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

CORDWOOD = "cordwood"
KAFKA = "kafka"


class Verdict(Enum):
    """Whether a target was reached."""

    REACHED = "reached"
    MISSED = "missed"
    UNKNOWN = "not measured"
    NONE = "no target"


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to Kafka, or, with `of_own_value`, on Cordwood's own figure."""

    bound: float
    at_least: bool
    of_own_value: bool = False

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.bound:.3g}" + ("" if self.of_own_value else "x")

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


THROUGHPUT = Target(1.2, at_least=True)
LATENCY_P99 = Target(0.7, at_least=False)
MEMORY = Target(1 / 8, at_least=False)
START = Target(1 / 10, at_least=False)
CPU = Target(0.7, at_least=False)
BACKFILL = Target(1.5, at_least=False, of_own_value=True)
WORKERS_CPU = Target(1.15, at_least=False, of_own_value=True)
AS_MANY = Target(1.0, at_least=True)
AS_SOON = Target(1.0, at_least=False)
REBALANCE = Target(0.5, at_least=False)


@dataclass(frozen=True)
class Metric:
    """A metric: its name, its unit and its target."""

    name: str
    unit: str
    target: Target | None = None


@dataclass
class Figure:
    """One row of the report: a metric of a case, with the samples of each system."""

    scenario: str
    case: str
    metric: Metric
    samples: dict[str, list[float]] = field(default_factory=dict)
    limits: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)

    def add(self, system: str, value: float, limit: str = "", command: str = "") -> None:
        self.samples.setdefault(system, []).append(value)
        self.limits.setdefault(system, []).append(limit)
        self.commands[system] = command

    def value(self, system: str) -> float | None:
        return median(self.samples.get(system, []))

    def limit(self, system: str) -> str:
        """The limit of the system in most of its rounds, if it is known."""
        seen = self.limits.get(system, [])
        return statistics.mode(seen) if seen else ""

    @property
    def ratio(self) -> float | None:
        return ratio(self.value(CORDWOOD), self.value(KAFKA))

    @property
    def verdict(self) -> Verdict:
        target = self.metric.target
        if target is None:
            return Verdict.NONE
        judged = self.value(CORDWOOD) if target.of_own_value else self.ratio
        if judged is None:
            return Verdict.UNKNOWN
        return Verdict.REACHED if target.met_by(judged) else Verdict.MISSED


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """The ratio; None if a side was not measured, or if Kafka's figure is zero (too small for the clock)."""
    if ours is None or theirs is None or theirs == 0:
        return None
    return ours / theirs


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all values do not exceed. As load.c does it."""
    assert values, "no values"
    assert 0 < share <= 1
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def per_gigabyte(cpu_s: float, size_bytes: float) -> float:
    """CPU seconds for 10^9 bytes of payload."""
    assert size_bytes > 0
    return cpu_s / (size_bytes / 1e9)


BUSY = 0.9
"""A thread, or the machine, that computes for this share of the time leaves no room for more."""


def limit_of(*, client: float, broker: float, machine: float) -> str:
    """The limit of a run, from the busy shares of the client's threads, the broker's threads and all cores."""
    if client >= BUSY:
        return "client"
    if broker >= BUSY:
        return "broker"
    return "cores" if machine >= BUSY else ""
