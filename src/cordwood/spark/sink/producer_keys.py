"""Settings of the Java producer that the sink obeys, warns about, or refuses.

Keys of a connection's security are those of reads and writes alike (`options/security.py`). A test compares the table
in docs/spark.md with this one.
"""

from cordwood.spark.options import security

SUPPORTED_KEYS: dict[str, str] = {
    "bootstrap.servers": "the brokers to ask first",
    "client.id": "the name by which brokers know the sink",
    "acks": "all; 1 and 0 only with exactlyOnce=false",
    "enable.idempotence": "true with acks=all; false only with exactlyOnce=false",
    "compression.type": "none, gzip, snappy, lz4 or zstd",
    "compression.gzip.level": "1 to 9",
    "compression.lz4.level": "1 to 17",
    "compression.zstd.level": "-131072 to 22",
    "batch.size": "the largest record batch, in bytes before compression (1,000,000; a larger record goes alone). "
    "Not above the topic's `max.message.bytes`",
    "linger.ms": "how long rows may be gathered into larger batches (100)",
    "max.request.size": "the largest request, in bytes (8 MiB)",
    "buffer.memory": "how many encoded bytes may wait or be under way in a task (32 MiB)",
    "max.in.flight.requests.per.connection": "1 to 5: up to five are under way, and order is kept with any",
    "retries": "any above 0: delivery.timeout.ms ends retrying; 0 only without idempotence",
    "delivery.timeout.ms": "how long a request is tried again (120,000)",
    "request.timeout.ms": "how long one answer is waited for (30,000)",
    "retry.backoff.ms": "the first pause before a request is tried again (50)",
    "retry.backoff.max.ms": "the longest pause (1,000)",
    "send.buffer.bytes": "of the sockets; -1, the default: as the system sees fit",
    "receive.buffer.bytes": "of the sockets; -1, the default: as the system sees fit",
    "max.block.ms": "how long a topic that is not there yet is waited for (60,000)",
    "transaction.timeout.ms": "how long a transaction stays open after the last sign of life (300,000; Kafka: 900,000)",
}

_BYTES = "keys and values are written as the bytes of their columns: cast the column to string or binary"
_TRANSACTIONAL_ID = "the sink chooses transactional ids itself; the option 'family' names what is written together"
_CONSUMER = "it is a consumer's setting, and the sink is a producer"
_PARTITIONER = (
    "keys are partitioned by murmur2 as the Java client does, null keys are spread; set a column 'partition' to decide "
    "otherwise"
)
_POOL = "connections live no longer than a task"
_METRICS = "rows and bytes are reported in the log line of every commit"

REFUSED_KEYS: dict[str, str] = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "transactional.id": _TRANSACTIONAL_ID,
    "transaction.two.phase.commit.enable": _TRANSACTIONAL_ID,
}
"""Keys that Spark's Kafka sink refuses, or fails with."""

WITHOUT_EFFECT: dict[str, str] = {
    "partitioner.": _PARTITIONER,
    "interceptor.classes": "there is no Java client to intercept; transform the DataFrame",
    "connections.max.idle.ms": _POOL,
    "reconnect.backoff.ms": "use 'kafka.retry.backoff.ms'",
    "reconnect.backoff.max.ms": "use 'kafka.retry.backoff.max.ms'",
    "socket.connection.setup.": "use 'kafka.request.timeout.ms'",
    "metadata.": "every task asks for metadata anew",
    "client.dns.lookup": "every address of a name is tried",
    "client.rack": _CONSUMER,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "enable.metrics.push": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "group.": _CONSUMER,
    "auto.": _CONSUMER,
    "enable.auto.commit": _CONSUMER,
    "fetch.": _CONSUMER,
    "max.partition.fetch.bytes": _CONSUMER,
    "max.poll.": _CONSUMER,
    "session.timeout.ms": _CONSUMER,
    "heartbeat.interval.ms": _CONSUMER,
    "isolation.level": _CONSUMER,
    "check.crcs": _CONSUMER,
    "key.deserializer": _CONSUMER,
    "value.deserializer": _CONSUMER,
    "default.api.timeout.ms": _CONSUMER,
    "exclude.internal.topics": _CONSUMER,
    "allow.auto.create.topics": _CONSUMER,
}
"""Reasons by key, or by the beginning of keys if it ends in a dot."""


def why_without_effect(key: str) -> str | None:
    """The reason why a key has no effect; None if it is obeyed, refused or unknown."""
    if key in SUPPORTED_KEYS or key in REFUSED_KEYS:
        return None
    if about_security := security.why_without_effect(key):
        return about_security
    beginnings = (why for name, why in WITHOUT_EFFECT.items() if name.endswith(".") and key.startswith(name))
    return WITHOUT_EFFECT.get(key) or next(beginnings, None)
