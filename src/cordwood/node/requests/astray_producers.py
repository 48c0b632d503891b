"""Producers on librdkafka that go on sending to a broker that does not lead, though they are told the leader.

If leadership goes to another broker and back before librdkafka has moved the queue of a partition, the queue stays with
the other broker (its issue 4976). The client sees the leader unchanged, is refused, asks for Metadata and sends again,
until its records time out. Only an answer that names no leader takes the queue away from the wrong broker; the next
answer then gives it to the leader. So a client that is refused again after each of several answers that named the
leader is told once that the partition has none. It asks the broker that refuses it: no other broker is as busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import TopicImage
    from cordwood.model.identifiers import TopicId
    from cordwood.node.requests.leader_hints import Hint
    from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients

ANSWERS_IN_VAIN: Final = 3
"""Refusals of requests that were on the way before an answer came look alike for one or two answers."""
MOST_PARTITIONS: Final = 32
"""The partitions that are watched on one connection at a time."""

_Topic = dict[int, "_Refused"]
"""Partitions by their index."""


class _Refused:
    """A partition in which a connection was refused because another broker leads it."""

    __slots__ = ("again", "answers", "leader")

    def __init__(self, leader: Hint) -> None:
        self.leader = leader
        self.answers = 0
        """Metadata answers that named the leader in vain."""
        self.again = True
        """The connection was refused since the last answer."""


class AstrayProducers:
    def __init__(self, clients: LibrdkafkaClients) -> None:
        self._clients = clients
        self._connections: dict[int, dict[str | TopicId, _Topic]] = {}

    def refused(self, connection_id: int, topic: str | TopicId, index: int, leader: Hint) -> None:
        """Notes that a batch was refused because this broker leads. `topic` is as the request has it."""
        if connection_id not in self._clients:
            return
        topics = self._connections.setdefault(connection_id, {})
        found = topics.get(topic, {}).get(index)
        if found is None and sum(map(len, topics.values())) >= MOST_PARTITIONS:
            _forget_answered(topics)
            if sum(map(len, topics.values())) >= MOST_PARTITIONS:
                return
        if found is None or found.leader != leader:
            found = topics.setdefault(topic, {})[index] = _Refused(leader)
        found.again = True

    def to_free(self, connection_id: int, topic: TopicImage) -> frozenset[int]:
        """The partitions that the connection has to be told without a leader. Called for each answer to Metadata that
        has the topic."""
        topics = self._connections.get(connection_id)
        if not topics:
            return frozenset()
        free: set[int] = set()
        for partitions in (topics.get(topic.name, {}), topics.get(topic.topic_id, {})):
            for index, found in list(partitions.items()):
                found.answers += found.again
                found.again = False
                if found.answers > ANSWERS_IN_VAIN:
                    del partitions[index]
                    free.add(index)
        return frozenset(free)

    def connection_closed(self, connection_id: int) -> None:
        self._connections.pop(connection_id, None)


def _forget_answered(topics: dict[str | TopicId, _Topic]) -> None:
    """Forgets the partitions in which the connection was not refused since it was told the leader."""
    for topic, partitions in list(topics.items()):
        topics[topic] = {index: found for index, found in partitions.items() if found.again}
        if not topics[topic]:
            del topics[topic]
