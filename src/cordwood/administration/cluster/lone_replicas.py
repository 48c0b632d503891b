"""Topics with one replica in a cluster of several brokers: the loss of one disk is the loss of their records.

Such topics were made before the cluster grew, by a release that gave new topics one replica, or on purpose. They are
named so that an operator can tell these cases apart, with the command that adds replicas.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cordwood.model.quantities import count_in_words

USUAL_REPLICAS = 3
NAMES_SHOWN = 5
"""The most topics that people are shown; scripts get all of them."""


class LoneTopics(NamedTuple):
    topics: tuple[str, ...]
    """The topics that have a partition with one replica, sorted."""
    brokers: int
    """The brokers that can have replicas."""
    replicas: int
    """The number of replicas that these topics could have: three, or as many as there are brokers."""

    @property
    def command(self) -> str:
        if len(self.topics) == 1:
            return f"cordwood cluster reassign {self.topics[0]} --replication-factor {self.replicas}"
        return f"cordwood cluster reassign --all --replication-factor {self.replicas}"

    def in_words(self) -> str:
        more = len(self.topics) - NAMES_SHOWN
        names = ", ".join(self.topics[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        have = "have" if len(self.topics) > 1 else "has"
        return (
            f"{count_in_words(len(self.topics), 'topic')} {have} one replica where {self.brokers} brokers could have "
            f"one: {names}. The loss of a disk is the loss of their only copy"
        )


def lone_topics(fewest_replicas: Mapping[str, int], brokers: int, most_replicas: int) -> LoneTopics | None:
    """The topics with one replica; None if there are none, or if more replicas would protect from nothing.

    `fewest_replicas` has the replicas of each topic's partition that has the fewest. `most_replicas` is
    `replication.factor.max`, which is 1 for workers of one machine: these share a disk.
    """
    replicas = min(USUAL_REPLICAS, brokers, most_replicas)
    topics = tuple(sorted(name for name, count in fewest_replicas.items() if count == 1))
    return LoneTopics(topics, brokers, replicas) if topics and replicas > 1 else None


def fewest_of_each(partitions: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The fewest replicas of any partition of each topic, from pairs of a topic and the replicas of a partition."""
    fewest: dict[str, int] = {}
    for topic, replicas in partitions:
        fewest[topic] = min(replicas, fewest.get(topic, replicas))
    return fewest
