"""Watches partitions that lose their leader, as an impatient client sees them.

The probe asks surviving brokers for the leaders every few milliseconds, and writes a record with acks=all to each new
leader until the record is acknowledged. It has none of the back-offs of a client's library: what it measures is the
cluster's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks.systems import SystemFailed
from cordwood.client.errors import BrokerUnreachable
from cordwood.client.link import Link
from cordwood.client.settings import Address, ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.security.connection_settings import PLAIN_TEXT, Security
from cordwood.wire.apis import ApiKey

_EVERY_S = 0.005
_ACK_WITHIN_MS = 10_000
_LAST_VERSION_WITH_NAMES = 9
_ALL = -1


class Place(NamedTuple):
    leader: int
    in_sync: int


class Restored(NamedTuple):
    """When the last of the partitions had a leader, and when it had acknowledged a record: time.monotonic()."""

    led_at_s: float
    acked_at_s: float


class Probe:
    """Connections to some brokers of a cluster, for one topic. Used as a context manager."""

    def __init__(self, addresses: Mapping[int, Address], topic: str, security: Security = PLAIN_TEXT) -> None:
        self._links = {
            node: Link(address, ClientSettings(str(address), request_timeout_ms=20_000, security=security), node)
            for node, address in addresses.items()
        }
        self._topic = topic

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links.values():
            link.close()

    def places(self, node: int | None = None) -> dict[int, Place]:
        """Leaders of the partitions and how many replicas are in sync, as one broker tells."""
        link = next(iter(self._links.values())) if node is None else self._links[node]
        answer = link.ask(
            ApiKey.METADATA, {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False}, at_most=9
        )
        (topic,) = answer.topics
        return {part.partition_index: Place(part.leader_id, len(part.isr_nodes)) for part in topic.partitions}

    def until_in_sync(self, replicas: int, *, within_s: float = 180) -> float:
        """Waits until every partition has that many replicas in sync, as all brokers tell. Returns when that was."""
        ends_s = time.monotonic() + within_s
        for node in self._links:
            while True:
                try:
                    places = self.places(node)
                    if places and all(place.in_sync >= replicas and place.leader > 0 for place in places.values()):
                        break
                except (BrokerUnreachable, ValueError):
                    pass  # it starts, or does not know the topic yet
                if time.monotonic() > ends_s:
                    raise SystemFailed(f"not all replicas are in sync after {within_s:g} s")
                time.sleep(4 * _EVERY_S)
        return time.monotonic()

    def until_served(self, partitions: Iterable[int], *, within_s: float = 90) -> Restored:
        """Writes to the partitions until each has acknowledged a record."""
        waiting = set(partitions)
        ends_s = time.monotonic() + within_s
        led_at_s: dict[int, float] = {}
        while waiting:
            for node in self._links:
                try:
                    places = self.places(node)
                except (BrokerUnreachable, ValueError):
                    continue
                now_s = time.monotonic()
                by_leader: dict[int, list[int]] = {}
                for partition in waiting:
                    place = places.get(partition)
                    if place is not None and place.leader in self._links:
                        led_at_s.setdefault(partition, now_s)
                        by_leader.setdefault(place.leader, []).append(partition)
                waiting -= self._written(by_leader)
                if not waiting:
                    break
            if time.monotonic() > ends_s:
                raise SystemFailed(f"{len(waiting)} partitions are not served after {within_s:g} s")
            if waiting:
                time.sleep(_EVERY_S)
        return Restored(max(led_at_s.values()), time.monotonic())

    def _written(self, by_leader: Mapping[int, list[int]]) -> set[int]:
        """The partitions whose leaders acknowledged a record."""
        done: set[int] = set()
        pending = []
        for leader, partitions in by_leader.items():
            record = bytes(build_batch([(int(time.time() * 1000), None, b"probe", ())]))
            values = {
                "transactional_id": None,
                "acks": _ALL,
                "timeout_ms": _ACK_WITHIN_MS,
                "topic_data": [
                    {
                        "name": self._topic,
                        "partition_data": [{"index": partition, "records": record} for partition in partitions],
                    }
                ],
            }
            try:
                pending.append(self._links[leader].begin(ApiKey.PRODUCE, values, at_most=_LAST_VERSION_WITH_NAMES))
            except BrokerUnreachable:
                continue
        for request in pending:
            try:
                (answer,) = request.answer().responses
            except BrokerUnreachable:
                continue
            done |= {part.index for part in answer.partition_responses if part.error_code == ErrorCode.NONE}
        return done
