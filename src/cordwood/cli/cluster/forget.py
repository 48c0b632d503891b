"""`cordwood cluster forget`."""

from typing import Annotated

import typer

from cordwood.cli.failure import Failure
from cordwood.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
)


def forget(
    node_id: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node that never comes back.")],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Forget a node that never comes back. Loses nothing.

    For a node that is away the cluster keeps a note of each topic that was deleted meanwhile. A node that runs, or that
    is a replica of a partition, is refused.
    """
    from cordwood.cli.cluster.view import first_answer
    from cordwood.cli.connection import Connection, code_name
    from cordwood.cli.output import print_json, say
    from cordwood.cli.raw_request import ask, brokers
    from cordwood.wire.apis import ApiKey

    connection = Connection(bootstrap_servers, timeout_s)
    _, answer = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node_id}, timeout_s)
    )
    if answer.error_code:
        raise Failure(
            code_name(answer.error_code),
            answer.error_message or f"node {node_id} is not forgotten",
            "`cordwood cluster status` lists the nodes that run",
        )
    if as_json:
        print_json({"forgotten": node_id})
    else:
        say(f"Node {node_id} is forgotten.")
