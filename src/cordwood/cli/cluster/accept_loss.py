"""`cordwood cluster accept-loss`: a partition without complete replicas begins anew with the remaining records."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TopicName,
)
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.cluster.losses import Loss


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
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
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
    from cordwood.administration.cluster.losses import accept, check, lone_replicas, losses_of
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.quantities import count_in_words

    if broker is not None and on is not None:
        raise Failure(
            "USAGE",
            "--broker names a replica that shall lead, --on a node on which the partition begins anew, empty",
            "give one of --broker and --on",
            ExitCode.USAGE,
        )
    connection = connect(bootstrap_servers, timeout_s, client_config)
    address, losses = losses_of(connection, topic, partitions, broker, on)
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
    outcomes = accept(address, losses, timeout_s, begin_anew=on is not None)
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


def _show(loss: "Loss") -> None:
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


def _as_json(loss: "Loss", errors: Mapping[int, Any]) -> dict[str, Any]:
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
