"""Notes from tasks to the planner of their query: the query that they work for, and the records that they found
missing.

Spark gives planner and tasks no way to talk: the planner knows the options, a task knows the query's name. Both know
the broker, so the notes lie there, as texts in a group that only this run of the planner uses (`box`). Notes are few:
one at the beginning, and one for each loss that the planner did not foresee. A lost note costs a name or a count, never
a record, so writing one never fails a task.

A note is committed without a position, so no tool takes the box for a reader who lags or loses records. The planner
removes the box when it has read it, and when its query ends or fails. The box of a killed planner is removed by the
next run of its query (`remove_earlier`), or else expires (`KEPT_MS`).
"""

import json
import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cordwood.client.cluster import NO_POSITION, Cluster, Committed
from cordwood.client.errors import ClientError
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.workers.state import query_name

_log = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""How long a note waits for its planner, which reads before every batch; a name that expired comes with the next
batch."""
_MAX_PIECES: Final = 50
"""The most losses in one note: brokers take 4096 bytes."""


@dataclass(frozen=True)
class Run:
    """A run of a streaming query, as Spark tells it to tasks."""

    query_id: str
    """The query's id, which outlives restarts: it is in the checkpoint."""
    run_id: str | None = None
    """The id of this start of the query, the same for all sources of the query."""
    query_name: str | None = None


@dataclass(frozen=True)
class Notes:
    """The notes of one box."""

    run: Run | None = None
    lost: Mapping[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)


def new_box(prefix: str) -> str:
    return f"{_beginning(prefix)}{uuid.uuid4()}"


def _beginning(prefix: str) -> str:
    return f"{prefix}-notes-"


# Written by tasks


def run_of_task() -> Run | None:
    """The run that this task works for, also in its foreachBatch; None outside of a streaming query."""
    from pyspark import TaskContext  # imported here, because nothing else needs Spark

    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if context is None or query_id is None:
        return None
    description = context.getLocalProperty("spark.job.description") or ""
    found = re.search(r"runId = ([0-9a-f-]+)", description)
    return Run(query_id, None if found is None else found[1], query_name(description, query_id))


def introduce(cluster: Cluster, box: str, partition: TopicPartition, run: Run | None) -> None:
    """Tells the planner the query and the run of its tasks."""
    if run is not None:
        _write(cluster, box, partition, run)


def report_loss(
    cluster: Cluster, box: str, partition: TopicPartition, start: int, end: int, run: Run | None = None
) -> None:
    """Tells the planner that offsets [start, end) are gone."""
    _write(cluster, box, partition, run, (start, end))


def _write(
    cluster: Cluster, box: str, partition: TopicPartition, run: Run | None, lost: tuple[int, int] | None = None
) -> None:
    try:
        there = cluster.committed_with_metadata(box, [partition]).get(partition)
        note = _parse(there)
        if run is not None:
            note |= {"id": run.query_id, "run": run.run_id, "name": run.query_name}
        if lost is not None:
            note["lost"] = [*note.get("lost", []), lost][-_MAX_PIECES:]
        cluster.commit(box, {partition: NO_POSITION}, json.dumps(note), retention_ms=KEPT_MS)
    except ClientError as failure:
        _log.warning("a note to the planner of this query was lost: %s", failure)


# Read by the planner


def collect(cluster: Cluster, box: str) -> Notes:
    """The notes that tasks have written since the last call. Raises ClientError."""
    found = _look(cluster, box)
    lost = {
        partition: tuple((int(start), int(end)) for start, end in note["lost"])
        for partition, note in found.items()
        if note.get("lost")
    }
    if found:
        cluster.delete_group(box)
    return Notes(_run_in(found), lost)


def remove(cluster: Cluster, box: str) -> None:
    """Removes the box when a query ends, since no planner will read it. If this fails, the box expires."""
    try:
        cluster.delete_group(box)
    except ClientError as failure:
        _log.info("group %s is left to expire: %s", box, failure)


def remove_earlier(cluster: Cluster, prefix: str, now: Run) -> None:
    """Removes the boxes of earlier runs of this query, whose planners were killed. Raises ClientError.

    A box of the same run belongs to another source of the query, and stays."""
    if now.run_id is None:
        return
    for group in cluster.groups():
        if group.startswith(_beginning(prefix)):
            run = _run_in(_look(cluster, group))
            if run is not None and run.query_id == now.query_id and run.run_id not in (None, now.run_id):
                cluster.delete_group(group)
                _log.info("group %s of an earlier run of this query was removed", group)


def _look(cluster: Cluster, box: str) -> dict[TopicPartition, dict[str, Any]]:
    return {partition: _parse(committed) for partition, committed in cluster.committed_with_metadata(box).items()}


def _run_in(found: Mapping[TopicPartition, Mapping[str, Any]]) -> Run | None:
    for note in found.values():
        if note.get("id"):
            return Run(note["id"], note.get("run"), note.get("name"))
    return None


def _parse(committed: Committed | None) -> dict[str, Any]:
    try:
        note = json.loads(committed.metadata) if committed is not None and committed.metadata else {}
    except json.JSONDecodeError:
        return {}
    return note if isinstance(note, dict) else {}
