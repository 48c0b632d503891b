"""Gathers the values of a scrape from a running broker.

`prepare_scrape` runs in the loop and copies the few numbers that may change meanwhile. The dicts of partitions and
groups are replaced whole by the lag watch and never changed, so a thread may read them to make the text.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.broker.machine.build import build
from cordwood.log.files.memory_filesystem import UNBOUNDED_BYTES
from cordwood.metrics import names
from cordwood.metrics.exposition import Labelled, exposition
from cordwood.metrics.names import Metric
from cordwood.model.errors import StorageFailure
from cordwood.node.duties.hot_keys import PartitionTraffic
from cordwood.node.duties.lag_watch import Watched
from cordwood.wire.apis import APIS

if TYPE_CHECKING:
    from cordwood.broker.machine.loop_watch import LoopWatch
    from cordwood.broker.network.activity import Activity
    from cordwood.broker.network.connections import Connections
    from cordwood.broker.network.tls.listeners import TlsListeners
    from cordwood.broker.storage.flusher import CountingFlusher
    from cordwood.broker.trail.recorder import SecurityTrail
    from cordwood.cluster.metadata.image import ClusterImage, TopicImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.model.identifiers import TopicPartition
    from cordwood.node.node import Node
    from cordwood.node.partitions.partition import Partition

Values = dict[Metric, Labelled]


def prepare_scrape(
    node: "Node",
    connections: "Connections",
    activity: "Activity",
    flusher: "CountingFlusher",
    loop_watch: "LoopWatch",
    tls: "TlsListeners | None",
    trail: "SecurityTrail | None" = None,
) -> Callable[[], bytes]:
    values: Values = {
        names.BUILD_INFO: [(tuple(build()), 1)],
        **_requests(activity),
        names.CONNECTIONS: _one(len(connections)),
        names.CONNECTIONS_ACCEPTED: _one(connections.accepted),
        names.CONNECTIONS_REFUSED: _one(connections.refused),
        **_tls(tls),
        names.LOG_INS: sorted(node.authentications.log_ins.items()),
        names.TOKEN_KEY_FAILURES: [((url,), count) for url, count in node.authentications.token_keys.failures()],
        names.MISSING_RIGHTS: _missing_rights(node),
        names.RULES_LAG: [] if node.access.rules is None else [((), node.access.lag.copy())],
        names.TRAIL_LINES: _one(0 if trail is None else trail.lines),
        names.TRAIL_LOST: _one(0 if trail is None else trail.lost),
        **_throttled(node),
        names.UNANSWERED_BYTES: _one(connections.unanswered_bytes),
        names.TOPICS: _one(len(node.hosted.topics)),
        names.PARTITIONS: _one(sum(len(partitions) for partitions in node.hosted.topics.values())),
        names.REFUSED_APPENDS: [((error,), count) for error, count in sorted(node.refused_appends.items())],
        names.CONTROLLER: _one(node.image.controller_id == node.image.node_id),
        names.CPU: _one(time.process_time()),
        names.LOOP_CPU: _one(time.thread_time()),
        names.NEAR_READ_BYTES: _one(node.near_reads.served_bytes),
        names.SENT_NEAR: _one(node.near_reads.sent_near),
        names.SENT_BACK: _one(node.near_reads.sent_back),
        names.DISK_FULL: _one(node.full_disk.full),
        names.LOST_DIRECTORIES: _one(len(node.logs.lost)),
        names.SET_ASIDE: _one(sum(len(each.on_disk.set_aside_directories) for each in node.logs.directories)),
        names.FSYNC_ROUND: [((), flusher.round_times.copy())],
        names.FSYNC_LOGS: _one(flusher.logs_synced),
        **_damage(node),
        names.DELETIONS_HELD_UP: _one(node.compaction.held_up),
        names.LOOP_STALLS: _one(loop_watch.stalls),
        names.LOOP_STALLED: _one(loop_watch.stalled_s),
        names.LOOP_LONGEST_STALL: _one(loop_watch.longest_s),
        names.LOOP_HELD: [((api,), cpu_s) for api, cpu_s in sorted(loop_watch.held_cpu_s.items())],
        names.HOT_KEY_SHARE: [
            ((name.topic, str(name.partition), _key_text(key)), share)
            for (name, key), share in node.hot_keys.shares().items()
        ],
        names.GROUPS: _one(node.lag_watch.groups),
        names.GROUP_OVERTAKEN: _one(node.lag_watch.overtaken_total),
        names.GROUP_LEFT_OUT: _one(node.lag_watch.left_out),
    }
    traffic, positions = node.lag_watch.traffic, node.lag_watch.positions
    topic_rates, skews = node.lag_watch.topics, node.lag_watch.skews
    logs = node.logs
    hosted = [partition for topic in node.hosted.topics.values() for partition in topic.values()]
    image = node.image
    is_controller = image.controller_id == image.node_id
    topics = list(image.topics.values()) if is_controller else []
    away = len(image.members.keys() - image.brokers.keys()) if is_controller else 0
    now_ms = node.loop.now.boot_ms
    return lambda: exposition(
        {
            **values,
            **_resident(),
            **_replicas(hosted),
            names.WITHOUT_LEADER: _one(_without_leader(image, topics)),
            names.BROKERS_AWAY: _one(away),
            **_disk(logs),
            **_logs(traffic, topic_rates),
            names.OLDEST_TRANSACTION: [
                ((name.topic, str(name.partition)), (now_ms - seen.oldest_transaction.at_ms) / 1000)
                for name, seen in sorted(traffic.items())
                if seen.oldest_transaction is not None
            ],
            names.TRAFFIC_SKEW: [((topic,), skew) for topic, skew in sorted(skews.items())],
            **_groups(positions),
        }
    )


def _replicas(hosted: "Sequence[Partition]") -> Values:
    """Counts partitions that are led here. Runs in a thread: there may be thousands."""
    led = [(partition.image, partition.settings) for partition in hosted if partition.role.leads]
    return {
        names.LED: _one(len(led)),
        names.UNDER_REPLICATED: _one(sum(len(image.isr) < len(image.replicas) for image, _ in led)),
        names.BELOW_MIN_IN_SYNC: _one(sum(len(image.isr) < settings.min_insync_replicas for image, settings in led)),
    }


def _without_leader(image: "ClusterImage", topics: "Sequence[TopicImage]") -> int:
    """Counts partitions without a leader. Runs in a thread: there may be many thousand partitions."""
    brokers = image.brokers
    return sum(image.leadership(each).leader not in brokers for topic in topics for each in topic.partitions)


def _missing_rights(node: "Node") -> Labelled:
    rules = node.access.rules
    refused = {} if rules is None else rules.refused
    return [((str(operation), str(kind)), count) for (operation, kind), count in sorted(refused.items())]


def _throttled(node: "Node") -> Values:
    throttled = node.quotas.throttled.items()
    return {
        names.THROTTLED: [((key,), each.times) for key, each in throttled],
        names.THROTTLE_TIME: [((key,), each.ms / 1000) for key, each in throttled],
    }


def _resident() -> Values:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return {}
    return {names.RESIDENT: _one(pages * os.sysconf("SC_PAGE_SIZE"))}


def _damage(node: "Node") -> Values:
    damage = node.damage
    damaged: dict[tuple[str, ...], float] = {}
    for finding in damage.known():
        labels = (finding.partition.topic, str(finding.partition.partition))
        damaged[labels] = damaged.get(labels, 0) + finding.end_offset - finding.first_offset
    ended_ms = damage.findings.last_pass_ended_ms
    return {
        names.SCRUBBED_BYTES: _one(node.scrub.bytes_read),
        names.SCRUB_ENDED: [] if ended_ms is None else _one(ended_ms / 1000),
        names.DAMAGED_OFFSETS: list(damaged.items()),
        names.REPAIRED_OFFSETS: _one(damage.repaired_offsets),
    }


def _tls(tls: "TlsListeners | None") -> Values:
    if tls is None:
        return {}
    return {
        names.TLS_FAILURES: _one(tls.failures),
        names.CERTIFICATE_EXPIRES: [((name,), expires_s) for name, expires_s in tls.expiries],
    }


def _one(value: float) -> Labelled:
    return [((), value)]


def _key_text(key: bytes) -> str:
    """A text that differs for different keys: a key with an invalid byte differs from a key with that byte's escape."""
    return key.replace(b"\\", rb"\\").decode(errors="backslashreplace")


