"""The brokers of a cluster, the leaders of partitions and the coordinators of groups and transactions, cached.

The cache may be out of date: a caller that learns this from a broker calls `outdated`, and the next lookup asks the
cluster again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cordwood.client.answers import PartitionMetadata, TopicMetadata
from cordwood.client.errors import (
    BrokerUnreachable,
    ClientError,
    RequestRefused,
    SecurityFailure,
    UnknownTopic,
    error_code,
    refusal,
)
from cordwood.client.link import Link
from cordwood.client.retries import COORDINATOR_MOVED, PASSING, Attempts
from cordwood.client.settings import Address, ClientSettings
from cordwood.client.versions import BrokerVersions
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf, Response
    from cordwood.wire.message_types.metadata import Metadata

T = TypeVar("T")

_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Leader(NamedTuple):
    link: Link
    topic_id: TopicId | None
    leader_epoch: int


class Brokers:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._bootstrap = [Link(address, settings) for address in settings.addresses]
        self._links: dict[int, Link] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._stale: set[str] = set()
        self._coordinators: dict[tuple[KeyType, str], int] = {}
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for link in (*self._bootstrap, *self._links.values()):
            link.close()

    # Connections.

    def any(self) -> Link:
        """A connected link: an open one, else a new connection to a known broker or a bootstrap server. Addresses whose
        last connection failed come last."""
        self._check_open()
        for link in self._links.values():
            if link.is_connected:
                # The links to bootstrap servers are no longer needed: a broker needs no second connection under another
                # name.
                for bootstrap in self._bootstrap:
                    bootstrap.close()
                return link
        for link in self._bootstrap:
            if link.is_connected:
                return link
        failures: list[ClientError] = []
        for link in sorted((*self._links.values(), *self._bootstrap), key=lambda link: link.is_doubtful):
            try:
                link.connect()
            except ClientError as failure:
                failures.append(failure)
            else:
                return link
        told = f"no broker of {self.settings.bootstrap_servers} answers: {'; '.join(map(str, failures))}"
        if any(isinstance(failure, SecurityFailure) for failure in failures):
            raise SecurityFailure(told)
        raise BrokerUnreachable(told)

    def versions(self) -> BrokerVersions:
        """The API versions of one of the brokers."""
        return self.retried(lambda: self.any().versions)

    def all(self) -> list[Link]:
        """Links to all brokers of the cluster."""
        self._ask_metadata([])
        return [self._links[node_id] for node_id in sorted(self._links)]

    def link(self, node_id: int) -> Link:
        self._check_open()
        found = self._links.get(node_id)
        if found is None:
            raise refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster's metadata")
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the client is closed")

    def _learn_broker(self, node_id: int, host: str, port: int) -> None:
        address = Address(host, port)
        known = self._links.get(node_id)
        if known is not None:
            if known.address == address:
                return
            known.close()
        link = self._links[node_id] = Link(address, self.settings, node_id)
        for bootstrap in self._bootstrap:
            if bootstrap.address == address:
                link.adopt(bootstrap)

    def _learn_brokers(self, brokers: Iterable[Metadata.ResponseBroker]) -> None:
        present = set()
        for broker in brokers:
            present.add(broker.node_id)
            self._learn_broker(broker.node_id, broker.host, broker.port)
        for node_id in self._links.keys() - present:
            self._links.pop(node_id).close()

    # Topics.

    def describe(self, names: Collection[str] | None, *, create: bool = False) -> dict[str, TopicMetadata]:
        """Asks the cluster about these topics, or about all, and caches the answer, without missing topics."""
        if names is not None and not names:
            return {}
        link, response = self._ask_metadata(None if names is None else sorted(names), create=create)
        found: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            name, code = topic.name, error_code(topic.error_code)
            if name is None:
                # Only an answer to a question by id has no name, and this client asks by name.
                raise ClientError(f"{link.name} answered a Metadata for names with a topic that has none")
            if code in _ABSENT:
                self._topics.pop(name, None)
                self._stale.discard(name)
            elif code and code != ErrorCode.LEADER_NOT_AVAILABLE:
                raise refusal(code, link.was_asked(ApiKey.METADATA, f"for topic {name}"))
            else:
                found[name] = _topic_metadata(name, topic)
        self._topics.update(found)
        self._stale.difference_update(found)
        return found

    def _ask_metadata(self, names: Sequence[str] | None, *, create: bool = False) -> tuple[Link, Metadata.Response]:
        """The link that answered, and its answer. No names: only the brokers; None: every topic."""
        asked = None if names is None else [{"name": name} for name in names]
        values: dict[str, Any] = {"topics": asked, "allow_auto_topic_creation": create}
        link = self.any()
        response = link.ask(ApiKey.METADATA, values)
        if response.error_code:
            raise refusal(error_code(response.error_code), link.was_asked(ApiKey.METADATA, "for topics"))
        self._learn_brokers(response.brokers)
        return link, response

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic from the cache, or from the cluster if the cache is out of date. None if there is no such topic."""
        if name not in self._topics or name in self._stale:
            self.describe({name, *self._stale})
        return self._topics.get(name)

    def prepare(self, names: Iterable[str]) -> None:
        """Asks in one request for those of the topics that are not cached."""
        missing = {name for name in names if name not in self._topics or name in self._stale}
        if missing:
            self.describe(missing | self._stale)

    def outdated(self, topics: Iterable[str]) -> None:
        """Marks the cached metadata of these topics as out of date."""
        self._stale.update(topics)

    def outdated_at(self, link: Link) -> None:
        """Marks the topics that an unreachable broker led as out of date."""
        self.outdated(name for name, topic in self._topics.items() if _leads(link, topic))

    def leader(self, partition: TopicPartition) -> Leader:
        """The leader of the partition. Raises UnknownTopic if the partition does not exist, and RequestRefused, to be
        retried, if it has no leader."""
        found = self.topic(partition.topic)
        if found is None or partition.partition >= len(found.partitions):
            # A broker of a larger cluster may learn of a new topic a little later than the broker that created it.
            time.sleep(self.settings.retry_backoff_ms / 1000)
            self.outdated([partition.topic])
            found = self.topic(partition.topic)
        if found is None:
            raise UnknownTopic(partition.topic, f"topic {partition.topic} does not exist")
        if not 0 <= partition.partition < len(found.partitions):
            count = len(found.partitions)
            raise UnknownTopic(
                partition.topic, f"partition {partition} does not exist: the topic has {count} partitions"
            )
        _, leader_id, leader_epoch = found.partitions[partition.partition]
        if leader_id not in self._links:
            self.outdated([partition.topic])
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader now")
        return Leader(self.link(leader_id), found.topic_id, leader_epoch)

    # Coordinators.

    def coordinator(self, key_type: KeyType, key: str) -> Link:
        """The coordinator of this group or transactional id. Raises RequestRefused, to be retried, if there is none
        now."""
        node_id = self._coordinators.get((key_type, key))
        if node_id is None or node_id not in self._links:
            node_id = self._coordinators[key_type, key] = self._find_coordinator(key_type, key)
        return self.link(node_id)

    def _find_coordinator(self, key_type: KeyType, key: str) -> int:
        link = self.any()
        values = {"key": key, "coordinator_keys": [key], "key_type": int(key_type)}
        response = link.ask(ApiKey.FIND_COORDINATOR, values)
        row = response.coordinators[0] if response.coordinators else response
        if row.error_code:
            about = f"of {'group' if key_type == KeyType.GROUP else 'transactional id'} {key}"
            code = error_code(row.error_code)
            raise refusal(code, link.was_asked(ApiKey.FIND_COORDINATOR, about), row.error_message)
        self._learn_broker(row.node_id, row.host, row.port)
        return int(row.node_id)

    def ask_coordinator(
        self,
        key_type: KeyType,
        key: str,
        api_key: KeyOf[Response],
        values: dict[str, Any],
        check: Callable[[Link, Response], T],
        *,
        at_most: int | None = None,
        wait_ms: int = 0,
    ) -> T:
        """Asks the coordinator, and returns the result of `check` for the answer. Retries errors that may pass."""

        def attempt() -> T:
            try:
                link = self.coordinator(key_type, key)
                return check(link, link.ask(api_key, values, at_most=at_most, wait_ms=wait_ms))
            except BrokerUnreachable:
                self._coordinators.pop((key_type, key), None)
                raise
            except RequestRefused as failure:
                if failure.code in COORDINATOR_MOVED:
                    self._coordinators.pop((key_type, key), None)
                raise

        return self.retried(attempt)

    # Trying again.

    def retried(self, attempt: Callable[[], T]) -> T:
        """Repeats an attempt while it fails in a way that may pass. Returns its result, or raises its failure."""
        attempts = Attempts(self.settings)
        while True:
            try:
                return attempt()
            except (BrokerUnreachable, RequestRefused) as failure:
                if isinstance(failure, RequestRefused) and failure.code not in PASSING:
                    raise
                self._check_open()
                attempts.pause(failure)


def _leads(link: Link, topic: TopicMetadata) -> bool:
    return any(partition.leader_id == link.node_id for partition in topic.partitions)


def _topic_metadata(name: str, topic: Metadata.ResponseTopic) -> TopicMetadata:
    partitions = sorted(
        PartitionMetadata(partition.partition_index, partition.leader_id, partition.leader_epoch)
        for partition in topic.partitions
    )
    return TopicMetadata(name, topic.topic_id, tuple(partitions), topic.is_internal)
