"""Finds the ends of partitions, and offsets by time: one request to each leader, all at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cordwood.client.answers import FoundOffset, Isolation
from cordwood.client.brokers import Brokers
from cordwood.client.errors import BrokerUnreachable, ClientError, RequestRefused, error_code, refusal
from cordwood.client.link import Link, Pending
from cordwood.client.retries import LEADER_MOVED, PASSING, Attempts
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.list_offsets import ListOffsets

_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_TIMES_UNKNOWN = 3
"""A leader is believed after this many answers that it does not know a partition, although the metadata has it."""


def list_offsets(
    brokers: Brokers, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, FoundOffset]:
    search = _Search(brokers, wanted, isolation)
    attempts = Attempts(brokers.settings)
    while True:
        search.once()
        if search.failure is None:
            return search.found
        attempts.pause(search.failure)


class _Search:
    """The partitions that are still to be found, over several attempts."""

    def __init__(self, brokers: Brokers, wanted: Mapping[TopicPartition, int], isolation: Isolation) -> None:
        self._brokers = brokers
        self._left = dict(wanted)
        self._isolation = isolation
        self._unknown: dict[TopicPartition, int] = {}
        self.found: dict[TopicPartition, FoundOffset] = {}
        self.failure: ClientError | None = None
        """The reason why the last attempt did not find all partitions, which may pass."""

    def once(self) -> None:
        self.failure = None
        asked: list[tuple[Link, Pending[ListOffsets.Response]]] = []
        try:
            by_leader = self._by_leader()
        except BrokerUnreachable as failure:
            self.failure = failure
            return
        for link, partitions in by_leader.items():
            try:
                asked.append((link, self._ask(link, partitions)))
            except BrokerUnreachable as failure:
                self._lost(link, failure)
        for link, pending in asked:
            try:
                self._take(link, pending.answer())
            except BrokerUnreachable as failure:
                self._lost(link, failure)

    def _lost(self, link: Link, failure: BrokerUnreachable) -> None:
        self.failure = failure
        self._brokers.outdated_at(link)

    def _by_leader(self) -> dict[Link, list[tuple[TopicPartition, int]]]:
        """The partitions that remain, by leader. Partitions that do not exist are dropped for good."""
        self._brokers.prepare(partition.topic for partition in self._left)
        by_leader: dict[Link, list[tuple[TopicPartition, int]]] = {}
        for partition in list(self._left):
            topic = self._brokers.topic(partition.topic)
            if topic is None or not 0 <= partition.partition < len(topic.partitions):
                del self._left[partition]
                continue
            try:
                leader = self._brokers.leader(partition)
            except RequestRefused as failure:
                self.failure = failure
            else:
                by_leader.setdefault(leader.link, []).append((partition, leader.leader_epoch))
        return by_leader

    def _ask(self, link: Link, partitions: Iterable[tuple[TopicPartition, int]]) -> Pending[ListOffsets.Response]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition, leader_epoch in partitions:
            topics.setdefault(partition.topic, []).append(
                {
                    "partition_index": partition.partition,
                    "current_leader_epoch": leader_epoch,
                    "timestamp": self._left[partition],
                }
            )
        timeout_ms = self._brokers.settings.request_timeout_ms
        values = {
            "replica_id": -1,
            "isolation_level": int(self._isolation),
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
            "timeout_ms": timeout_ms,
        }
        return link.begin(ApiKey.LIST_OFFSETS, values)

    def _take(self, link: Link, response: ListOffsets.Response) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if partition not in self._left:
                    continue
                code = error_code(row.error_code)
                if code == ErrorCode.NONE:
                    self.found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
                    del self._left[partition]
                else:
                    self._refused(partition, code, link)

    def _refused(self, partition: TopicPartition, code: ErrorCode, link: Link) -> None:
        failure = refusal(code, link.was_asked(ApiKey.LIST_OFFSETS, f"of {partition}"))
        if code in LEADER_MOVED:
            self._brokers.outdated([partition.topic])
        if code in _UNKNOWN:
            self._unknown[partition] = self._unknown.get(partition, 0) + 1
            if self._unknown[partition] >= _TIMES_UNKNOWN:
                del self._left[partition]
                return
        if code not in PASSING:
            raise failure
        self.failure = failure
