"""Reports between the lag watches of brokers (WatchReport): no broker sees a whole group or a whole topic.

The coordinator of a group knows the group's positions, and the leader of a partition knows the partition's log. So the
coordinator reports positions to the leaders, and each position is evaluated by the leader of its partition, once in the
cluster. Leaders report the traffic of partitions to the broker that collects it for the topic (`topic_traffic.py`), and
are answered with the topic's sum.

Reports go out after each sweep, a bounded number of entries in each, and hold for a few sweeps: an entry that is no
longer reported is forgotten. A failed report is not repeated: the next sweep reports again. A broker of an earlier
release takes no reports: its positions count as not watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.model.identifiers import TopicPartition
from cordwood.node.loop.peers import PeerAnswer, PeerRequest
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.model.identifiers import TopicId
    from cordwood.model.moment import Moment
    from cordwood.node.duties.topic_traffic import TopicTraffic
    from cordwood.node.loop.peers import PeerOutcome, Peers
    from cordwood.node.loop.serving import Serving
    from cordwood.wire.message_types.watch_report import WatchReport

VERSIONS: Final = (0, 0)
ENTRIES_PER_REPORT: Final = 500
"""Positions and rates in one report: more would hold the loop while they are encoded."""
HOLDS_FOR_SWEEPS: Final = 3
MOST_RECEIVED: Final = 20_000
"""The most positions that other coordinators report."""
NO_POSITION: Final = -1


class ReportedPosition(NamedTuple):
    position: int | None
    """None: the group never committed."""
    until_ms: int


class _Outgoing:
    """The next report to one broker."""

    def __init__(self) -> None:
        self.entries = 0
        self.positions = 0
        self.groups: dict[str, dict[TopicId, list[tuple[int, int]]]] = {}
        self.traffic: dict[TopicId, list[tuple[int, float]]] = {}


class WatchReports:
    def __init__(self, image: ClusterImage, serving: Serving, peers: Peers, traffic: TopicTraffic) -> None:
        self._image = image
        self._serving = serving
        self._peers = peers
        self._traffic = traffic
        self._outgoing: dict[int, _Outgoing] = {}
        self._failed: dict[int, int] = {}
        """Positions that a broker did not take since the last sweep began."""
        self.received: dict[tuple[str, TopicPartition], ReportedPosition] = {}
        """Positions that coordinators on other brokers reported, of partitions that this broker led then."""
        self.not_taken = 0
        """Positions that their leaders did not take in the sweep before the last."""
        self.without_room = 0
        """Positions of other coordinators for which there was no room between the last two sweeps."""
        self._refused = 0

    @property
    def holds_for_ms(self) -> int:
        return HOLDS_FOR_SWEEPS * self._image.settings.lag_check_interval_ms

    def begin(self, now_ms: int) -> None:
        """Begins a sweep: drops expired entries, and counts positions that the last sweep could not report."""
        self.not_taken, self._failed = sum(self._failed.values()), {}
        self.without_room, self._refused = self._refused, 0
        self.received = {key: each for key, each in self.received.items() if each.until_ms >= now_ms}

    # To other brokers

    def report_position(self, leader: int, group_id: str, topic_id: TopicId, index: int, position: int | None) -> None:
        outgoing = self._outgoing_to(leader)
        entry = (index, NO_POSITION if position is None else position)
        outgoing.groups.setdefault(group_id, {}).setdefault(topic_id, []).append(entry)
        outgoing.positions += 1
        self._added(leader, outgoing)

    def report_traffic(self, collector: int, topic_id: TopicId, index: int, bytes_per_s: float) -> None:
        outgoing = self._outgoing_to(collector)
        outgoing.traffic.setdefault(topic_id, []).append((index, bytes_per_s))
        self._added(collector, outgoing)

    def send(self) -> Iterator[None]:
        """Sends the remaining entries, one report in a step."""
        for broker_id in sorted(self._outgoing):
            self._send(broker_id, self._outgoing[broker_id])
            yield
        self._outgoing = {}

    def _outgoing_to(self, broker_id: int) -> _Outgoing:
        return self._outgoing.setdefault(broker_id, _Outgoing())

    def _added(self, broker_id: int, outgoing: _Outgoing) -> None:
        outgoing.entries += 1
        if outgoing.entries >= ENTRIES_PER_REPORT:
            del self._outgoing[broker_id]
            self._send(broker_id, outgoing)

    def _send(self, broker_id: int, outgoing: _Outgoing) -> None:
        values = {
            "broker_id": self._image.node_id,
            "broker_epoch": self._serving.broker_epoch,
            "valid_for_ms": self.holds_for_ms,
            "groups": [
                {
                    "group_id": group_id,
                    "topics": [
                        {
                            "topic_id": topic_id,
                            "partitions": [{"partition": index, "position": position} for index, position in entries],
                        }
                        for topic_id, entries in topics.items()
                    ],
                }
                for group_id, topics in outgoing.groups.items()
            ],
            "traffic": [
                {
                    "topic_id": topic_id,
                    "partitions": [{"partition": index, "bytes_per_second": rate} for index, rate in entries],
                }
                for topic_id, entries in outgoing.traffic.items()
            ],
        }
        timeout_ms = self._image.settings.lag_check_interval_ms
        request: PeerRequest[WatchReport.Response] = PeerRequest(
            broker_id, ApiKey.WATCH_REPORT, VERSIONS, values, timeout_ms
        )

        def answered(outcome: PeerOutcome[WatchReport.Response], now: Moment) -> None:
            if not isinstance(outcome, PeerAnswer) or outcome.body.error_code:
                self._failed[broker_id] = self._failed.get(broker_id, 0) + outgoing.positions
                return
            for topic in outcome.body.topics:
                if topic.topic_id is not None:
                    self._traffic.told(topic.topic_id, topic.bytes_per_second, now.boot_ms + self.holds_for_ms)

        self._peers.send(request, answered)

    # From other brokers

    def take(self, report: WatchReport.Request, now_ms: int) -> dict[TopicId, float]:
        """Takes over a report of another broker. Returns the sums of the topics whose traffic it reports."""
        until_ms = now_ms + min(max(report.valid_for_ms, 0), 10 * self.holds_for_ms)
        for group in report.groups:
            for topic in group.topics:
                name = None if topic.topic_id is None else self._image.topic_name(topic.topic_id)
                if name is not None:
                    for each in topic.partitions:
                        self._receive(group.group_id, TopicPartition(name, each.partition), each.position, until_ms)
        sums: dict[TopicId, float] = {}
        for reported in report.traffic:
            if (topic_id := reported.topic_id) is None:
                continue
            rates = [(each.partition, each.bytes_per_second) for each in reported.partitions]
            self._traffic.report(topic_id, rates, until_ms)
            if (found := self._traffic.sum_of(topic_id, now_ms)) is not None:
                sums[topic_id] = found
        return sums

    def _receive(self, group_id: str, partition: TopicPartition, position: int, until_ms: int) -> None:
        key = (group_id, partition)
        if key not in self.received and len(self.received) >= MOST_RECEIVED:
            self._refused += 1
            return
        self.received[key] = ReportedPosition(None if position == NO_POSITION else position, until_ms)
