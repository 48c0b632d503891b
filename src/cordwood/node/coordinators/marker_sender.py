"""Sends the markers of decided transactions to the leaders of their partitions.

A request to a broker carries markers of as many transactions as wait for it. A few requests to each broker are under
way at a time, and markers that come meanwhile wait for the next: thousands of transactions that end together do not
fill the port. Markers for partitions that this broker leads go to its own `MarkerWriter`, in a later event, as a
request would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, known_error
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.transaction_markers import COMMIT_TIMEOUT_MS, Ending, MarkerWriter
from cordwood.node.loop.peers import Home, PeerAnswer, PeerOutcome, PeerRequest, Peers
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.write_txn_markers import WriteTxnMarkers

TIMEOUT_MS = COMMIT_TIMEOUT_MS + 5_000
"""The timeout is longer than a leader waits for its markers to be committed: the leader answers for each of them."""

VERSIONS = (1, 2)

MOST_UNDER_WAY = 8
"""Requests to one broker that have no answer yet."""

PARTITIONS_AT_ONCE = 4_000
"""The most markers of one request. With as many topics the request is within its width (`wire.widths`)."""

Sent = Callable[[dict[TopicPartition, ErrorCode]], None]


class _Marker(NamedTuple):
    """The marker of one transaction for one broker."""

    ending: Ending
    names: list[TopicPartition]
    written: Sent

    def settle(self, told: dict[TopicPartition, ErrorCode]) -> None:
        """Calls back; with NETWORK_EXCEPTION for partitions without an outcome."""
        self.written({name: told.get(name, ErrorCode.NETWORK_EXCEPTION) for name in self.names})


class _Outbox:
    """The markers for one broker."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: dict[int, list[_Marker]] = {}
        """The markers of each request without an answer, by the request's number."""
        self.waiting: deque[_Marker] = deque()

    def next(self) -> list[_Marker]:
        """The markers of the next request. Answers name producers: each producer is in a request once."""
        markers: list[_Marker] = []
        producers: set[int] = set()
        partitions = 0
        while self.waiting:
            marker = self.waiting[0]
            partitions += len(marker.names)
            producer_id = marker.ending.writer.producer_id
            if markers and (partitions > PARTITIONS_AT_ONCE or producer_id in producers):
                break
            markers.append(self.waiting.popleft())
            producers.add(producer_id)
        return markers


class MarkerSender:
    def __init__(self, image: ClusterImage, peers: Peers, home: Home, writer: MarkerWriter) -> None:
        self._image = image
        self._peers = peers
        self._home = home
        self._writer = writer
        self._outboxes: dict[int, _Outbox] = {}
        """Markers by broker; brokers without markers have no outbox."""
        self._requests = 0

    def send(self, ending: Ending, partitions: Iterable[TopicPartition], done: Sent) -> None:
        """Calls back once, with the outcome of each partition. Nothing is tried again here."""
        by_leader: dict[int, list[TopicPartition]] = {}
        outcomes: dict[TopicPartition, ErrorCode] = {}
        for name in partitions:
            image = self._image.partition_of(*name)
            leader = -1 if image is None else self._image.leadership(image).leader
            if leader < 0:
                outcomes[name] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(name)
        if not by_leader:
            done(outcomes)
            return
        parts = [
            (leader, names[start : start + PARTITIONS_AT_ONCE])
            for leader, names in by_leader.items()
            for start in range(0, len(names), PARTITIONS_AT_ONCE)
        ]
        waiting = len(parts)

        def written(there: dict[TopicPartition, ErrorCode]) -> None:
            nonlocal waiting
            outcomes.update(there)
            waiting -= 1
            if not waiting:
                done(outcomes)

        for leader, names in parts:
            if leader == self._image.node_id:
                self._home.call(partial(self._writer.write, ending, names, written))
            else:
                outbox = self._outboxes.setdefault(leader, _Outbox())
                outbox.waiting.append(_Marker(ending, names, written))
                self._send_next(leader, outbox)

    def _send_next(self, leader: int, outbox: _Outbox) -> None:
        while outbox.waiting and len(outbox.under_way) < MOST_UNDER_WAY:
            self._requests += 1
            markers = outbox.under_way[self._requests] = outbox.next()
            values = {"markers": [_marker(marker.ending, marker.names) for marker in markers]}
            request = PeerRequest(leader, ApiKey.WRITE_TXN_MARKERS, VERSIONS, values, TIMEOUT_MS)
            self._peers.send(request, partial(self._answered, leader, outbox, self._requests))
        if not outbox.under_way:
            del self._outboxes[leader]

    def _answered(self, leader: int, outbox: _Outbox, number: int, outcome: PeerOutcome, now: Moment) -> None:
        markers = outbox.under_way.pop(number)
        self._send_next(leader, outbox)
        told = _outcomes(outcome)
        for marker in markers:
            marker.settle(told.get(marker.ending.writer.producer_id, {}))


def _marker(ending: Ending, names: list[TopicPartition]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in names:
        topics.setdefault(topic, []).append(index)
    return {
        "producer_id": ending.writer.producer_id,
        "producer_epoch": ending.writer.producer_epoch,
        "transaction_result": ending.marker.committed,
        "topics": [
            {"name": topic, "partition_indexes": indexes, "topic_id": ending.topic_ids.get(topic)}
            for topic, indexes in topics.items()
        ],
        "coordinator_epoch": ending.marker.coordinator_epoch,
        "transaction_version": ending.transaction_version,
        "durable": ending.durable,
    }


def _outcomes(outcome: PeerOutcome) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """The outcome of each partition in the broker's answer, by producer id."""
    if not isinstance(outcome, PeerAnswer):
        return {}
    body: WriteTxnMarkers.Response = outcome.body
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): known_error(each.error_code)
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in body.markers
    }
