"""The settings of coordinators: of consumer groups and their committed positions, those of a broker and those of one
group; of transactions and the internal topic that holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cordwood.model.settings.setting import InvalidSetting, attribute_values, int16, int32, int64, settings_of, table


@dataclass(frozen=True, init=False, repr=False, eq=False)
class GroupSettings:
    """Consumer groups and the positions that they commit."""

    group_consumer_heartbeat_interval_ms: int = int32(
        5000,
        "How often members of the consumer protocol are told to send a heartbeat. A shorter interval makes rebalances "
        "quicker, because members learn of their next step from the answer. librdkafka waits for an answer no longer "
        "than this interval: a broker that is slower for once would lose the connection.",
        low=1,
    )
    group_consumer_max_size: int = int32(
        1000, "Members of one group of the consumer protocol at most. Kafka has no limit of its own.", low=1
    )
    group_consumer_session_timeout_ms: int = int32(
        45_000, "A member of the consumer protocol that is not heard of for this long is taken out of its group.", low=1
    )
    group_heartbeat_hold_ms: int = int32(
        2900,
        "How long the answer to a heartbeat of the classic protocol may be held back, at most a quarter of "
        "the session timeout, so that the member hears of a rebalance at once. A little less than the "
        "clients' heartbeat.interval.ms: librdkafka leaves out a heartbeat that is due before the last one "
        "was answered. Only for clients that do not wait for it (Java, librdkafka). 0: every heartbeat is "
        "answered at once, as Kafka does.",
        low=0,
        high=30_000,
    )
    group_initial_rebalance_delay_ms: int = int32(
        100,
        "How long the first round of a group waits for more members, and again that long while more come. "
        "Kafka waits 3000: longer saves rebalances when many members start slowly, shorter lets the first "
        "one read sooner.",
        low=0,
    )
    group_max_session_timeout_ms: int = int32(
        1_800_000, "The longest session timeout that a member of a group may ask for.", low=1
    )
    group_max_size: int = int32(1000, "Members of one group at most. Kafka has no limit of its own.", low=1)
    group_min_session_timeout_ms: int = int32(
        6000, "The shortest session timeout that a member of a group may ask for.", low=1
    )
    groups_members_max_bytes: int = int64(
        256 * 1024 * 1024,
        "Bytes of subscriptions, names and assignments that the members of all groups may have this broker keep. New "
        "members beyond that are refused, and members that are there may tell 64 KiB each.",
        low=1024 * 1024,
    )
    groups_max: int = int32(
        100_000, "Groups that this broker coordinates at most: a new one beyond that is refused.", low=1
    )
    offset_metadata_max_bytes: int = int32(
        4096,
        "The longest text that a consumer may store beside a committed offset, in characters, as Kafka "
        "counts. Older versions of OffsetFetch have two bytes for its length.",
        low=0,
        high=32_767,
    )
    offsets_retention_check_interval_ms: int = int64(
        600_000, "How often committed offsets are checked for expiry.", low=1
    )
    offsets_retention_minutes: int = int32(
        10_080, "How long committed offsets are kept after their group was last heard of.", low=1
    )
    offsets_topic_num_partitions: int = int32(
        50, "Partitions of the internal topic of committed offsets. Takes effect when that topic is created.", low=1
    )
    offsets_topic_replication_factor: int = int16(
        3,
        "Replicas of the internal topic of committed offsets. With fewer brokers there are fewer, and more are added "
        "as brokers register.",
        low=1,
    )
    offsets_topic_segment_bytes: int = int32(
        104_857_600,
        "Segment size of the internal topic of committed offsets. Takes effect when that topic is created.",
        low=1,
    )
    positions_max: int = int32(
        1_000_000,
        "Committed positions that this broker keeps at most, over all groups; every 256 characters of metadata count "
        "as one more. A new one beyond that is refused with INVALID_COMMIT_OFFSET_SIZE; those that are there can move. "
        "Kafka has no limit of its own.",
        low=1,
    )


@dataclass(frozen=True, slots=True)
class OneGroupSettings:
    """The settings of a single group; the broker's settings are the defaults."""

    consumer_heartbeat_interval_ms: int = int32(
        5000,
        "How often members of this group are told to send a heartbeat (consumer protocol).",
        low=1,
        broker_name="group.consumer.heartbeat.interval.ms",
    )
    consumer_session_timeout_ms: int = int32(
        45_000,
        "A member of this group that is not heard of for this long is taken out of it (consumer protocol).",
        low=1,
        broker_name="group.consumer.session.timeout.ms",
    )


