"""Sends the markers of a decided transaction to the leaders of its partitions: one request to each broker.

Markers for partitions that this broker leads go to its own `MarkerWriter`, in a later event, as a request would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from cordwood.cluster.image import ClusterImage
from cordwood.model.errors import ErrorCode, known_error
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.transaction_markers import COMMIT_TIMEOUT_MS, Ending, MarkerWriter
from cordwood.node.peers import Home, PeerAnswer, PeerOutcome, PeerRequest, Peers
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.write_txn_markers import WriteTxnMarkers

TIMEOUT_MS = COMMIT_TIMEOUT_MS + 5_000
"""Longer than a leader waits for its markers to be committed: it answers for each of them."""

VERSIONS = (1, 2)

Sent = Callable[[dict[TopicPartition, ErrorCode]], None]


class MarkerSender:
    def __init__(self, image: ClusterImage, peers: Peers, home: Home, writer: MarkerWriter) -> None:
        self._image = image
        self._peers = peers
        self._home = home
        self._writer = writer

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
        waiting = len(by_leader)
        if not waiting:
            done(outcomes)
            return

        def written(there: dict[TopicPartition, ErrorCode]) -> None:
            nonlocal waiting
            outcomes.update(there)
            waiting -= 1
            if not waiting:
                done(outcomes)

        def answered(names: list[TopicPartition], outcome: PeerOutcome, now: Moment) -> None:
            written(_outcomes(names, outcome))

        for leader, names in by_leader.items():
            if leader == self._image.node_id:
                self._home.call(partial(self._writer.write, ending, names, written))
                continue
            values = {"markers": [_marker(ending, names)]}
            request = PeerRequest(leader, ApiKey.WRITE_TXN_MARKERS, VERSIONS, values, TIMEOUT_MS)
            self._peers.send(request, partial(answered, names))


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


def _outcomes(names: list[TopicPartition], outcome: PeerOutcome) -> dict[TopicPartition, ErrorCode]:
    """The outcome of each partition; NETWORK_EXCEPTION where the broker did not tell."""
    told = dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION)
    if isinstance(outcome, PeerAnswer):
        body: WriteTxnMarkers.Response = outcome.body
        for marker in body.markers:
            for topic in marker.topics:
                for each in topic.partitions:
                    told[TopicPartition(topic.name, each.partition_index)] = known_error(each.error_code)
    return told
