"""`cordwood cluster forget`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
)
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.cluster.gathering import Gathered


def forget(
    node_id: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node that never comes back.")],
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Forget a node that never comes back. Loses nothing.

    For a node that is away the cluster keeps a note of each topic that was deleted meanwhile. The command refuses a
    node that runs, or that is a replica of a partition.
    """
    from cordwood.administration.asking import ask, code_name, first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.administration.cluster.gathering import gather
    from cordwood.administration.connection import Connection
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.errors import ErrorCode
    from cordwood.wire.apis import ApiKey

    connection = Connection(bootstrap_servers, timeout_s)
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
    _, answer = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node_id}, timeout_s)
    )
    if answer.error_code:
        raise Failure(
            code_name(answer.error_code),
            answer.error_message or f"node {node_id} is not forgotten",
            next_step(node_id, gather(connection)),
            ExitCode.NOT_FOUND if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED else ExitCode.FAILED,
        )
    if as_json:
        print_json({"forgotten": node_id})
    else:
        say(f"Node {node_id} is forgotten.")


def refusal(node_id: int, gathered: "Gathered") -> str:
    """The reason why a known node cannot be forgotten, as the next step; empty: it can."""
    from cordwood.administration.cluster.gathering import ABSENT

    moving = any(node_id in move.replicas for move in gathered.reassignments)
    has_replicas = moving or any(node_id in each.replicas for each in gathered.partitions)
    gone = gathered.states[node_id] == ABSENT and not has_replicas
    return "" if gone else next_step(node_id, gathered)


def next_step(node_id: int, gathered: "Gathered") -> str:
    """The step that is needed before the node can be forgotten."""
    from cordwood.administration.cluster.gathering import ABSENT

    states = gathered.states
    if node_id not in states:
        return f"the nodes are {', '.join(map(str, states))}"
    moving = any(node_id in move.replicas for move in gathered.reassignments)
    if not moving and not any(node_id in each.replicas for each in gathered.partitions):
        return f"stop node {node_id} first: it has no replicas"
    drain = f"`cordwood cluster drain {node_id}` moves its replicas to other nodes"
    if states[node_id] != ABSENT:
        return f"{drain}; then stop it, and forget it"
    if stuck := [each for each in gathered.stuck.values() if node_id in each.replicas]:
        first = stuck[0]
        return (
            f"{drain}, but those whose records no node has that runs: give these up with `cordwood cluster accept-loss "
            f"{first.topic} {first.partition}`, with `--on NODE` where no replica is left"
        )
    return drain
