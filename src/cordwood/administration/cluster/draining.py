"""Brokers that are emptied before they leave, and cordons, which keep replicas of new partitions away."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from cordwood.administration.cluster.gathering import Gathered, Reassignment, names_of
from cordwood.administration.cluster.view import PartitionState
from cordwood.administration.config.changes import change_broker
from cordwood.administration.connection import Connection
from cordwood.cluster.planner.balance import NoPlace, PlannedMove, plan_drain
from cordwood.model.failure import Failure
from cordwood.model.replication_settings import ALL_DIRECTORIES, CORDONED


class DrainPlan(NamedTuple):
    moves: list[PlannedMove]
    leaving: list[Reassignment]
    """Moves under way that take replicas from the brokers."""
    left: list[PartitionState]
    """Partitions that cannot be moved, since only nodes that are away have their records."""


def plan_of(gathered: Gathered, nodes: Collection[int]) -> DrainPlan:
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
