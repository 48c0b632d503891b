"""What tasks tell the planner of their query: who they work for, and which records they found missing.

Spark gives the two no way to talk: the planner knows the options, a task knows the query's name. Both know the broker,
so the notes lie there, as the metadata of positions in a group that only this run of the planner uses (`box`). They are
few: one at the beginning, and one for each loss that nobody saw coming. A note that gets lost costs a name or a count,
never a record, so writing one never fails a task.

The planner removes the box when it has read it, and when its query ends or fails. Notes of a query that was killed
expire (`KEPT_MS`). Until then they are no reader who lags: their position is the end of the records that the task was
given to read.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.query_names import query_name

_log = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""How long a note waits for its planner. It reads before every batch; a name that expired is told with the next one."""
_MAX_PIECES: Final = 50
"""Of losses in one note: brokers take 4096 bytes."""


@dataclass(frozen=True)
class Notes:
    """What lay in the box."""

    query_id: str | None = None
    query_name: str | None = None
    lost: Mapping[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self.query_id is None and not self.lost


def new_box(prefix: str) -> str:
    return f"{prefix}-notes-{uuid.uuid4()}"


def introduce(cluster: Cluster, box: str, partition: TopicPartition, end: int) -> None:
    """From a task that reads up to `end`: the id and the name of its query, if Spark tells them."""
    from pyspark import TaskContext  # here and not above: nothing else needs Spark

    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if context is None or query_id is None:
        return
    name = query_name(context.getLocalProperty("spark.job.description") or "", query_id)
    _write(cluster, box, partition, end, {"id": query_id, "name": name or ""})


def report_loss(cluster: Cluster, box: str, partition: TopicPartition, start: int, end: int) -> None:
    """From a task: offsets [start, end) are gone."""
    _write(cluster, box, partition, end, {"lost": [[start, end]]})


def collect(cluster: Cluster, box: str) -> Notes:
    """From the planner: what tasks have written since the last time. Raises ClientError."""
    found = cluster.committed_with_metadata(box)
    query_id = query_name = None
    lost = {}
    for partition, committed in found.items():
        note = _parse(committed.metadata)
        query_id = note.get("id") or query_id
        query_name = note.get("name") or query_name
        if note.get("lost"):
            lost[partition] = tuple((int(start), int(end)) for start, end in note["lost"])
    if found:
        cluster.delete_group(box)
    return Notes(query_id, query_name, lost)


def remove(cluster: Cluster, box: str) -> None:
    """From the planner whose query ends: nobody will read what lies in the box. It expires if this fails."""
    try:
        cluster.delete_group(box)
    except ClientError as failure:
        _log.info("group %s is left to expire: %s", box, failure)


def _write(cluster: Cluster, box: str, partition: TopicPartition, position: int, note: Mapping[str, Any]) -> None:
    try:
        there = cluster.committed_with_metadata(box, [partition]).get(partition)
        merged = {**(_parse(there.metadata) if there is not None else {})}
        lost = [*merged.get("lost", []), *note.get("lost", [])]
        merged |= note
        if lost:
            merged["lost"] = lost[-_MAX_PIECES:]
        known = 0 if there is None else there.offset
        cluster.commit(box, {partition: max(known, position)}, json.dumps(merged), retention_ms=KEPT_MS)
    except ClientError as failure:
        _log.warning("a note to the planner of this query was lost: %s", failure)


def _parse(text: str) -> dict[str, Any]:
    try:
        note = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    return note if isinstance(note, dict) else {}
