"""Nodes that never come back: whether the cluster can forget one, the next step if not, and the request."""

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.gathering import ABSENT, Gathered, gather
from cordwood.administration.connection import Connection
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import ApiKey


def forget_node(connection: Connection, node_id: int) -> None:
    """Has the cluster forget a node. Raises Failure, with the next step, if the cluster refuses."""
    timeout_s = connection.timeout_s
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


def refusal(node_id: int, gathered: Gathered) -> str:
    """The reason why a known node cannot be forgotten, as the next step; empty: it can."""
    moving = any(node_id in move.replicas for move in gathered.reassignments)
    has_replicas = moving or any(node_id in each.replicas for each in gathered.partitions)
    gone = gathered.states[node_id] == ABSENT and not has_replicas
    return "" if gone else next_step(node_id, gathered)


def next_step(node_id: int, gathered: Gathered) -> str:
    """The step that is needed before the node can be forgotten."""
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
