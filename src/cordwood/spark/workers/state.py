"""State that a Python worker process of Spark keeps from one task to the next, and the query that it works for.

The worker keeps one `Cluster` for each set of settings, used by the one task that it runs at a time. A driver commits
the batches of several queries in a thread each, and each thread has its own. The worker also freezes the garbage
collector's view: Spark's worker collects after every task, 40 ms when numba and Arrow are loaded; objects that live at
the end of the first read live as long as the process, so the collector need not see them.
"""

import gc
import os
import threading
from typing import Final

from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings


class _Connected(threading.local):
    """The clusters of a thread. Of two threads that waited on one connection, one would receive the other's answer, and
    the other would wait until its time is up."""

    def __init__(self) -> None:
        self.clusters: dict[tuple[int, ClientSettings], Cluster] = {}


_connected: Final = _Connected()
_frozen_in: Final[set[int]] = set()

_KEPT: Final = 4
"""Clusters that one worker is connected to. Most have one."""


def cluster_of(settings: ClientSettings) -> Cluster:
    """The connected cluster of this thread and process: a process that was forked does not share its parent's
    sockets."""
    clusters = _connected.clusters
    key = (os.getpid(), settings)
    found = clusters.pop(key, None)
    if found is None:
        found = Cluster(settings)
        for other in [other for other in clusters if other[0] == os.getpid()][: -_KEPT + 1]:
            clusters.pop(other).close()
    clusters[key] = found
    return found


def freeze_once() -> None:
    """Hides all present objects from the garbage collector. Call at the end of a read."""
    if os.getpid() not in _frozen_in:
        _frozen_in.add(os.getpid())
        gc.collect()
        gc.freeze()


def query_name(description: str, query_id: str) -> str | None:
    """The name in the description that Spark gives to the jobs of a stream; None if the query has none."""
    name, found, _ = description.partition(f"id = {query_id}")
    name = name.replace("<br/>", "\n").strip()
    return name if found and name else None


def query_name_of_task() -> str | None:
    """The name of the streaming query that this task works for, also in its foreachBatch; None outside of one."""
    from pyspark import TaskContext  # imported here, because names are looked up without Spark, too

    context = TaskContext.get()
    if context is None:
        return None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    description = context.getLocalProperty("spark.job.description")
    return None if query_id is None or description is None else query_name(description, query_id)