def _requests(activity: "Activity") -> Values:
    by_name = sorted((_api_name(key), api) for key, api in activity.by_api.items())
    return {
        names.REQUESTS: [((name,), api.requests) for name, api in by_name],
        names.REQUEST_BYTES: [((name,), api.request_bytes) for name, api in by_name],
        names.RESPONSE_BYTES: [((name,), api.response_bytes) for name, api in by_name],
        names.REQUEST_DURATION: [((name,), api.durations.copy()) for name, api in by_name],
    }


def _api_name(key: int) -> str:
    api = APIS.get(key)
    return "unknown" if api is None else api.name


def _disk(logs: "DataDirectories") -> Values:
    """Sizes of disks that do not fail; empty for a broker in memory. Runs in a thread: a disk may be slow."""
    sizes: dict[str, tuple[int, int]] = {}
    for directory in logs.directories:
        with suppress(StorageFailure):
            measured = directory.free_bytes()
            if measured[0] < UNBOUNDED_BYTES:
                sizes[directory.path] = measured
    if not sizes:
        return {}
    return {
        names.DISK_SIZE: [((path,), size_bytes) for path, (size_bytes, _) in sizes.items()],
        names.DISK_FREE: [((path,), free_bytes) for path, (_, free_bytes) in sizes.items()],
    }


