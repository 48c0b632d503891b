"""Reads the log in this process, without Java: starts, ends and ids of topics, and committed records of a small topic.

Starts and ends tell how far behind a pipeline is, and how much history is left. Records come from the source's own
reader.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import EARLIEST, LATEST, Cluster, Isolation
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.editions.positions import Positions, ahead, distance
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    import pyarrow as pa


def log_ends(bootstrap: Bootstrap, topics: Iterable[str], *, committed: bool = True) -> Positions:
    """The offset after the last committed record of every partition, or after the last of all. Topics that do not exist
    are left out."""
    return _offsets(bootstrap, topics, LATEST, Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED)


def log_starts(bootstrap: Bootstrap, topics: Iterable[str]) -> Positions:
    """The first offsets of partitions whose earlier records are gone."""
    starts = _offsets(bootstrap, topics, EARLIEST)
    later = {topic: {index: start for index, start in each.items() if start > 0} for topic, each in starts.items()}
    return {topic: each for topic, each in later.items() if each}


def records_behind(bootstrap: Bootstrap, topics: Iterable[str], position: Positions) -> int:
    return distance(ahead(log_ends(bootstrap, topics), position))


def topic_ids(bootstrap: Bootstrap, topics: Iterable[str]) -> dict[str, str | None]:
    """The ids of topics that exist; None if the broker gives no ids. A topic that was deleted and made again has
    another id, and offsets of its own."""
    with Cluster(bootstrap.settings()) as cluster:
        found = cluster.topics(list(topics))
    return {name: None if topic.topic_id is None else str(topic.topic_id) for name, topic in found.items()}


def partition_count(bootstrap: Bootstrap, topics: Iterable[str]) -> int:
    """The number of partitions of all these topics that exist."""
    with Cluster(bootstrap.settings()) as cluster:
        return sum(len(topic.partitions) for topic in cluster.topics(list(topics)).values())


def _offsets(
    bootstrap: Bootstrap, topics: Iterable[str], which: int, isolation: Isolation = Isolation.READ_COMMITTED
) -> Positions:
    with Cluster(bootstrap.settings()) as cluster:
        return _offsets_of(cluster, topics, which, isolation)


def committed_range(cluster: Cluster, topics: Iterable[str]) -> tuple[Positions, Positions]:
    """The first offset and the offset after the last committed record of every partition."""
    wanted = sorted(topics)
    start, end = (_offsets_of(cluster, wanted, which, Isolation.READ_COMMITTED) for which in (EARLIEST, LATEST))
    return start, end


def _offsets_of(cluster: Cluster, topics: Iterable[str], which: int, isolation: Isolation) -> Positions:
    asked = {
        TopicPartition(topic.name, partition.index): which
        for topic in cluster.topics(list(topics)).values()
        for partition in topic.partitions
    }
    offsets: dict[str, dict[int, int]] = {}
    for partition, answer in cluster.list_offsets(asked, isolation).items():
        offsets.setdefault(partition.topic, {})[partition.partition] = answer.offset
    return offsets


_EXTRA = ("headers",)


def committed_records(topic: str, bootstrap: Bootstrap, columns: Collection[str]) -> "Iterator[pa.RecordBatch]":
    """The committed records of a topic, with columns of the source's schema."""
    from cordwood.spark.source.batch_planner import plan_batch
    from cordwood.spark.source.options import read_options
    from cordwood.spark.source.planning import Reading, ReadTask
    from cordwood.spark.source.pushed_filters import PushedFilters
    from cordwood.spark.source.range_reading import RangeReader
    from cordwood.spark.source.schema import arrow_schema, source_schema

    given = {
        **connection_options(bootstrap),
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "includeHeaders": "true" if "headers" in columns else "false",
    }
    options = read_options(given, streaming=False)
    schema = arrow_schema(source_schema([name for name in _EXTRA if name in columns]))
    reading = Reading(options, _only(schema, columns))
    yield from RangeReader(reading, ReadTask(tuple(plan_batch(options, PushedFilters()).ranges))).read()


def _only(schema: "pa.Schema", columns: Collection[str]) -> "pa.Schema":
    import pyarrow as pa

    wanted: Sequence[Any] = [field for field in schema if field.name in columns]
    return pa.schema(wanted)
