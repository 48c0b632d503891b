"""The settings of a topic: Kafka's names and defaults, and two of our own (ack.durability, ordering.scope)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cordwood.model.settings.setting import (
    InvalidSetting,
    Value,
    attribute_values,
    boolean,
    double,
    int32,
    int64,
    settings_of,
    string,
    string_list,
    table,
)

NO_LIMIT = 2**63 - 1
"""Kafka's number for a limit that is absent."""

LONGEST_KEPT = 500
"""The longest texts of a topic, in characters, whose settings are cached for other topics with the same texts. A list
of 32 KB becomes 16,000 texts: a thousand such lists, which a client need only ask to have validated, would be a
gigabyte."""

_REPLICAS = re.compile("(?:[0-9]+:[0-9]+,)*+")


def _gzip_level(value: Value) -> str | None:
    return "must be -1 or from 1 to 9" if value == 0 else None


def _throttled_replicas(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or _REPLICAS.fullmatch("".join([f"{part}," for part in value])):
        return None
    return "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings, resolved: its own, else the broker's defaults, else the defaults given here."""

    ack_durability: str = string(
        "disk",
        "What an acknowledgement means. `disk`: the batch is fsynced before it is acknowledged or visible. "
        "`os`: it is in the operating system's page cache, as with Apache Kafka; a power cut can take it "
        "back.",
        choices=("disk", "os"),
        broker_name="log.ack.durability",
    )
    cleanup_policy: tuple[str, ...] = string_list(
        ("delete",),
        "`delete` drops whole segments by age and size; `compact` keeps the latest record of every key; "
        "`compact,delete` does both; an empty value does neither, and keeps everything.",
        choices=("delete", "compact"),
        broker_name="log.cleanup.policy",
    )
    compression_gzip_level: int = int32(
        -1,
        "How hard gzip tries where compression.type makes the broker use it: 1 (quick) to 9; -1, its usual level.",
        low=-1,
        high=9,
        check=_gzip_level,
        broker_name="compression.gzip.level",
    )
    compression_lz4_level: int = int32(
        9,
        "How hard lz4 tries where compression.type makes the broker use it. 9 is the quick lz4, as in Kafka.",
        low=1,
        high=17,
        broker_name="compression.lz4.level",
    )
    compression_type: str = string(
        "producer",
        "The codec that batches have in the log. `producer`: the one that the producer chose. Any other: batches that "
        "have another codec are compressed anew before they are appended, in another process.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_name="compression.type",
    )
    compression_zstd_level: int = int32(
        3,
        "How hard zstd tries where compression.type makes the broker use it.",
        low=-131_072,
        high=22,
        broker_name="compression.zstd.level",
    )
    delete_retention_ms: int = int64(
        86_400_000,
        "How long a tombstone stays readable on a compacted topic after compaction first saw it.",
        low=0,
        broker_name="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = int64(
        60_000,
        "How long the files of a removed segment stay on disk under a `.deleted` name, and those of a deleted topic in "
        "a directory that ends in `-delete`. A full disk or a restart ends the wait of a deleted topic.",
        low=0,
        broker_name="log.segment.delete.delay.ms",
    )
    flush_messages: int = int64(
        NO_LIMIT,
        "Under ack.durability=os: fsync after this many messages.",
        low=1,
        broker_name="log.flush.interval.messages",
    )
    flush_ms: int = int64(
        NO_LIMIT,
        "Under ack.durability=os: fsync at the latest this long after an append.",
        low=0,
        broker_name="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = string_list(
        (),
        "The replicas that are throttled on the follower's side while they are not in sync, by "
        "`follower.replication.throttled.rate` of their brokers: `partition:broker,...`, or `*` for all.",
        check=_throttled_replicas,
    )
    index_interval_bytes: int = int32(
        4096,
        "An index entry is written after this many bytes of batches.",
        low=0,
        broker_name="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = string_list(
        (),
        "The leaders that are throttled while they send to followers that are not in sync, by "
        "`leader.replication.throttled.rate` of their brokers: `partition:broker,...`, or `*` for all.",
        check=_throttled_replicas,
    )
    max_compaction_lag_ms: int = int64(
        NO_LIMIT,
        "A record is compacted at the latest this long after it was written.",
        low=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = int32(
        1_048_588, "The largest record batch that a producer may send.", low=0, broker_name="message.max.bytes"
    )
    message_timestamp_after_max_ms: int = int64(
        3_600_000,
        "How far a record's CreateTime may be ahead of the broker's clock.",
        low=0,
        broker_name="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = int64(
        NO_LIMIT,
        "How far a record's CreateTime may be behind the broker's clock.",
        low=0,
        broker_name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock stamps a record: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Compaction starts when this share of the log has not been compacted.",
        low=0,
        high=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = int64(
        0,
        "A record is not compacted away before it is this old.",
        low=0,
        broker_name="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = int32(
        1,
        "With acks=all a batch is refused while fewer replicas than this are in sync.",
        low=1,
        broker_name="min.insync.replicas",
    )
    ordering_scope: str = string(
        "partition",
        "The scope in which this topic's readers rely on order: `key` (records of one key; partitions are "
        "not added without force), `partition`, or `global` (the topic has exactly one partition).",
        choices=("key", "partition", "global"),
        broker_name="log.ordering.scope",
    )
    preallocate: bool = boolean(
        False,
        "Reserves segment.bytes of disk when a segment file is begun, where the filesystem can do so. What is not used "
        "is given back when the segment is closed.",
        broker_name="log.preallocate",
    )
    retention_bytes: int = int64(
        -1,
        "Under the delete policy: the size beyond which a partition's oldest segments are removed; -1, no limit.",
        low=-1,
        broker_name="log.retention.bytes",
    )
    retention_ms: int = int64(
        604_800_000,
        "Under the delete policy: the age beyond which segments are removed; -1, no limit.",
        low=-1,
        broker_name="log.retention.ms",
    )
    segment_bytes: int = int32(
        1_073_741_824,
        "The size at which a new segment file is begun. Retention and compaction work on whole segments.",
        low=14,
        broker_name="log.segment.bytes",
    )
    segment_index_bytes: int = int32(
        10_485_760,
        "The size of an index file at which a new segment is begun.",
        low=4,
        broker_name="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = int64(
        0,
        "At most this much is taken off segment.ms, so that segments do not all roll at once.",
        low=0,
        broker_name="log.roll.jitter.ms",
    )
    segment_ms: int = int64(
        604_800_000,
        "The age at which a new segment file is begun even if the old one is not full.",
        low=1,
        broker_name="log.roll.ms",
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that is not in sync may lead when no other is left, losing what it lacks.",
        broker_name="unclean.leader.election.enable",
    )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def looks_at_records(self) -> bool:
        """True if the broker has to look at single records of a batch: at their keys or their age."""
        return self.compacted or (not self.log_append_time and self.message_timestamp_before_max_ms < NO_LIMIT)

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def rolls_after_ms(self) -> int:
        """The age at which a segment is rolled. Compaction cannot work on the segment that is written to, so
        max.compaction.lag.ms bounds it too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def acks_mean_disk(self) -> bool:
        return self.ack_durability == "disk"


TOPIC_SETTINGS = table(settings_of(TopicSettings, changeable=True))
"""Every setting of a topic, by name."""


def resolve(overrides: Mapping[str, str], broker_defaults: Mapping[str, str] | None = None) -> TopicSettings:
    """Resolves a topic's settings from its own texts and the broker's. Raises InvalidSetting."""
    texts, defaults = tuple(sorted(overrides.items())), tuple(sorted((broker_defaults or {}).items()))
    if sum(len(text) for _, text in texts) > LONGEST_KEPT:
        return _resolve(texts, defaults)
    return _resolved_before(texts, defaults)


def _resolve(overrides: tuple[tuple[str, str], ...], broker_defaults: tuple[tuple[str, str], ...]) -> TopicSettings:
    by_broker_name = dict(broker_defaults)
    texts = {
        name: by_broker_name[setting.broker_name]
        for name, setting in TOPIC_SETTINGS.items()
        if setting.broker_name is not None and setting.broker_name in by_broker_name
    }
    for name, text in overrides:
        if name not in TOPIC_SETTINGS:
            raise InvalidSetting(f"Unknown topic config name: {name}")
        texts[name] = text
    values: dict[str, Any] = attribute_values(TOPIC_SETTINGS, texts)
    return TopicSettings(**values)


_resolved_before = lru_cache(maxsize=1024)(_resolve)
"""Most topics have the settings of another topic."""
