"""The settings of replication between brokers."""

from dataclasses import dataclass

from cordwood.model.settings.setting import Value, int32, int64, string

UNLIMITED = 2**63 - 1

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _refused_selector(value: Value) -> str | None:
    if value in ("", LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        return None
    return f"must be empty, {LEADER_SELECTOR} or {RACK_AWARE_SELECTOR}: no other class runs here"


CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"


def _refused_cordon(value: Value) -> str | None:
    return None if value in ("", ALL_DIRECTORIES) else "must be empty or *: single directories cannot be cordoned here"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ReplicationSettings:
    """How followers fetch, and when a leader takes them out of the in-sync set."""

    cordoned_log_dirs: str = string(
        "",
        "`*`: this broker gets no replicas of new partitions, and keeps those that it has. Set while the broker runs, "
        "by `cordwood cluster cordon` and `drain`, for one broker; refused at its start.",
        check=_refused_cordon,
    )
    follower_replication_throttled_rate: int = int64(
        UNLIMITED,
        "Bytes per second that this broker fetches as a follower for the replicas of "
        "`follower.replication.throttled.replicas` that are not in sync.",
        low=0,
    )
    leader_replication_throttled_rate: int = int64(
        UNLIMITED,
        "Bytes per second that this broker sends as a leader to followers that are not in sync, of the partitions that "
        "`leader.replication.throttled.replicas` lists for it.",
        low=0,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(
        UNLIMITED,
        "Bytes per second that this broker copies when logs move from one of its data directories to another.",
        low=1,
    )
    replica_fetch_backoff_ms: int = int32(
        1000, "The longest pause before a follower asks a leader again that could not be reached or refused.", low=1
    )
    replica_fetch_max_bytes: int = int32(
        1024 * 1024,
        "Bytes of one partition that a follower asks for at once. A batch that is larger is fetched all the same.",
        low=1024,
    )
    replica_fetch_response_max_bytes: int = int32(
        10 * 1024 * 1024, "Bytes of all partitions that a follower asks one leader for at once.", low=1024
    )
    replica_fetch_wait_max_ms: int = int32(
        500, "How long a leader without new records waits with its answer to a follower.", low=0
    )
    replica_lag_time_max_ms: int = int64(
        30_000, "A follower that has not been caught up for this time is taken out of the in-sync set.", low=1
    )
    replica_selector_class: str = string(
        "",
        "Which replica consumers read from. Empty, or `org.apache.kafka.common.replica.LeaderSelector`: the leader. "
        "`org.apache.kafka.common.replica.RackAwareReplicaSelector`: an in-sync replica whose `broker.rack` is the "
        "consumer's `client.rack`, if there is one. The setting of the partition's leader decides.",
        check=_refused_selector,
    )
