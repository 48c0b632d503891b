"""`cordwood cluster reassign`: moves single partitions, carries out plans, shows and cancels moves under way."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    AtOnce,
    Throttle,
    TimeoutSeconds,
    UndoFile,
)
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.cluster.gathering import Gathered
    from cordwood.administration.connection import Connection


def reassign(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="A topic, all of it or one partition.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", min=0, help="Default: all partitions.", show_default=False)
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas", metavar="1,2,3", help="The brokers, the preferred leader first.", show_default=False
        ),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            metavar="N",
            help="More or fewer replicas, placed evenly.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A plan, as kafka-reassign-partitions has it.", show_default=False),
    ] = None,
    every_topic: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With --replication-factor: all topics with fewer replicas, the cluster's own ones first.",
        ),
    ] = False,
    list_moves: Annotated[bool, typer.Option("--list", help="Show the moves that are under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the moves that are under way.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    at_once: AtOnce = 10,
    throttle: Throttle = None,
    undo_file: UndoFile = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Move partitions to other brokers, or give a topic more or fewer replicas.

    New replicas catch up first, then the leader moves, then the old replicas go: clients go on. `--list` shows the
    moves under way, also those of other tools; `--cancel` goes back to the former replicas. With
    `--all --replication-factor 3` every topic with fewer replicas gets three; no topic loses any.
    """
    from cordwood.administration.cluster.gathering import gather, moves_to
    from cordwood.administration.cluster.moving import read_plan
    from cordwood.administration.cluster.plans import targets_of_all, wait_for_own_topics
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.terminal.output import remark

    connection = connect(bootstrap_servers, timeout_s, client_config)
    if sum((list_moves, cancel, file is not None, replicas is not None, factor is not None)) != 1:
        raise Failure(
            "USAGE",
            "give one of --replicas, --replication-factor, --file, --list and --cancel",
            "`cordwood cluster reassign orders --replication-factor 3`",
            ExitCode.USAGE,
        )
    if list_moves or cancel:
        _under_way(connection, cancel=cancel, as_json=as_json)
        return
    if every_topic:
        if factor is None or topic is not None:
            raise Failure("USAGE", "--all needs --replication-factor, and no topic", "", ExitCode.USAGE)
        if not dry_run:
            wait_for_own_topics(connection, remark)
    gathered = gather(connection)
    if file is not None:
        targets = read_plan(file)
    elif every_topic and factor is not None:
        targets = targets_of_all(gathered, factor)
    else:
        if topic is None:
            raise Failure("USAGE", "which topic?", "name it before the options, or give --all", ExitCode.USAGE)
        targets = _targets(connection, gathered, topic, partition, replicas, factor)
    stuck = gathered.stuck
    moves = moves_to(gathered, targets)
    carry_out(
        connection,
        gathered,
        [move for move in moves if move.key not in stuck],
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
        left=[stuck[move.key] for move in moves if move.key in stuck],
    )


def _targets(
    connection: "Connection",
    gathered: "Gathered",
    topic: str,
    partition: int | None,
    replicas: str | None,
    factor: int | None,
) -> list[tuple[str, int, tuple[int, ...]]]:
    from cordwood.administration.cluster.plans import targets_with_factor

    chosen = [each for each in gathered.partitions if each.topic == topic and partition in (None, each.partition)]
    if not chosen:
        raise connection.unknown_topic(topic)
    if replicas is not None:
        try:
            wanted = tuple(int(broker) for broker in replicas.split(","))
        except ValueError:
            raise Failure("USAGE", f"--replicas {replicas} is no list of brokers", "as 1,2,3", ExitCode.USAGE) from None
        return [(each.topic, each.partition, wanted) for each in chosen]
    assert factor is not None
    return targets_with_factor(gathered, chosen, factor)


def _under_way(connection: "Connection", *, cancel: bool, as_json: bool) -> None:
    from cordwood.administration.asking import first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.administration.cluster.gathering import reassignments
    from cordwood.administration.cluster.mover import begin, refusals_in_words
    from cordwood.cli.terminal.output import print_json, print_table, say
    from cordwood.model.quantities import count_in_words

    timeout_s = connection.timeout_s
    address, moves = first_answer(brokers(connection), lambda asked: reassignments(asked, timeout_s))
    refused = []
    if cancel and moves:
        refused = begin(address, [(topic, index, None) for topic, index, *_ in moves], timeout_s)
        kept = {each.key for each in refused}
        moves = [move for move in moves if move.key not in kept]
    if as_json:
        print_json(
            {
                "cancelled" if cancel else "moving": [
                    {
                        "topic": topic,
                        "partition": index,
                        "replicas": list(replicas),
                        "adding": list(adding),
                        "removing": list(removing),
                    }
                    for topic, index, replicas, adding, removing in moves
                ]
            }
        )
    elif not moves and not refused:
        say("No partition moves.")
    elif cancel:
        say(f"{count_in_words(len(moves), 'move')} cancelled.")
    else:
        print_table(
            ["topic", "partition", "replicas", "being added", "going"],
            [(move[0], move[1], *(",".join(map(str, ids)) for ids in move[2:])) for move in moves],
        )
    if refused:
        raise refusals_in_words(refused)
