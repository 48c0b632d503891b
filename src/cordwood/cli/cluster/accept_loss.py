"""`cordwood cluster accept-loss`: a partition without complete replicas begins anew with the remaining records."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
    TopicName,
)
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.cluster.view import NodeView, PartitionState, ReplicaLog


class ReplicaLeft(NamedTuple):
    """A replica of a partition without a leader."""

    broker: int
    state: str
    """The state of its broker; `absent`: the broker is not registered."""
    complete: bool
    """True if the replica has every acknowledged record, by the metadata."""
    log: "ReplicaLog | None"
    """None: its broker does not say."""

    @property
    def has(self) -> str:
        if self.log is None or self.log.end_offset < 0:
            return "unknown"
        return f"offsets before {self.log.end_offset}" if self.log.end_offset else "nothing"


class Loss(NamedTuple):
    """A partition without a leader, and the replica that is to lead it."""

    partition: "PartitionState"
    why: str
    replicas: tuple[ReplicaLeft, ...]
    leader: int | None
    """None: no replica can lead."""


def accept_loss(
    topic: TopicName,
    partitions: Annotated[
        list[int], typer.Argument(metavar="PARTITION", min=0, help="One or more partitions.", show_default=False)
    ],
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            min=0,
            metavar="ID",
            help="The replica that shall lead. Default: the live replica that has most.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        int | None,
        typer.Option(
            "--on",
            min=0,
            metavar="NODE",
            help="Begin anew, empty, on this node: for partitions of which no replica is left on a node that runs.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Let a partition without a leader begin anew with a replica that lacks acknowledged records. There is no way back.

    For partitions whose complete replicas lost their storage, or will never come back. Records that the new leader
    lacks are gone: other replicas drop them as well when they follow it. A broker that still has them should be started
    instead. First shows the state of each replica. A partition with a leader is taken if a replica reports that it
    keeps committed records that the leader lacks: the leader goes on, and that replica sets its log aside; with
    `--broker` that replica leads instead. With `--on` all records of the partition are lost; a node that comes back
    after all sets its log aside, and `cordwood recover list` shows it.
    """
    from cordwood.administration.asking import first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.administration.cluster.electing import UNCLEAN, elect
    from cordwood.administration.cluster.view import nodes_of, partitions_of, replica_logs
    from cordwood.administration.connection import Connection
    from cordwood.administration.topic.reading import no_such_partition
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.quantities import count_in_words

    if broker is not None and on is not None:
        raise Failure(
            "USAGE",
            "--broker names a replica that shall lead, --on a node on which the partition begins anew, empty",
            "give one of --broker and --on",
            ExitCode.USAGE,
        )
    connection = Connection(bootstrap_servers, timeout_s)
    address, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, timeout_s))
    found = {each.partition: each for each in partitions_of(address, [topic], timeout_s)}
    if not found:
        raise connection.unknown_topic(topic)
    for index in partitions:
        if index not in found:
            raise no_such_partition(topic, index, sorted(found))
    wanted = [found[index] for index in dict.fromkeys(partitions)]
    logs = replica_logs(nodes, ((each, each.replicas) for each in wanted), timeout_s)
    losses = [loss_of(each, nodes, logs, broker, on) for each in wanted]
    if not as_json:
        for loss in losses:
            _show(loss)
    for loss in losses:
        check(loss, broker, on)
    if dry_run:
        if as_json:
            print_json({"topic": topic, "dry_run": True, "partitions": [_as_json(loss, {}) for loss in losses]})
        else:
            remark(DRY_RUN)
        return
    named = count_in_words(len(losses), "partition")
    question = f"{topic}: all records of {named} that the new leader lacks are lost for ever. Accept?"
    confirm("accepting a loss", question, yes=yes)
    outcomes = [
        outcome
        for loss in losses
        if loss.leader is not None
        for outcome in elect(
            address,
            UNCLEAN,
            [(topic, loss.partition.partition)],
            timeout_s,
            loss.leader,
            begin_anew=on is not None,
        )
    ]
    failed = [each for each in outcomes if each.error]
    if as_json:
        errors = {each.partition: each for each in failed}
        print_json({"topic": topic, "partitions": [_as_json(loss, errors) for loss in losses]})
    else:
        for each in outcomes:
            say(f"{topic}-{each.partition}: {'not done: ' + each.message if each.error else 'has a leader again'}")
        done = [loss for loss in losses if loss.partition.partition not in {each.partition for each in failed}]
        for sentence in lone_replicas(done):
            say(sentence)
    if failed:
        raise Failure(failed[0].error, f"{topic}-{failed[0].partition}: {failed[0].message}")


def lone_replicas(losses: Sequence[Loss]) -> list[str]:
    """The partitions that began anew with fewer replicas than before, each with the command that gives it more."""
    return [
        f"{partition.topic}-{partition.partition}: its only replica is on node {loss.leader}. `cordwood cluster "
        f"reassign {partition.topic} {partition.partition} --replication-factor {len(partition.replicas)}` adds "
        "the others"
        for loss in losses
        if loss.leader not in (partition := loss.partition).replicas and len(partition.replicas) > 1
    ]


def loss_of(
    partition: "PartitionState",
    nodes: Sequence["NodeView"],
    logs: Mapping[tuple[int, str, int], "ReplicaLog"],
    broker: int | None = None,
    on: int | None = None,
) -> Loss:
    """The remains of a partition, and its leader after the loss: the broker, or the live replica with the longest log
    among those that know the latest leader. `on`: a broker on which the partition is to begin anew."""
    from cordwood.administration.cluster.gathering import ABSENT
    from cordwood.administration.cluster.view import why_no_leader

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


def _show(loss: Loss) -> None:
    from cordwood.cli.terminal.output import print_table, say
    from cordwood.model.quantities import size_in_words

    partition = loss.partition
    say(f"{partition.topic}-{partition.partition}: {loss.why}")
    print_table(
        ["replica", "its broker", "was in sync", "has", "size", "shall lead"],
        [
            (
                each.broker,
                each.state,
                "yes" if each.broker in partition.isr else "eligible" if each.complete else "no",
                each.has,
                None if each.log is None else size_in_words(each.log.size_bytes),
                "yes" if each.broker == loss.leader else "",
            )
            for each in loss.replicas
        ],
    )
    if loss.leader is not None and loss.leader not in partition.replicas:
        say(f"It shall begin anew, empty, on node {loss.leader}: all of its records are given up.")


def check(loss: Loss, broker: int | None, on: int | None) -> None:
    """Raises Failure if there is nothing to accept, or no replica to lead."""
    from cordwood.administration.cluster.gathering import ABSENT

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


def _as_json(loss: Loss, errors: Mapping[int, Any]) -> dict[str, Any]:
    error = errors.get(loss.partition.partition)
    return {
        "partition": loss.partition.partition,
        "leader": loss.leader if error is None else None,
        "error": None if error is None else {"code": error.error, "message": error.message},
        "isr": list(loss.partition.isr),
        "elr": list(loss.partition.elr),
        "replicas": [
            {
                "broker": each.broker,
                "state": each.state,
                "complete": each.complete,
                "size_bytes": None if each.log is None else each.log.size_bytes,
                "last_epoch": None if each.log is None else each.log.last_epoch,
                "end_offset": None if each.log is None else each.log.end_offset,
            }
            for each in loss.replicas
        ],
    }
