"""The list of all metrics. Exposing a metric outside of the list is an error; docs/metrics.md is made from the list."""

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    name: str
    """The name for Prometheus. A counter's name ends in `_total`."""
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


_API = ("api",)
_PARTITION = ("topic", "partition")
_POSITION = ("group", "topic", "partition")


def _counter(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.GAUGE, meaning, labels)


BUILD_INFO = _gauge(
    "cordwood_build_info",
    "1, with the broker's version and the commit that it was made of; `unknown`: of a package without a commit.",
    ("version", "commit"),
)

REQUESTS = _counter("cordwood_requests_total", "Requests that arrived.", _API)
REQUEST_BYTES = _counter("cordwood_request_bytes_total", "Bytes of requests that arrived.", _API)
RESPONSE_BYTES = _counter("cordwood_response_bytes_total", "Bytes of responses that were made.", _API)
REQUEST_DURATION = Metric(
    "cordwood_request_duration_seconds",
    Kind.HISTOGRAM,
    "Time from a request's arrival to its answer, to about a millisecond, with the waits that the request asks for: a "
    "fetch waits for more records, a join for other members.",
    _API,
)
CONNECTIONS = _gauge("cordwood_connections", "Connections that are open.")
CONNECTIONS_ACCEPTED = _counter("cordwood_connections_accepted_total", "Connections that were accepted.")
CONNECTIONS_REFUSED = _counter("cordwood_connections_refused_total", "Connections that were refused for want of room.")
TLS_FAILURES = _counter(
    "cordwood_tls_failures_total",
    "TLS handshakes that failed: a peer that does not trust the certificate, has none that it needs, or speaks no TLS.",
)
CERTIFICATE_EXPIRES = _gauge(
    "cordwood_certificate_expires_timestamp_seconds",
    "When the certificate of a listener with TLS ends, or the first one of its chain that does, as a Unix time. A "
    "changed file counts once it is served. Absent without such listeners.",
    ("listener",),
)
LOG_INS = _counter(
    "cordwood_log_ins_total",
    "Log-ins by SASL, also those that renew a session, by the mechanism and the outcome: `logged in`, or `refused` (a "
    "wrong password, an unknown user, something out of order). The mechanism `none`: the peer named none that its "
    "listener takes.",
    ("mechanism", "outcome"),
)
TOKEN_KEY_FAILURES = _gauge(
    "cordwood_token_key_failed_fetches",
    "Fetches of the keys that verify tokens (OAUTHBEARER) which failed since the last one that did not, by the address "
    "of the keys. The keys of before go on meanwhile. Absent where no listener takes tokens.",
    ("source",),
)
MISSING_RIGHTS = _counter(
    "cordwood_missing_rights_total",
    "Rights that requests lacked, by the operation and the kind of resource. With `authorizer.dry.run` those that "
    "would have been refused for. What is left out of a list counts for nothing.",
    ("operation", "resource"),
)
RULES_LAG = Metric(
    "cordwood_rules_lag_seconds",
    Kind.HISTOGRAM,
    "Time from a change of rules of access, at any broker, until this broker judges by it, by the clocks of both. "
    "Absent without an authorizer.",
)
TRAIL_LINES = _counter("cordwood_security_trail_lines_total", "Lines of the security trail that were written.")
TRAIL_LOST = _counter(
    "cordwood_security_trail_lost_events_total",
    "Changes, log-ins and refusals that are missing in the security trail, as its file could not be written in time. "
    "More than 0 wants a person: the disk is full, or its directory cannot be written.",
)
THROTTLED = _counter(
    "cordwood_throttled_total", "Times that a client over a quota was held back, by the quota.", ("quota",)
)
THROTTLE_TIME = _counter(
    "cordwood_throttle_seconds_total",
    "Seconds for which clients over a quota were held back, by the quota.",
    ("quota",),
)
UNANSWERED_BYTES = _gauge("cordwood_unanswered_request_bytes", "Bytes of requests that wait for their answers.")

