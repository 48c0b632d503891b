"""Every `kafka.*` key of Spark's Kafka source, and its fate here.

Owns the answer to "is this key implemented?". A key is implemented; or it is taken with a warning that it has no
effect, the reason and what to use instead; or, where Spark's Kafka source refuses it, it is refused here too. So a
query moves from that source to this one with its options as they are. Names are those of Kafka's consumer, without
`kafka.` before them. Keys of a connection's security are those of reads and writes alike (`options/security.py`).
"""

from enum import Enum

from cordwood.spark.options import security


class Key(Enum):
    """The keys that are implemented; the value is the name behind `kafka.`."""

    BOOTSTRAP_SERVERS = "bootstrap.servers"
    CLIENT_ID = "client.id"
    GROUP_ID = "group.id"
    ISOLATION_LEVEL = "isolation.level"
    REQUEST_TIMEOUT_MS = "request.timeout.ms"
    DEFAULT_API_TIMEOUT_MS = "default.api.timeout.ms"
    RETRY_BACKOFF_MS = "retry.backoff.ms"
    RETRY_BACKOFF_MAX_MS = "retry.backoff.max.ms"
    MAX_PARTITION_FETCH_BYTES = "max.partition.fetch.bytes"
    FETCH_MAX_WAIT_MS = "fetch.max.wait.ms"
    RECEIVE_BUFFER_BYTES = "receive.buffer.bytes"
    EXCLUDE_INTERNAL_TOPICS = "exclude.internal.topics"
    CHECK_CRCS = "check.crcs"
    ALLOW_AUTO_CREATE_TOPICS = "allow.auto.create.topics"


ALWAYS = {
    Key.CHECK_CRCS: ("true", "checksums are always checked"),
    Key.ALLOW_AUTO_CREATE_TOPICS: ("false", "reading never creates a topic"),
}
"""Keys with a fixed value; another one has no effect, for the reason beside it."""

_MEMBERSHIP = "a query is no member of a group: Spark decides who reads what, and progress is committed without joining"
_RECORDS = "keys and values arrive as bytes; decode them with DataFrame functions, as in CAST(value AS STRING)"
_COMMITS = "positions live in the checkpoint; they are committed to the progress group as well, by themselves"
_METRICS = "this client keeps no such metrics; see the streaming query's progress and the broker's metrics"
_NETWORK = "connections are opened when needed and again after they broke; use kafka.request.timeout.ms"
_METADATA = "metadata is asked for at every trigger, and whenever it turns out to be stale"

REFUSED = {
    "auto.offset.reset": "where to start is said by startingOffsets: earliest, latest, group or JSON",
    "enable.auto.commit": _COMMITS,
    "key.deserializer": _RECORDS,
    "value.deserializer": _RECORDS,
    "interceptor.classes": "there is no Java consumer in which an interceptor could run",
}
"""Keys that Spark's Kafka source refuses, too."""

WITHOUT_EFFECT = {
    "auto.commit.interval.ms": _COMMITS,
    "session.timeout.ms": _MEMBERSHIP,
    "heartbeat.interval.ms": _MEMBERSHIP,
    "max.poll.interval.ms": _MEMBERSHIP,
    "group.instance.id": _MEMBERSHIP,
    "group.protocol": _MEMBERSHIP,
    "group.remote.assignor": _MEMBERSHIP,
    "partition.assignment.strategy": _MEMBERSHIP,
    "share.acknowledgement.mode": _MEMBERSHIP,
    "max.poll.records": "records come as whole batches; use maxRecordsPerPartition or maxOffsetsPerTrigger",
    "fetch.min.bytes": "a task reads a known range and never waits for more",
    "fetch.max.bytes": "a request asks for one partition; use kafka.max.partition.fetch.bytes",
    "client.rack": "reading from the nearest replica is not supported",
    "client.dns.lookup": "every address of a name is tried, always",
    "config.providers": "values are taken as they are; put the value itself into the option",
    "connections.max.idle.ms": _NETWORK,
    "reconnect.backoff.ms": "use kafka.retry.backoff.ms",
    "reconnect.backoff.max.ms": "use kafka.retry.backoff.max.ms",
    "send.buffer.bytes": "requests of a reader are small",
    "socket.connection.setup.timeout.ms": _NETWORK,
    "socket.connection.setup.timeout.max.ms": _NETWORK,
    "metadata.max.age.ms": _METADATA,
    "metadata.recovery.strategy": _METADATA,
    "metadata.recovery.rebootstrap.trigger.ms": _METADATA,
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
}

OF_PRODUCERS = frozenset(
    {
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "key.serializer",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "partitioner.class",
        "retries",
        "transaction.timeout.ms",
        "transactional.id",
        "value.serializer",
    }
)
"""Settings of Kafka's producer: one dictionary of options may serve a read and a write."""


def why_without_effect(name: str) -> str | None:
    """The reason why a key, without `kafka.`, has no effect; None if it is implemented, refused or unknown."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    if name in OF_PRODUCERS:
        return "it is a setting of producers, and this is a read"
    return security.why_without_effect(name)
