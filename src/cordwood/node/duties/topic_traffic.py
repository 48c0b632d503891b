"""The bytes per second that come into a topic, wherever its partitions are led.

The broker that leads partition 0 of a topic collects the rates of all its partitions, from itself and from reports of
the other leaders (`watch_reports.py`), and tells these leaders the sum. Rates and sums hold for a time. The sum is
unknown while the rate of a partition with a leader is missing: a part of the traffic looks like skew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage, TopicImage
    from cordwood.model.identifiers import TopicId

PARTITIONS_PER_STEP: Final = 1000


class Rate(NamedTuple):
    bytes_per_s: float
    until_ms: int
    """The time on the boot clock up to which the rate holds."""


class TopicTraffic:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._rates: dict[TopicId, dict[int, Rate]] = {}
        """Rates of partitions, of the topics that this broker collects."""
        self._sums: dict[TopicId, Rate] = {}
        """Sums of topics: collected here, or told by the broker that collects them."""
        self.skews: dict[str, float] = {}
        """The traffic of the busiest partition of each topic that is collected here, as a multiple of the average of
        the others. The dict is replaced whole, never changed."""

    def collector(self, topic: TopicImage) -> int | None:
        """The broker that collects the rates of a topic; None: there is none."""
        leader = self._image.leadership(topic.partitions[0]).leader
        return leader if leader in self._image.brokers else None

    def report(self, topic_id: TopicId, rates: Iterable[tuple[int, float]], until_ms: int) -> None:
        """Notes the rates of partitions of a topic, if this broker collects them."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or self.collector(topic) != self._image.node_id:
            return
        noted = self._rates.setdefault(topic_id, {})
        for partition, bytes_per_s in rates:
            if 0 <= partition < len(topic.partitions) and math.isfinite(bytes_per_s):
                noted[partition] = Rate(bytes_per_s, until_ms)

    def told(self, topic_id: TopicId, bytes_per_s: float, until_ms: int) -> None:
        """Notes the sum of a topic's rates, from the broker that collects them."""
        if topic_id in self._image.topics_by_id:
            self._sums[topic_id] = Rate(bytes_per_s, until_ms)

    def sum_of(self, topic_id: TopicId, now_ms: int) -> float | None:
        """The traffic of a topic; None: not known."""
        rate = self._sums.get(topic_id)
        return None if rate is None or rate.until_ms < now_ms else rate.bytes_per_s

    def collect(self, now_ms: int, until_ms: int) -> Iterator[None]:
        """Sums up the rates of the topics that this broker collects, in small steps."""
        known = self._image.topics_by_id
        self._sums = {topic_id: each for topic_id, each in self._sums.items() if topic_id in known}
        skews: dict[str, float] = {}
        looked_at = 0
        for topic_id in list(self._rates):
            topic = known.get(topic_id)
            if topic is None or self.collector(topic) != self._image.node_id:
                del self._rates[topic_id]
                continue
            rates = self._complete(topic, self._rates[topic_id], now_ms)
            if rates is None:
                self._sums.pop(topic_id, None)
            else:
                self._sums[topic_id] = Rate(sum(rates), until_ms)
                if len(rates) > 1 and sum(rates) > 0 and not topic.internal:
                    skews[topic.name] = skew(rates)
            looked_at += len(topic.partitions)
            if looked_at > PARTITIONS_PER_STEP:
                looked_at = 0
                yield
        self.skews = skews

    def _complete(self, topic: TopicImage, rates: Mapping[int, Rate], now_ms: int) -> list[float] | None:
        """The rates of all partitions, 0 for one without a leader; None if a leader has not reported."""
        found = []
        for index, partition in enumerate(topic.partitions):
            rate = rates.get(index)
            if rate is not None and rate.until_ms >= now_ms:
                found.append(rate.bytes_per_s)
            elif self._image.leadership(partition).leader in self._image.brokers:
                return None
            else:
                found.append(0.0)
        return found


def skew(rates: list[float]) -> float:
    """The highest rate as a multiple of the average of all others."""
    busiest = max(rates)
    rest = sum(rates) - busiest
    return busiest / (rest / (len(rates) - 1)) if rest > 0 else math.inf