TOPICS = _gauge("cordwood_topics", "Topics.")
PARTITIONS = _gauge("cordwood_partitions", "Partitions on this broker.")
LED = _gauge("cordwood_partitions_led", "Partitions that this broker leads.")
UNDER_REPLICATED = _gauge(
    "cordwood_partitions_under_replicated", "Partitions led by this broker that lack replicas in sync."
)
BELOW_MIN_IN_SYNC = _gauge(
    "cordwood_partitions_below_min_in_sync",
    "Partitions led by this broker with fewer replicas in sync than min.insync.replicas: acks=all is refused there.",
)
WITHOUT_LEADER = _gauge(
    "cordwood_partitions_without_leader",
    "Partitions of the cluster that no registered broker leads, as the controller sees them; 0 at all other brokers.",
)
CONTROLLER = _gauge("cordwood_controller", "1 at the broker that is the controller, 0 at all others.")
BROKERS_AWAY = _gauge(
    "cordwood_brokers_away",
    "Brokers of the cluster that are not registered and were not forgotten, as the controller sees them; 0 at all "
    "other brokers.",
)
SET_ASIDE = _gauge(
    "cordwood_set_aside_directories",
    "Directories of partitions that the metadata did not know: kept, and not served. More than 0 wants a person.",
)
LOST_DIRECTORIES = _gauge(
    "cordwood_lost_directories",
    "Data directories that failed since the start: their partitions are offline here. More than 0 wants a person.",
)
LOG_SIZE = _gauge("cordwood_log_size_bytes", "Bytes of a partition's log.", _PARTITION)
LOG_START = _gauge("cordwood_log_start_offset", "The first offset that a partition still has.", _PARTITION)
LOG_END = _gauge("cordwood_log_end_offset", "The offset up to which a partition can be read.", _PARTITION)
APPENDED_BYTES = _counter("cordwood_partition_appended_bytes_total", "Bytes of batches that came in.", _PARTITION)
FETCHED_BYTES = _counter("cordwood_partition_fetched_bytes_total", "Bytes of batches that fetches found.", _PARTITION)
NEAR_READ_BYTES = _counter(
    "cordwood_follower_read_bytes_total", "Bytes of batches that clients found at this broker as a follower."
)
SENT_NEAR = _counter(
    "cordwood_sent_to_follower_total",
    "Answers for single partitions by which this broker, as the leader, sent a client to a follower in its rack.",
)
SENT_BACK = _counter(
    "cordwood_sent_back_to_leader_total",
    "Refusals for single partitions by which this broker, as a follower, sent a client back to the leader.",
)
APPEND_RATE = _gauge(
    "cordwood_partition_append_bytes_per_second", "Bytes that come in, over about the last minute.", _PARTITION
)
TRAFFIC_SHARE = _gauge(
    "cordwood_partition_traffic_share",
    "The partition's share of the bytes that come into its topic, on whichever brokers, over about the last minute, "
    "from 0 to 1. With n partitions and even keys it is 1/n. Told by the partition's leader; absent until the leaders "
    "of all partitions have told their rates.",
    _PARTITION,
)
TRAFFIC_SKEW = _gauge(
    "cordwood_topic_traffic_skew",
    "Bytes that come into the busiest partition of a topic, as a multiple of the average of its other partitions; 1 is "
    "even, +Inf: all bytes go there. Told by the leader of the topic's partition 0, of all partitions on all brokers. "
    "Absent for topics with one partition or without traffic, for internal topics, and until the leaders of all "
    "partitions have told their rates.",
    ("topic",),
)

OLDEST_TRANSACTION = _gauge(
    "cordwood_partition_oldest_transaction_seconds",
    "For how long the partition's leader has seen the oldest open transaction: readers of committed records wait "
    "behind it. Counts from the leader's start or election. Absent where none is open.",
    _PARTITION,
)

HOT_KEY_SHARE = _gauge(
    "cordwood_partition_hot_key_share",
    "The most frequent keys of a partition that gets at least twice its even share, each with an upper bound of its "
    "share of the sampled records with keys. Only with `metrics.hot.keys`. A key is cut after 128 bytes; a byte that "
    "is not UTF-8 is written as `\\xff`, a backslash as two.",
    (*_PARTITION, "key"),
)

REFUSED_APPENDS = _counter(
    "cordwood_refused_appends_total",
    "Batches of producers that were refused, by the error that they got; DISK_FULL and EARLY_BATCH (after an election, "
    "sent again by the client) are told apart.",
    ("error",),
)
DISK_SIZE = _gauge("cordwood_disk_size_bytes", "The size of the disk that a data directory is on.", ("directory",))
DISK_FULL = _gauge("cordwood_disk_full", "1 while the broker finds no space for records and refuses them, 0 otherwise.")
DISK_FREE = _gauge(
    "cordwood_disk_free_bytes", "Bytes that the broker may still write to the disk of a data directory.", ("directory",)
)

