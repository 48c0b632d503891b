"""A rolling restart: one broker after the other ends and comes back, each when all partitions are in sync again."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.cluster.local_cluster import LocalCluster
from tests.deadline import eventually

from cordwood.administration.cluster.view import cluster_view
from cordwood.administration.connection import Connection
from cordwood.model.failure import Failure

ASK_EVERY_S = 0.2
READY = "cordwood ready on"


class Step(NamedTuple):
    """The times of one broker's restart, in seconds."""

    node_id: int
    to_the_end_s: float
    """From the signal to the end of the process."""
    to_in_sync_s: float
    """From the signal until every partition had all its replicas in sync again."""


def in_sync(cluster: LocalCluster) -> bool:
    """Whether `cordwood cluster status --exit-code` would end with 0."""
    time.sleep(ASK_EVERY_S)
    try:
        return not cluster_view(Connection(cluster.bootstrap, timeout_s=30)).troubles
    except Failure:
        # The broker that was asked has just ended.
        return False


def wait_ready(cluster: LocalCluster, node_id: int, said: int) -> None:
    """Waits until the broker says that it is ready, behind the first `said` characters of its log."""
    ready = f"broker {node_id} is ready"
    eventually(lambda: READY in cluster.log_of(node_id)[said:], what=ready)


def rolling_restart(
    cluster: LocalCluster,
    nodes: Sequence[int] | None = None,
    *,
    kill: bool = False,
    restart: Callable[[int], None] | None = None,
) -> list[Step]:
    """Ends each of `nodes`, or of all brokers, by SIGTERM or kill -9; starts it again by `restart`, or as it was."""
    eventually(lambda: in_sync(cluster), what="all replicas in sync")
    steps = []
    for node_id in nodes or sorted(cluster.pids):
        began_s = time.monotonic()
        if kill:
            cluster.kill(node_id)
        else:
            cluster.terminate(node_id)
        ended_s = time.monotonic()
        said = len(cluster.log_of(node_id))
        (restart or cluster.restart)(node_id)
        if kill:
            # Nobody may have noticed yet that the broker was killed: its replicas count as in sync until it is back.
            wait_ready(cluster, node_id, said)
        eventually(lambda: in_sync(cluster), what="all replicas in sync")
        steps.append(Step(node_id, ended_s - began_s, time.monotonic() - began_s))
    return steps
