"""Raising all topics to more replicas: the cluster's own topics first, since groups and transactions depend on them."""

import time
from collections.abc import Callable, Sequence

from cordwood.administration.asking import first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.gathering import Gathered, reassignments
from cordwood.administration.cluster.mover import LATEST_S
from cordwood.administration.connection import Connection
from cordwood.cluster.planner.balance import NoPlace, Placed, plan_factor
from cordwood.model.failure import Failure
from cordwood.model.identifiers import INTERNAL_TOPICS
from cordwood.model.quantities import count_in_words


def wait_for_own_topics(connection: Connection, say: Callable[[str], None]) -> None:
    """Waits while the cluster's own topics get more replicas: the controller adds these by itself. Raises Failure."""
    said = ""
    timeout_s = connection.timeout_s
    while True:
        _, moves = first_answer(brokers(connection), lambda asked: reassignments(asked, timeout_s))
        growing = sum(topic in INTERNAL_TOPICS for topic, *_ in moves)
        if not growing:
            return
        text = f"waiting for {count_in_words(growing, 'partition')} of the cluster's own topics to get more replicas"
        if text != said:
            say(text)
            said = text
        time.sleep(LATEST_S)


def targets_of_all(gathered: Gathered, factor: int) -> list[tuple[str, int, tuple[int, ...]]]:
    """The replicas of all partitions that have fewer than this number, the cluster's own topics first. Raises
    Failure."""
    chosen = [each for each in gathered.partitions if len(each.replicas) < factor]
    chosen.sort(key=lambda each: (each.topic not in INTERNAL_TOPICS, each.topic, each.partition))
    return targets_with_factor(gathered, chosen, factor)


def targets_with_factor(
    gathered: Gathered, chosen: Sequence[Placed], factor: int
) -> list[tuple[str, int, tuple[int, ...]]]:
    """The replicas of the chosen partitions with this number of replicas, placed evenly. Raises Failure."""
    try:
        planned = plan_factor(gathered.partitions, gathered.racks, chosen, factor, gathered.cordoned)
    except NoPlace as refusal:
        raise Failure("INVALID_REPLICATION_FACTOR", str(refusal)) from None
    return [(each.topic, each.partition, each.replicas) for each in planned]
