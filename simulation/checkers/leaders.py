"""Checks that a broker serves only partitions that it leads.

Every topic of a game has one replica of each partition, so the leader of a partition of a topic's id never changes: a
broker with old metadata may not know a topic, but its knowledge of a known topic is right.
"""

from collections.abc import Iterator

from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import ApiKey
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.machine import Machine


class LeadersChecker:
    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicId, int], int] = {}
        """The first broker that served a partition: from then on no other may."""

    def check(self, machine: Machine, exchange: Exchange) -> None:
        """Checks an answer at the moment when the broker gives it."""
        image = machine.node.image
        for topic_id, index in _served(machine, exchange):
            topic = image.topics_by_id.get(topic_id)
            if topic is None or index >= len(topic.partitions):
                continue  # deleted while the request waited
            leader = image.leadership(topic.partitions[index]).leader
            first = self._leaders.setdefault((topic_id, index), machine.broker_id)
            if leader != machine.broker_id or first != machine.broker_id:
                raise InvariantBroken(
                    f"{exchange}: {machine} serves {topic.name}-{index}, which its image gives to broker {leader}; "
                    f"broker {first} has served it before"
                )


def _served(machine: Machine, exchange: Exchange) -> Iterator[tuple[TopicId, int]]:
    """Topic ids and numbers of the partitions that an answer does not refuse."""
    image, answer = machine.node.image, exchange.answer
    if exchange.key is ApiKey.PRODUCE:
        for topic in answer.responses:
            topic_id = topic.topic_id if exchange.version >= 13 else image.topic_id(topic.name)
            yield from ((topic_id, each.index) for each in topic.partition_responses if not each.error_code)
    elif exchange.key is ApiKey.FETCH:
        for topic in answer.responses:
            topic_id = topic.topic_id if exchange.version >= 13 else image.topic_id(topic.topic)
            yield from ((topic_id, each.partition_index) for each in topic.partitions if not each.error_code)
    elif exchange.key in (ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS):
        for topic in answer.topics:
            yield from (
                (image.topic_id(topic.name), each.partition_index) for each in topic.partitions if not each.error_code
            )
