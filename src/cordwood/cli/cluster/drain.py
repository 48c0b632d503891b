"""`cordwood cluster drain`: empties brokers before they leave the cluster."""

from typing import Annotated

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


def drain(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE", min=0, help="One or more brokers.", show_default=False)],
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
    """Move all replicas away from brokers, so that they can be switched off for good.

    Clients go on: a replica leaves its broker when all of its successors are in sync, and the leadership moves first.
    The brokers may already be gone. Ctrl-C begins no further move. The brokers are cordoned first: they get no replicas
    of new topics until `cordwood cluster uncordon`. Moves under way to the brokers get other targets; the command waits
    for moves away from them. The drain skips partitions whose only copies are on brokers that are away; the command
    names them, moves all others, and exits with 1.
    """
    from cordwood.administration.cluster.gathering import gather
    from cordwood.administration.cluster.plans import check_empty, cordoned_in_words, plan_of_drain
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.terminal.output import remark

    connection = connect(bootstrap_servers, timeout_s, client_config)
    gathered = gather(connection)
    plan = plan_of_drain(gathered, nodes)

    def prepare() -> None:
        for node in nodes:
            remark(cordoned_in_words(connection, node))

    carry_out(
        connection,
        gathered,
        plan.moves,
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
        joined=plan.leaving,
        left=plan.left,
        prepare=prepare,
        afterwards="`cordwood cluster rebalance` evens out the leaders of the nodes that are left.",
    )
    if not dry_run:
        check_empty(gather(connection), nodes)
