"""Finds the keys that make a partition hot, by a look into the partition's newest batch now and then.

Only if `metrics.hot.keys` is on: keys are data. Batches stay opaque on the way in; once in each sweep of the lag watch
the newest batch of each hot partition is opened in a thread and its keys go into a sketch of fixed size. The result is
a sample: shares count the records with keys in the batches that were opened.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.lag.heavy_keys import HeavyKeys
from cordwood.lag.rates import Sample, rate_per_s
from cordwood.log.log import ColdRead
from cordwood.log.reading.lookup import LogSlice
from cordwood.model.errors import ProtocolError, StorageFailure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicPartition
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import CONTROL_BIT, batches_in
from cordwood.records.records import packed_records_in

HOT_FACTOR = 2.0
"""A partition is hot if it gets at least this many times its even share of its topic's traffic."""
MAX_HOT_PARTITIONS = 8
KEYS_PER_PARTITION = 64
MAX_KEY_BYTES = 128
"""Longer keys are cut to this length: keys with the same beginning count as one key."""
MAX_BATCH_BYTES = 1 << 20
MAX_RECORDS = 1000
FADE_AFTER_RECORDS = 20_000
SHOWN_KEYS = 5


class PartitionTraffic(NamedTuple):
    """Samples of one partition's growth."""

    ends: tuple[Sample, ...]
    reached: Sample
    """The newest end, and the time at which it was first seen: for an idle log, long before the samples."""
    bytes: tuple[Sample, ...]
    fetched_bytes: int
    size_bytes: int
    start_offset: int
    topic_partitions: int
    """The number of partitions of the topic."""
    oldest_transaction: Sample | None = None
    """The first offset of the oldest open transaction, and the time at which it was first seen; None: none is open."""

    @property
    def records_per_s(self) -> float:
        return rate_per_s(self.ends) or 0.0

    @property
    def bytes_per_s(self) -> float:
        return rate_per_s(self.bytes) or 0.0


class HotKeys:
    def __init__(self, loop: Loop, image: ClusterImage, hosted: HostedReplicas) -> None:
        self._loop = loop
        self._image = image
        self._hosted = hosted
        self._sketches: dict[TopicPartition, HeavyKeys] = {}
        self._sampled_end: dict[TopicPartition, int] = {}

    def shares(self) -> dict[tuple[TopicPartition, bytes], float]:
        """Upper bounds for the share of records that the most frequent keys of each hot partition have."""
        return {
            (name, heavy.key): min(heavy.occurrences / sketch.total, 1.0)
            for name, sketch in sorted(self._sketches.items())
            if sketch.total
            for heavy in sketch.top(SHOWN_KEYS)
        }

    def sample(self, traffic: dict[TopicPartition, PartitionTraffic], topics: Mapping[str, float]) -> None:
        """Samples the hottest partitions; forgets partitions that have cooled down. `topics` has the traffic of whole
        topics."""
        if not self._image.settings.metrics_hot_keys:
            return
        hot = hot_partitions(traffic, topics)
        self._sketches = {name: self._sketches.get(name) or HeavyKeys(KEYS_PER_PARTITION) for name in hot}
        self._sampled_end = {name: end for name, end in self._sampled_end.items() if name in self._sketches}
        for name in hot:
            partition = self._hosted.get(*name)
            if partition is not None:
                self._sample(partition)

    def _sample(self, partition: Partition) -> None:
        name, replica = partition.name, partition.role.leading
        if replica is None:
            return
        end_offset = replica.high_watermark
        if end_offset <= max(self._sampled_end.get(name, 0), replica.log.offsets.start):
            return
        try:
            newest = replica.log.read(end_offset - 1, 1, end_offset=end_offset, minimum_one_batch=True, may_block=False)
        except (ColdRead, ProtocolError, StorageFailure):
            return
        if newest is None or newest.length > MAX_BATCH_BYTES:
            return
        self._sampled_end[name] = end_offset

        def read(keys: list[bytes] | Exception) -> None:
            sketch = self._sketches.get(name)
            if isinstance(keys, Exception) or sketch is None:
                return  # A sample may be missing: retention removed the batch, or the batch is damaged.
            for key in keys:
                sketch.add(key)
            if sketch.total > FADE_AFTER_RECORDS:
                sketch.halve()

        self._loop.effects.blocking(lambda: _keys_in(newest), read)


def hot_partitions(
    traffic: dict[TopicPartition, PartitionTraffic], topics: Mapping[str, float]
) -> list[TopicPartition]:
    """The partitions with far more than their even share of traffic, the busiest first, at most MAX_HOT_PARTITIONS.
    `topics` has the traffic of whole topics: without it none of a topic's partitions is known to be hot."""
    hot = [
        (-seen.bytes_per_s, name)
        for name, seen in traffic.items()
        if name.topic not in INTERNAL_TOPICS
        and seen.bytes_per_s > 0
        and seen.bytes_per_s * seen.topic_partitions >= HOT_FACTOR * topics.get(name.topic, math.inf)
    ]
    return [name for _, name in sorted(hot)[:MAX_HOT_PARTITIONS]]


def _keys_in(newest: LogSlice) -> list[bytes]:
    """Reads the keys of a batch. Runs in a thread."""
    data = newest.file.read(newest.position, newest.length)
    keys: list[bytes] = []
    for position, header in batches_in(data):
        if header.attributes & CONTROL_BIT:
            continue
        records = packed_records_in(memoryview(data)[position : position + header.size], MAX_BATCH_BYTES * 16)
        keys += [record.key[:MAX_KEY_BYTES] for record in islice(records, MAX_RECORDS) if record.key is not None]
    return keys