LONGEST_KEPT = 500
"""The longest texts of a group, in characters, whose settings are cached for other groups with the same texts: a number
may stand among 32 KB of spaces."""

ONE_GROUP_SETTINGS = table(settings_of(OneGroupSettings, changeable=True))


def resolve_group(overrides: Mapping[str, str], broker_texts: Mapping[str, str]) -> OneGroupSettings:
    """Resolves a group's settings from its overrides and the broker's texts. Raises InvalidSetting."""
    texts = tuple(sorted({**group_defaults(broker_texts), **overrides}.items()))
    if sum(len(text) for _, text in texts) > LONGEST_KEPT:
        return _resolve(texts)
    return _resolved_before(texts)


def group_defaults(broker_texts: Mapping[str, str]) -> dict[str, str]:
    """The texts that were set on the broker, by the names of a group's settings."""
    return {
        name: broker_texts[setting.broker_name]
        for name, setting in ONE_GROUP_SETTINGS.items()
        if setting.broker_name is not None and setting.broker_name in broker_texts
    }


def _resolve(texts: tuple[tuple[str, str], ...]) -> OneGroupSettings:
    values: dict[str, Any] = attribute_values(ONE_GROUP_SETTINGS, dict(texts))
    settings = OneGroupSettings(**values)
    if settings.consumer_session_timeout_ms <= settings.consumer_heartbeat_interval_ms:
        raise InvalidSetting(
            f"consumer.session.timeout.ms ({settings.consumer_session_timeout_ms}) must be more than "
            f"consumer.heartbeat.interval.ms ({settings.consumer_heartbeat_interval_ms})"
        )
    return settings


_resolved_before = lru_cache(maxsize=1024)(_resolve)
"""Most groups have the settings of another group."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """Transactions and the internal topic that holds them."""

    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10_000, "How often open transactions are checked for their timeout.", low=1
    )
    transaction_max_timeout_ms: int = int32(
        900_000, "The longest transaction timeout that a producer may ask for.", low=1
    )
    transaction_partitions_max: int = int32(
        10_000,
        "Partitions that one transaction writes to at most: its producer is told POLICY_VIOLATION beyond that, and "
        "aborts. Kafka has no limit of its own.",
        low=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3_600_000, "How often transactional ids are checked for expiry.", low=1
    )
    transaction_state_log_min_isr: int = int32(
        2,
        "The `min.insync.replicas` of the internal topic of transactions. Takes effect when that topic is created. A "
        "topic with fewer replicas needs all of them.",
        low=1,
    )
    transaction_state_log_num_partitions: int = int32(
        50, "Partitions of the internal topic of transactions. Takes effect when that topic is created.", low=1
    )
    transaction_state_log_replication_factor: int = int16(
        3,
        "Replicas of the internal topic of transactions. With fewer brokers there are fewer, and more are added as "
        "brokers register.",
        low=1,
    )
    transaction_state_log_segment_bytes: int = int32(
        104_857_600,
        "Segment size of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
    )
    transactional_id_expiration_ms: int = int32(
        604_800_000, "How long a transactional id that no producer uses is remembered.", low=1
    )
    transactional_ids_max: int = int32(
        100_000,
        "Transactional ids that this broker coordinates at most. A new one beyond that is refused with "
        "POLICY_VIOLATION, which `init_transactions` reports; known ones go on. Kafka has no limit of its own.",
        low=1,
    )
