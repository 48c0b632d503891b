"""Shows the progress of a query: as a group in the cluster, and from Spark's reports of its batches.

`ProgressGroup` commits finished positions to `spark-<query name>`. Lag and time to data loss of a query then show in
every Kafka tool and in `cordwood group watch`. Spark's checkpoint stays the only truth: the source reads only the
losses of earlier runs from this group. A commit that fails is logged and made good by a later one; it never stops or
slows the query for long.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.offsets import Positions, from_spark
from cordwood.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_log = logging.getLogger(__name__)

_PATIENCE_MS: Final = 5_000
"""How long a commit may hold up the next batch."""
_PAUSE_AFTER_FAILURE_S: Final = 10.0
_AGAIN_AFTER_S: Final = 3600.0
"""Positions of a group without members expire, so an idle query commits again from time to time."""


@dataclass(frozen=True)
class Standing:
    """A progress group's entry for one partition."""

    position: int
    lost: int = 0
    """The number of offsets that the query had to skip, over all its runs."""


def read_progress(cluster: Cluster, group: str) -> dict[TopicPartition, Standing]:
    """The positions and losses of the query that commits to this group."""
    found = {}
    for partition, committed in cluster.committed_with_metadata(group).items():
        if committed.offset >= 0:
            found[partition] = Standing(committed.offset, _lost(committed.metadata))
    return found


def progress(group: str, bootstrap_servers: str | Mapping[str, str]) -> dict[TopicPartition, Standing]:
    """A query's positions and losses: `progress("spark-orders", "localhost:9092")`. In place of the addresses stand the
    settings of a client on librdkafka where brokers ask for TLS or a log-in."""
    with Cluster(Bootstrap.of(bootstrap_servers).settings()) as cluster:
        return read_progress(cluster, group)


@dataclass
class ProgressGroup:
    """The planner's side: learns the group's name as soon as it can be known, and commits to it."""

    options: SourceOptions
    group: str | None = field(init=False)
    _cluster: Cluster = field(init=False)
    _committed: Positions = field(init=False, default_factory=dict)
    _committed_at_s: float = field(init=False, default=0.0)
    _not_before_s: float = field(init=False, default=0.0)
    _lost_before: dict[TopicPartition, int] | None = field(init=False, default=None)
    """Losses in earlier runs of the query; None: not yet read."""

    def __post_init__(self) -> None:
        self.group = self.options.progress_group
        impatient = replace(self.options.client, retry_timeout_ms=_PATIENCE_MS, request_timeout_ms=_PATIENCE_MS)
        self._cluster = Cluster(impatient)

    @property
    def needs_name(self) -> bool:
        return self.options.reports_progress and self.group is None

    def name_after(self, query_name: str | None, query_id: str) -> None:
        """Names the group of a query without the option after the query's name, or its id, which outlives restarts,
        too."""
        self.group = f"{self.options.group_prefix}-{query_name or query_id}"

    def commit(self, positions: Mapping[TopicPartition, int], lost: Mapping[TopicPartition, int]) -> None:
        """Commits positions of partitions that exist. Does nothing if the group has them already."""
        if not self.options.reports_progress or self.group is None or not positions:
            return
        now_s = time.monotonic()
        is_old = now_s - self._committed_at_s > _AGAIN_AFTER_S
        changed = {
            partition: position
            for partition, position in positions.items()
            if is_old or self._committed.get(partition) != position
        }
        if not changed or now_s < self._not_before_s:
            return
        try:
            self._commit(self.group, changed, lost)
        except ClientError as failure:
            self._not_before_s = now_s + _PAUSE_AFTER_FAILURE_S
            _log.warning("progress was not committed to group %s; the query goes on: %s", self.group, failure)
        else:
            self._committed |= changed
            self._committed_at_s = now_s

    def _commit(self, group: str, positions: Positions, lost: Mapping[TopicPartition, int]) -> None:
        if self._lost_before is None:
            found = read_progress(self._cluster, group)
            self._lost_before = {partition: standing.lost for partition, standing in found.items()}
        before = self._lost_before
        metadata = {partition: _metadata(before.get(partition, 0) + lost.get(partition, 0)) for partition in positions}
        self._cluster.commit(group, positions, metadata)

    def close(self) -> None:
        self._cluster.close()


def _metadata(lost: int) -> str:
    return json.dumps({"lost": lost}) if lost else ""


def _lost(metadata: str) -> int:
    """The losses in a commit's metadata; 0 for metadata of another writer."""
    try:
        said = json.loads(metadata) if metadata else {}
    except json.JSONDecodeError:
        return 0
    lost = said.get("lost", 0) if isinstance(said, dict) else 0
    return lost if isinstance(lost, int) else 0


def lag(progress: "StreamingQueryProgress") -> dict[TopicPartition, int]:
    """Offsets of each partition that were in the log and not read when the batch was planned. A partition that several
    sources of the query read counts once, with the source that is furthest behind."""
    behind: dict[TopicPartition, int] = {}
    for source in progress.sources:
        if not source.endOffset or not source.latestOffset:
            continue
        try:
            ends, latest = from_spark(json.loads(source.endOffset)), from_spark(json.loads(source.latestOffset))
        except (ValueError, AttributeError):
            continue  # another kind of source
        for partition, last in latest.items():
            left = max(0, last - ends.get(partition, 0))
            behind[partition] = max(left, behind.get(partition, 0))
    return behind
