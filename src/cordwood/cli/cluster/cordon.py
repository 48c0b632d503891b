"""`cordwood cluster cordon` and `uncordon`: keep brokers free of replicas of new partitions, or end that."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection

Nodes = Annotated[list[int], typer.Argument(metavar="NODE", min=0, help="One or more brokers.", show_default=False)]


def cordon(
    nodes: Nodes,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Keep brokers free of replicas of new partitions. Their present replicas stay, and go on serving.

    `cordwood cluster drain` does this by itself. A restart changes nothing; `uncordon` and `forget` end it. The
    broker's setting is `cordoned.log.dirs`, as in Kafka.
    """
    _change(
        nodes, connect(bootstrap_servers, timeout_s, client_config), cordoned=True, dry_run=dry_run, as_json=as_json
    )


def uncordon(
    nodes: Nodes,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Let brokers get replicas of new partitions again, after `cordon` or `drain`."""
    _change(
        nodes, connect(bootstrap_servers, timeout_s, client_config), cordoned=False, dry_run=dry_run, as_json=as_json
    )


def _change(nodes: list[int], connection: "Connection", *, cordoned: bool, dry_run: bool, as_json: bool) -> None:
    from cordwood.administration.cluster.gathering import gather
    from cordwood.administration.cluster.plans import set_cordons
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.failure import Failure

    try:
        set_cordons(connection, nodes, cordoned=cordoned, dry_run=dry_run)
    except Failure as failure:
        if failure.code == "BROKER_ID_NOT_REGISTERED":
            gather(connection).check_known(nodes)
        raise
    if as_json:
        print_json({"cordoned" if cordoned else "uncordoned": nodes, **as_dry(dry_run)})
        return
    for node in nodes:
        no = "no " if cordoned else ""
        say(f"Node {node} gets {no}replicas of new partitions.")
    if dry_run:
        remark(DRY_RUN)
