"""`cordwood cluster forget`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.model.failure import Failure


def forget(
    node_id: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node that never comes back.")],
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Forget a node that never comes back. Loses nothing.

    For a node that is away the cluster keeps a note of each topic that was deleted meanwhile. The command refuses a
    node that runs, or that is a replica of a partition.
    """
    from cordwood.administration.cluster.forgetting import forget_node, refusal
    from cordwood.administration.cluster.gathering import gather
    from cordwood.cli.terminal.output import print_json, remark, say

    connection = connect(bootstrap_servers, timeout_s, client_config)
    if dry_run:
        gathered = gather(connection)
        gathered.check_known([node_id])
        if why_not := refusal(node_id, gathered):
            raise Failure("NOT_FORGOTTEN", f"node {node_id} would be refused", why_not)
        if as_json:
            print_json({"would_forget": node_id})
        else:
            say(f"Node {node_id} would be forgotten.")
            remark(DRY_RUN)
        return
    forget_node(connection, node_id)
    if as_json:
        print_json({"forgotten": node_id})
    else:
        say(f"Node {node_id} is forgotten.")