FSYNC_ROUND = Metric(
    "cordwood_fsync_round_seconds",
    Kind.HISTOGRAM,
    "How long a flush round took, which syncs all logs that are dirty together.",
)
FSYNC_LOGS = _counter("cordwood_fsync_logs_total", "Logs that flush rounds made durable.")
SCRUBBED_BYTES = _counter("cordwood_scrub_read_bytes_total", "Bytes of closed segments that the scrub read.")
SCRUB_ENDED = _gauge(
    "cordwood_scrub_pass_ended_timestamp_seconds",
    "When the scrub last finished a pass over all closed segments, as a Unix time. Absent before the first pass.",
)
DAMAGED_OFFSETS = _gauge(
    "cordwood_partition_damaged_offsets",
    "Offsets of a partition that are known to be damaged on disk: readers are refused there. Absent where no damage is "
    "known.",
    _PARTITION,
)
REPAIRED_OFFSETS = _counter(
    "cordwood_repaired_offsets_total",
    "Damaged offsets that were repaired with the batches of another replica since the broker started.",
)
DELETIONS_HELD_UP = _gauge(
    "cordwood_compactions_without_deletions",
    "Compacted partitions led by this broker that keep their markers and tombstones for a follower that catches up.",
)
CPU = _counter("cordwood_cpu_seconds_total", "CPU time of the broker's process.")
LOOP_CPU = _counter(
    "cordwood_loop_cpu_seconds_total",
    "CPU time of the event loop's thread. The loop is one thread: with a rate near 1 the broker can do no more.",
)
RESIDENT = _gauge("cordwood_resident_memory_bytes", "Memory of the broker's process. Absent where there is no /proc.")
LOOP_STALLS = _counter("cordwood_loop_stalls_total", "How often the event loop was late by 50 ms or more.")
LOOP_STALLED = _counter("cordwood_loop_stalled_seconds_total", "How late the event loop was in all such stalls.")
LOOP_LONGEST_STALL = _gauge("cordwood_loop_longest_stall_seconds", "The longest such stall since the broker started.")
LOOP_HELD = _counter(
    "cordwood_loop_held_cpu_seconds_total",
    "CPU time of turns of the event loop that took 50 ms or more, by the API of the request that held it; `none`: the "
    "broker's own work. The log names the client.",
    ("api",),
)

GROUPS = _gauge("cordwood_groups", "Groups with this broker as their coordinator that have positions or read topics.")
GROUP_LAG = _gauge(
    "cordwood_group_lag_records",
    "Records between a group's position and the end of the log that still exist, counted in offsets. Absent where the "
    "group never committed.",
    _POSITION,
)
GROUP_LAG_SECONDS = _gauge(
    "cordwood_group_lag_seconds",
    "How long the oldest unread record has been waiting; 0 if all records are read. Absent where the time is unknown.",
    _POSITION,
)
GROUP_DRAIN_RATE = _gauge(
    "cordwood_group_drain_records_per_second",
    "Records a second by which the position moves on, over about the last minute.",
    _POSITION,
)
GROUP_TIME_TO_LOSS = _gauge(
    "cordwood_group_time_to_data_loss_seconds",
    "The time until retention may remove a record that the group has not read, if the log grows and the group reads as "
    "in the last minute; +Inf: never. Absent where the group never committed.",
    _POSITION,
)
GROUP_LOST = _gauge(
    "cordwood_group_lost_records",
    "Records that retention removed before the group read them, in offsets; 0 unless the position was overtaken.",
    _POSITION,
)
GROUP_NEVER_COMMITTED = _gauge(
    "cordwood_group_never_committed",
    "1 for a partition without a position of the group, in a topic that the group's members read or in which the group "
    "has positions.",
    _POSITION,
)
GROUP_OVERTAKEN = _counter("cordwood_group_positions_overtaken_total", "How often retention has overtaken a position.")
GROUP_LEFT_OUT = _gauge(
    "cordwood_group_positions_left_out",
    "Positions that are not watched: there are too many, or the leader of their partition does not answer its "
    "coordinator or runs an earlier release.",
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
