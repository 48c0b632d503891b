"""Computes the lag of a query from Spark's reports of its batches: `StreamingQueryListener` and
`query.lastProgress`."""

import json
from typing import TYPE_CHECKING

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.offsets import from_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


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
