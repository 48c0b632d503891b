"""Fetch requests on their way, for one partition or for several partitions that want little."""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.client.answers import Isolation
from cordwood.client.brokers import Leader
from cordwood.client.errors import ClientError, error_code, refusal
from cordwood.client.link import Link, Pending
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import BadResponse, encode_request
from cordwood.wire.fetch import TOPIC_IDS_FROM
from cordwood.wire.fetch_response import decode_fetch_response
from cordwood.wire.fetched import FetchedPartition


class Wanted(NamedTuple):
    """A fetch of one partition: the leader, the offset and the most bytes."""

    partition: TopicPartition
    leader: Leader
    offset: int
    max_bytes: int


class FetchRequest:
    """A request that was sent. The first `take` reads its answer."""

    def __init__(self, link: Link, pending: Pending, topics: dict[TopicPartition, str | TopicId]) -> None:
        self.link = link
        self._pending = pending
        self._topics = topics
        """The topic, as the request names it, of each partition that is neither taken nor forgotten."""
        self._found: dict[tuple[str | TopicId, int], FetchedPartition] | None = None
        self._failure: ClientError | None = None

    def take(self, partition: TopicPartition) -> FetchedPartition:
        """Waits for the answer and returns a partition's part of it. Each partition is taken once."""
        topic = self._topics.pop(partition)
        if self._failure is not None:
            raise self._failure
        if self._found is None:
            try:
                self._found = self._receive()
            except ClientError as failure:
                self._failure = failure
                raise
        found = self._found.pop((topic, partition.partition), None)
        if found is None:
            raise self._pending.unreadable(BadResponse(f"the answer to a fetch of {partition} lacks the partition"))
        return found

    def forget(self, partition: TopicPartition) -> None:
        self._topics.pop(partition, None)
        if not self._topics and self._found is None and self._failure is None:
            self._pending.forget()

    def _receive(self) -> dict[tuple[str | TopicId, int], FetchedPartition]:
        try:
            response = decode_fetch_response(self._pending.version, self._pending.frame())
        except BadResponse as reason:
            raise self._pending.unreadable(reason) from reason
        if response.error_code:
            raise refusal(error_code(response.error_code), self.link.was_asked(ApiKey.FETCH, ""))
        return {(topic, found.partition): found for topic, partitions in response.topics for found in partitions}


def send_fetch(wanted: Sequence[Wanted], isolation: Isolation, max_wait_ms: int) -> FetchRequest:
    """Sends one request to the common leader of these partitions. Each partition is named once."""
    link = wanted[0].leader.link
    by_name = any(each.leader.topic_id is None for each in wanted)
    version = link.versions.pick(ApiKey.FETCH, TOPIC_IDS_FROM - 1 if by_name else None)
    by_name = version < TOPIC_IDS_FROM
    names: dict[TopicPartition, str | TopicId] = {}
    rows: dict[str | TopicId, list[dict[str, int]]] = {}
    for partition, leader, offset, max_bytes in wanted:
        name: str | TopicId = partition.topic
        if not by_name:
            assert leader.topic_id is not None
            name = leader.topic_id
        names[partition] = name
        rows.setdefault(name, []).append(
            {
                "partition": partition.partition,
                "current_leader_epoch": leader.leader_epoch,
                "fetch_offset": offset,
                "partition_max_bytes": max_bytes,
            }
        )
    values = {
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": sum(each.max_bytes for each in wanted),
        "isolation_level": int(isolation),
        "topics": [{"topic" if by_name else "topic_id": name, "partitions": each} for name, each in rows.items()],
    }
    body = encode_request(ApiKey.FETCH, version, values)
    pending = link.begin_encoded(ApiKey.FETCH, version, body, wait_ms=max_wait_ms)
    return FetchRequest(link, pending, names)