def _logs(traffic: "dict[TopicPartition, PartitionTraffic]", topics: dict[str, float]) -> Values:
    """Sizes and traffic of logs, and their shares of the traffic of whole topics."""
    logs = [((name.topic, str(name.partition)), seen) for name, seen in sorted(traffic.items())]
    return {
        names.LOG_SIZE: [(labels, seen.size_bytes) for labels, seen in logs],
        names.LOG_START: [(labels, seen.start_offset) for labels, seen in logs],
        names.LOG_END: [(labels, seen.ends[-1].value) for labels, seen in logs],
        names.APPENDED_BYTES: [(labels, seen.bytes[-1].value) for labels, seen in logs],
        names.FETCHED_BYTES: [(labels, seen.fetched_bytes) for labels, seen in logs],
        names.APPEND_RATE: [(labels, seen.bytes_per_s) for labels, seen in logs],
        # The sum may be some seconds older than the partition's rate.
        names.TRAFFIC_SHARE: [
            (labels, min(seen.bytes_per_s / topics[labels[0]], 1.0))
            for labels, seen in logs
            if topics.get(labels[0], 0.0) > 0
        ],
    }


def _groups(positions: Watched) -> Values:
    found = [
        ((group, name.topic, str(name.partition)), watched.lag)
        for (group, name), watched in sorted(positions.items(), key=lambda item: item[0])
    ]
    known = [(labels, lag) for labels, lag in found if lag.lag_records is not None]
    return {
        names.GROUP_LAG: [(labels, lag.lag_records or 0) for labels, lag in known],
        names.GROUP_LAG_SECONDS: [(labels, lag.lag_ms / 1000) for labels, lag in known if lag.lag_ms is not None],
        names.GROUP_DRAIN_RATE: [(labels, lag.drain_per_s) for labels, lag in known if lag.drain_per_s is not None],
        names.GROUP_TIME_TO_LOSS: [
            (labels, math.inf if lag.time_to_data_loss_ms is None else lag.time_to_data_loss_ms / 1000)
            for labels, lag in known
        ],
        names.GROUP_LOST: [(labels, lag.lost_records) for labels, lag in known],
        names.GROUP_NEVER_COMMITTED: [(labels, 1) for labels, lag in found if lag.lag_records is None],
    }
