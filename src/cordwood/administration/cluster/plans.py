"""Plans that empty brokers, even brokers out or add replicas; and cordons, which keep new replicas away."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from cordwood.administration.asking import first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.gathering import ABSENT, Gathered, Reassignment, gather, names_of, reassignments
from cordwood.administration.cluster.mover import LATEST_S
from cordwood.administration.cluster.view import PartitionState
from cordwood.administration.config.changes import change_broker
from cordwood.administration.connection import Connection
from cordwood.cluster.planner.balance import NoPlace, Placed, PlannedMove, plan_drain, plan_factor
from cordwood.cluster.planner.rebalancing.plan import plan_rebalance
from cordwood.model.failure import Failure
from cordwood.model.identifiers import INTERNAL_TOPICS
from cordwood.model.quantities import count_in_words
from cordwood.model.settings.replication_settings import ALL_DIRECTORIES, CORDONED


class DrainPlan(NamedTuple):
    moves: list[PlannedMove]
    leaving: list[Reassignment]
    """Moves under way that take replicas from the brokers."""
    left: list[PartitionState]
    """Partitions that cannot be moved, since only nodes that are away have their records."""


def plan_of_drain(gathered: Gathered, nodes: Collection[int]) -> DrainPlan:
    """The moves that empty these brokers. Raises Failure."""
    gathered.check_known(nodes)
    try:
        moves = list(plan_drain(gathered.movable, gathered.racks, nodes, gathered.cordoned))
    except NoPlace as refusal:
        raise Failure("INVALID_REPLICA_ASSIGNMENT", str(refusal)) from None
    stuck = gathered.stuck
    begun = {move.key for move in moves} | stuck.keys()
    leaving = [move for move in gathered.reassignments if set(nodes) & set(move.removing) and move.key not in begun]
    return DrainPlan(moves, leaving, [each for each in stuck.values() if set(nodes) & set(each.replicas)])


def cordoned_in_words(connection: Connection, node: int) -> str:
    """Cordons a broker before its drain, and returns the outcome as a text."""
    try:
        set_cordons(connection, [node], cordoned=True)
    except Failure as failure:
        # A broker of an older version does not know the setting.
        return f"node {node} is not cordoned ({failure.message}): new topics may give it replicas, so stop it soon"
    return f"new topics give node {node} no replicas now, until `cordwood cluster uncordon {node}`"


def check_empty(gathered: Gathered, nodes: Collection[int]) -> None:
    """Raises Failure if topics that were created between the plan and the cordon put replicas on the nodes."""
    if came := [each.key for each in gathered.movable if set(nodes) & set(each.replicas)]:
        ids = " ".join(map(str, nodes))
        raise Failure(
            "NOT_DRAINED",
            f"node {ids} got replicas while the plan was looked at: {names_of(came)}",
            f"`cordwood cluster drain {ids}` again moves them away",
        )


def set_cordons(connection: Connection, nodes: Iterable[int], *, cordoned: bool, dry_run: bool = False) -> None:
    """Cordons or uncordons brokers, also those that are away. Raises Failure."""
    for node in nodes:
        settings, defaults = ({CORDONED: ALL_DIRECTORIES}, ()) if cordoned else ({}, (CORDONED,))
        change_broker(connection, node, settings, defaults, validate_only=dry_run)


def with_traffic(connection: Connection, gathered: Gathered, sample_s: float) -> Gathered:
    """The partitions with the bytes a second by which their logs grow, watched for `sample_s`. Raises Failure."""
    time.sleep(sample_s)
    later = {each.key: each.size_bytes for each in gather(connection).partitions}
    grown = ((each, later.get(each.key, each.size_bytes) - each.size_bytes) for each in gathered.partitions)
    partitions = tuple(each._replace(traffic=max(0, more) / sample_s) for each, more in grown)
    return dataclasses.replace(gathered, partitions=partitions)


def absent_in_words(gathered: Gathered) -> list[str]:
    """A text about each node that does not run: the plan leaves its replicas there."""
    return [
        f"node {node} does not run, and keeps its replicas: `cordwood cluster drain {node}` moves them"
        for node, state in gathered.states.items()
        if state == ABSENT
    ]


def plan_of_rebalance(gathered: Gathered) -> list[PlannedMove]:
    return list(plan_rebalance(gathered.movable, gathered.racks))


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
