"""Partitions without complete replicas: what is left of them, and the acceptance of the loss."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.administration.asking import first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.electing import UNCLEAN, Elected, elect
from cordwood.administration.cluster.gathering import ABSENT
from cordwood.administration.cluster.view import (
    NodeView,
    PartitionState,
    ReplicaLog,
    nodes_of,
    partitions_of,
    replica_logs,
    why_no_leader,
)
from cordwood.administration.connection import Connection, no_such_partition
from cordwood.client.settings import Address
from cordwood.model.failure import Failure


class ReplicaLeft(NamedTuple):
    """A replica of a partition without a leader."""

    broker: int
    state: str
    """The state of its broker; `absent`: the broker is not registered."""
    complete: bool
    """True if the replica has every acknowledged record, by the metadata."""
    log: ReplicaLog | None
    """None: its broker does not say."""

    @property
    def has(self) -> str:
        if self.log is None or self.log.end_offset < 0:
            return "unknown"
        return f"offsets before {self.log.end_offset}" if self.log.end_offset else "nothing"


class Loss(NamedTuple):
    """A partition without a leader, and the replica that is to lead it."""

    partition: PartitionState
    why: str
    replicas: tuple[ReplicaLeft, ...]
    leader: int | None
    """None: no replica can lead."""


def lone_replicas(losses: Sequence[Loss]) -> list[str]:
    """The partitions that began anew with fewer replicas than before, each with the command that gives it more."""
    return [
        f"{partition.topic}-{partition.partition}: its only replica is on node {loss.leader}. `cordwood cluster "
        f"reassign {partition.topic} {partition.partition} --replication-factor {len(partition.replicas)}` adds "
        "the others"
        for loss in losses
        if loss.leader not in (partition := loss.partition).replicas and len(partition.replicas) > 1
    ]


def losses_of(
    connection: Connection, topic: str, partitions: Sequence[int], broker: int | None, on: int | None
) -> tuple[Address, list[Loss]]:
    """The remains of these partitions, and the broker that told of them. Raises Failure for an unknown partition."""
    address, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, connection.timeout_s))
    found = {each.partition: each for each in partitions_of(address, [topic], connection.timeout_s)}
    if not found:
        raise connection.unknown_topic(topic)
    for index in partitions:
        if index not in found:
            raise no_such_partition(topic, index, sorted(found))
    wanted = [found[index] for index in dict.fromkeys(partitions)]
    logs = replica_logs(nodes, ((each, each.replicas) for each in wanted), connection.timeout_s)
    return address, [loss_of(each, nodes, logs, broker, on) for each in wanted]


def accept(address: Address, losses: Sequence[Loss], timeout_s: float, *, begin_anew: bool) -> list[Elected]:
    """Elects the chosen leaders. `begin_anew`: each begins with an empty log. Raises Failure."""
    return [
        outcome
        for loss in losses
        if loss.leader is not None
        for outcome in elect(
            address,
            UNCLEAN,
            [(loss.partition.topic, loss.partition.partition)],
            timeout_s,
            loss.leader,
            begin_anew=begin_anew,
        )
    ]


def loss_of(
    partition: PartitionState,
    nodes: Sequence[NodeView],
    logs: Mapping[tuple[int, str, int], ReplicaLog],
    broker: int | None = None,
    on: int | None = None,
) -> Loss:
    """The remains of a partition, and its leader after the loss: the broker, or the live replica with the longest log
    among those that know the latest leader. `on`: a broker on which the partition is to begin anew."""
    states = {node.node_id: node.state for node in nodes}
    complete = {*partition.isr, *partition.elr}
    replicas = tuple(
        ReplicaLeft(
            node,
            states.get(node, ABSENT),
            node in complete,
            logs.get((node, partition.topic, partition.partition)),
        )
        for node in partition.replicas
    )
    live = [each for each in replicas if each.state == "serves" and broker in (None, each.broker)]
    best = max(live, key=_worth, default=None)
    if partition.leader >= 0 and broker is None:
        best = next((each for each in live if each.broker == partition.leader), None)
    why = why_no_leader(partition, nodes) if partition.leader < 0 else f"is led by broker {partition.leader}"
    if on is not None:
        return Loss(partition, why, replicas, on if states.get(on) == "serves" else None)
    return Loss(partition, why, replicas, None if best is None else best.broker)


def _worth(replica: ReplicaLeft) -> tuple[bool, int, int]:
    log = replica.log
    return (replica.complete, -1, -1) if log is None else (replica.complete, log.last_epoch, log.end_offset)


def check(loss: Loss, broker: int | None, on: int | None) -> None:
    """Raises Failure if there is nothing to accept, or no replica to lead."""
    partition = loss.partition
    name = f"{partition.topic}-{partition.partition}"
    if partition.leader >= 0 and (on is not None or set(partition.replicas) == set(partition.isr)):
        raise Failure("ELECTION_NOT_NEEDED", f"{name} {loss.why}: there is no loss to accept")
    running = [each.broker for each in loss.replicas if each.state != ABSENT]
    if on is not None and running:
        raise Failure(
            "INVALID_REQUEST",
            f"{name}: node {running[0]} runs and has a replica: the partition does not begin anew on node {on}",
            "leave out --on: the partition begins with what that replica has",
        )
    if on is not None and loss.leader is None:
        raise Failure("INVALID_REPLICA_ASSIGNMENT", f"{name}: node {on} does not serve", "name a node that serves")
    if loss.leader is None and not running and broker is None:
        raise Failure(
            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            f"{name}: none of its replicas is live",
            "start a broker that has a replica; if none ever comes back, `cordwood cluster accept-loss "
            f"{partition.topic} {partition.partition} --on NODE` lets the partition begin anew, empty, on a node that "
            "serves",
        )
    if loss.leader is None:
        who = f"no replica on broker {broker} is live" if broker is not None else "none of its replicas is live"
        raise Failure("ELIGIBLE_LEADERS_NOT_AVAILABLE", f"{name}: {who}", "start a broker that has a replica first")
