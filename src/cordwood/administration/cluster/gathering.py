"""The facts for a plan of moves: its brokers, its partitions with their sizes, and the moves under way."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.view import (
    NodeView,
    PartitionState,
    ReplicaLog,
    nodes_of,
    partitions_of,
    replica_logs,
)
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.cluster.planner.balance import Key, Placed, PlannedMove, planned_move
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import ApiKey

ABSENT = "absent"
"""The state of a broker that is not registered."""


class Reassignment(NamedTuple):
    """A move under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The replicas of the transition: the target, then those that leave."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at the end of the move."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True, slots=True)
class Gathered:
    address: Address
    nodes: tuple[NodeView, ...]
    partitions: tuple[Placed, ...]
    """A partition that moves has the replicas of its target."""
    reassignments: tuple[Reassignment, ...] = ()
    found: tuple[PartitionState, ...] = ()
    """The partitions with their leaders and in-sync sets."""

    @property
    def stuck(self) -> dict[Key, PartitionState]:
        """The partitions that cannot be moved: they have no leader, and no registered broker has their records."""
        registered = {node.node_id for node in self.nodes}
        return {
            (each.topic, each.partition): each
            for each in self.found
            if each.leader not in registered and registered.isdisjoint((*each.isr, *each.elr))
        }

    @property
    def movable(self) -> tuple[Placed, ...]:
        stuck = self.stuck
        return tuple(each for each in self.partitions if each.key not in stuck)

    @property
    def racks(self) -> dict[int, str | None]:
        """The brokers that can get replicas, and their racks: those that serve, and are not cordoned."""
        return {node.node_id: node.rack for node in self.nodes if node.state == "serves" and not node.cordoned}

    @property
    def cordoned(self) -> list[int]:
        """The brokers that serve, and could get replicas if they were not cordoned."""
        return [node.node_id for node in self.nodes if node.state == "serves" and node.cordoned]

    @property
    def states(self) -> dict[int, str]:
        """All brokers that run or have replicas, in their order, with their states."""
        present = {node.node_id: node.state + (", cordoned" if node.cordoned else "") for node in self.nodes}
        named = {broker for each in self.partitions for broker in each.replicas}
        named.update(broker for move in self.reassignments for broker in move.replicas)
        return {broker: present.get(broker, ABSENT) for broker in sorted(named | present.keys())}

    def check_known(self, ids: Iterable[int]) -> None:
        """Refuses brokers that neither run nor have replicas. Raises Failure."""
        states = self.states
        if unknown := sorted({broker for broker in ids if broker not in states}):
            names = ", ".join(map(str, unknown))
            raise Failure(
                "BROKER_ID_NOT_REGISTERED",
                f"there is no node {names}: none of that number runs or has replicas",
                f"the nodes are {', '.join(map(str, states))}",
                ExitCode.NOT_FOUND,
            )

    def check_targets(self, moves: Iterable[PlannedMove]) -> None:
        """Refuses moves to brokers that do not run: such a move could not begin. Raises Failure."""
        moves = list(moves)
        self.check_known(broker for move in moves for broker in move.after)
        states = self.states
        for broker, state in states.items():
            new = [move for move in moves if broker in move.after and broker not in move.before]
            if new and state == ABSENT:
                raise Failure(
                    "INVALID_REPLICA_ASSIGNMENT",
                    f"node {broker} does not run, and would get replicas of {names_of(move.key for move in new)}",
                    f"start node {broker}, or name others",
                )


def names_of(keys: Iterable[Key], shown: int = 3) -> str:
    """The first names as text: `orders-0, orders-1, orders-2 and 5 more`."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(keys)]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def gather(connection: Connection) -> Gathered:
    """The brokers and partitions, with the sizes that leaders report, and the moves under way. Raises Failure."""
    timeout_s = connection.timeout_s
    address, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, timeout_s))
    moves = reassignments(address, timeout_s)
    found = partitions_of(address, (), timeout_s)
    logs = replica_logs(nodes, ((each, (each.leader,)) for each in found), timeout_s)
    return Gathered(address, tuple(nodes), tuple(placed(found, logs, moves)), tuple(moves), tuple(found))


def placed(
    found: Iterable[PartitionState],
    logs: Mapping[tuple[int, str, int], ReplicaLog],
    moves: Iterable[Reassignment],
) -> list[Placed]:
    """The partitions for a plan. A moving partition counts with the replicas of its target: with those of the
    transition it would need more brokers than it has replicas."""
    targets = {move.key: move.target for move in moves}
    partitions = []
    for each in found:
        log = logs.get((each.leader, each.topic, each.partition))
        replicas = targets.get((each.topic, each.partition), each.replicas)
        partitions.append(Placed(each.topic, each.partition, replicas, 0 if log is None else log.size_bytes))
    return partitions


def reassignments(address: Address, timeout_s: float) -> list[Reassignment]:
    """The moves under way. Raises Failure."""
    answer = ask(
        address,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"timeout_ms": int(timeout_s * 1000), "topics": None},
        timeout_s,
    )
    if answer.error_code:
        raise Failure(code_name(answer.error_code), answer.error_message or "the broker does not list moves")
    return [
        Reassignment(
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


def moves_to(gathered: Gathered, targets: Iterable[tuple[str, int, Sequence[int]]]) -> list[PlannedMove]:
    """The moves that bring partitions to these replicas. Raises Failure."""
    found = {each.key: each for each in gathered.partitions}
    moves = []
    for topic, partition, replicas in targets:
        each = found.get((topic, partition))
        if each is None:
            raise Failure(
                "UNKNOWN_TOPIC_OR_PARTITION", f"there is no partition {topic}-{partition}", "", ExitCode.NOT_FOUND
            )
        if each.replicas != tuple(replicas):
            moves.append(planned_move(each, tuple(replicas)))
    return moves
