"""Partitions of all topics by their state: without replicas, without a leader, or led by a given broker."""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.administration.asking import first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.view import PartitionState, partitions_of
from cordwood.administration.connection import Connection


class Wanted(NamedTuple):
    """The requested states. A partition in any of them is meant."""

    under_replicated: bool = False
    without_leader: bool = False
    led_by: int | None = None

    @property
    def any(self) -> bool:
        return self.under_replicated or self.without_leader or self.led_by is not None

    def has(self, partition: PartitionState) -> bool:
        return (
            (self.under_replicated and bool(partition.missing))
            or (self.without_leader and partition.leader < 0)
            or (self.led_by is not None and partition.leader == self.led_by)
        )


def all_partitions(connection: Connection, topics: Sequence[str] = ()) -> list[PartitionState]:
    """The partitions of these topics, or of all. Raises Failure for a topic that does not exist."""
    _, found = first_answer(brokers(connection), lambda asked: partitions_of(asked, list(topics), connection.timeout_s))
    for topic in topics:
        if not any(each.topic == topic for each in found):
            raise connection.unknown_topic(topic)
    return sorted(found)
