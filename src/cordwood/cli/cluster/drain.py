"""`cordwood cluster drain`: empties brokers before they leave the cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.cluster.move_options import AtOnce, Throttle, UndoFile
from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from cordwood.administration.cluster.gathering import Gathered


def drain(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE", min=0, help="One or more brokers.", show_default=False)],
    yes: Yes = False,
    dry_run: DryRun = False,
    at_once: AtOnce = 10,
    throttle: Throttle = None,
    undo_file: UndoFile = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
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
    from cordwood.administration.connection import Connection
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.cluster.cordon import set_cordons
    from cordwood.cli.terminal.output import remark
    from cordwood.cluster.planner.balance import NoPlace, plan_drain
    from cordwood.model.failure import Failure

    connection = Connection(bootstrap_servers, timeout_s)
    gathered = gather(connection)
    gathered.check_known(nodes)
    try:
        moves = plan_drain(gathered.movable, gathered.racks, nodes, gathered.cordoned)
    except NoPlace as refusal:
        raise Failure("INVALID_REPLICA_ASSIGNMENT", str(refusal)) from None
    stuck = gathered.stuck
    begun = {move.key for move in moves} | stuck.keys()
    leaving = [move for move in gathered.reassignments if set(nodes) & set(move.removing) and move.key not in begun]

    def prepare() -> None:
        for node in nodes:
            try:
                set_cordons(connection, [node], cordoned=True)
            except Failure as failure:
                # A broker of an older version does not know the setting.
                remark(
                    f"node {node} is not cordoned ({failure.message}): new topics may give it replicas, so stop it soon"
                )
            else:
                remark(f"new topics give node {node} no replicas now, until `cordwood cluster uncordon {node}`")

    carry_out(
        connection,
        gathered,
        moves,
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
        joined=leaving,
        left=[each for each in stuck.values() if set(nodes) & set(each.replicas)],
        prepare=prepare,
        afterwards="`cordwood cluster rebalance` evens out the leaders of the nodes that are left.",
    )
    if not dry_run:
        check_empty(gather(connection), nodes)


def check_empty(gathered: "Gathered", nodes: list[int]) -> None:
    """Raises Failure if topics that were created between the plan and the cordon put replicas on the nodes."""
    from cordwood.administration.cluster.gathering import names_of
    from cordwood.model.failure import Failure

    if came := [each.key for each in gathered.movable if set(nodes) & set(each.replicas)]:
        ids = " ".join(map(str, nodes))
        raise Failure(
            "NOT_DRAINED",
            f"node {ids} got replicas while the plan was looked at: {names_of(came)}",
            f"`cordwood cluster drain {ids}` again moves them away",
        )
