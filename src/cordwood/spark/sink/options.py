"""The options of `df.write` and `df.writeStream` with format "cordwood", read and checked once, on the driver.

Names and meanings are those of Spark's Kafka sink, and of the Java producer for `kafka.*`. Every `kafka.*` key is
obeyed, taken with a warning that it has no effect, or refused where Spark's Kafka sink refuses it; an unknown option is
refused, too, because a misspelt one would silently promise nothing. The result is a value that can be pickled to the
tasks.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cordwood.client.settings import ClientSettings
from cordwood.records.batch import Codec
from cordwood.spark.options.names import OPTIONS
from cordwood.spark.options.quantities import MAX_INT, MAX_LONG
from cordwood.spark.options.security import SECURITY_KEYS, security_of
from cordwood.spark.sink.producer_keys import REFUSED_KEYS, SUPPORTED_KEYS, why_without_effect

SINK_OPTIONS = (
    "topic",
    "exactlyOnce",
    "family",
    "batchId",
    "olderBatches",
    "otherRowCount",
    "unknownQuery",
    "includeHeaders",
    "createTopics",
)
"""Options that the sink itself reads, besides kafka.*."""

_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options that Spark hands to every sink, and that this sink does not check."""

_OF_THE_SOURCE = frozenset(name.lower() for name in OPTIONS)
"""Options of the reading half, which are ignored: Spark's Kafka sink lets one set of options serve both halves."""

_FAMILY_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}

_WEAKER = {"kafka.acks": ("0", "1"), "kafka.enable.idempotence": ("false",), "kafka.retries": ("0",)}
"""Settings of the Java producer, with the values that give up exactly once."""

E = TypeVar("E", bound=Enum)


class SinkOptionError(ValueError):
    """An option of a write cannot be obeyed; the message names it and says what to do."""


class Guarantee(Enum):
    """The values of `exactlyOnce`."""

    MICRO_BATCH = "true"
    """A whole micro-batch (or write job) once, all of it or nothing. On an Apache Kafka: TASK."""
    TASK = "task"
    """The most that the Kafka protocol can promise: each task's rows once, if a repeated task computes the same
    rows."""
    AT_LEAST_ONCE = "false"
    """Every row once or, after a failed task, more often."""


class OlderBatches(Enum):
    """The reaction to a batch older than the last one that the family decided."""

    FAIL = "fail"
    SKIP = "skip"


class OtherRowCount(Enum):
    """The reaction to a repeated batch with another number of rows than the one that was written."""

    FAIL = "fail"
    SKIP = "skip"


class UnknownQuery(Enum):
    """The reaction to a batch after the first, of a family that the broker does not remember."""

    FAIL = "fail"
    BEGIN = "begin"


@dataclass(frozen=True)
class SinkOptions:
    """The options of one write, as values."""

    client: ClientSettings
    topic: str | None
    guarantee: Guarantee
    family: str | None
    batch_id: int | None
    older_batches: OlderBatches
    other_row_count: OtherRowCount
    unknown_query: UnknownQuery
    include_headers: bool
    create_topics: bool
    """A broker with auto.create.topics.enable may create a missing topic."""
    acks: int
    idempotent: bool
    codec: Codec
    codec_level: int | None
    batch_bytes: int
    buffer_bytes: int
    linger_ms: int
    metadata_wait_ms: int
    transaction_timeout_ms: int | None
    checkpoint: str | None
    """The directory of the query's checkpoint."""
    warnings: tuple[str, ...] = ()
    """Options that have no effect, each with the reason."""


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parses the options. Raises SinkOptionError at the first option that cannot be obeyed."""
    given = {name.lower(): str(value) for name, value in options.items()}
    warnings = _check_names(given)
    given, weaker = _without_weaker(given)
    servers = given.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise SinkOptionError(
            "Option 'kafka.bootstrap.servers' must be specified for writing, e.g. "
            '.option("kafka.bootstrap.servers", "localhost:9092")'
        )
    guarantee = _choice(given, "exactlyOnce", Guarantee, Guarantee.MICRO_BATCH)
    acks, idempotent = _acknowledgements(given, guarantee)
    codec, level = _compression(given)
    family, batch_id = _family(given, guarantee, streaming=streaming)
    return SinkOptions(
        client=_client_settings(given, servers),
        topic=_topic(given),
        guarantee=guarantee,
        family=family,
        batch_id=batch_id,
        older_batches=_choice(given, "olderBatches", OlderBatches, OlderBatches.FAIL),
        other_row_count=_choice(given, "otherRowCount", OtherRowCount, OtherRowCount.FAIL),
        # Users number their batch writes themselves, and begin with any number.
        unknown_query=_choice(
            given, "unknownQuery", UnknownQuery, UnknownQuery.FAIL if streaming else UnknownQuery.BEGIN
        ),
        include_headers=_boolean(given, "includeHeaders", default=True),
        create_topics=_boolean(given, "createTopics", default=True),
        acks=acks,
        idempotent=idempotent,
        codec=codec,
        codec_level=level,
        # A broker's default limit is a little over 1 MiB for a batch (max.message.bytes).
        batch_bytes=min(_integer(given, "kafka.batch.size", 1_000_000, low=0), _request_bytes(given)),
        buffer_bytes=_buffer_bytes(given),
        linger_ms=_integer(given, "kafka.linger.ms", 100, low=0),
        metadata_wait_ms=_integer(given, "kafka.max.block.ms", 60_000, low=0),
        transaction_timeout_ms=(
            _integer(given, "kafka.transaction.timeout.ms", 0, low=1)
            if "kafka.transaction.timeout.ms" in given
            else None
        ),
        checkpoint=given.get("checkpointlocation"),
        warnings=(*warnings, *weaker),
    )


def _check_names(given: Mapping[str, str]) -> list[str]:
    """Refuses unknown options. Returns a warning for each option without effect."""
    warnings = []
    known = {name.lower() for name in SINK_OPTIONS}
    for name in sorted(given):
        if name.startswith("kafka."):
            key = name.removeprefix("kafka.")
            if key in SUPPORTED_KEYS or key in SECURITY_KEYS:
                continue
            without_effect = why_without_effect(key)
            if without_effect is not None:
                warnings.append(f"kafka.{key} has no effect: {without_effect}")
                continue
            if key in REFUSED_KEYS:
                reason = REFUSED_KEYS[key]
                raise SinkOptionError(f"Kafka option '{key}' is not supported by the cordwood sink: {reason}")
            near = difflib.get_close_matches(key, [*SUPPORTED_KEYS, *sorted(SECURITY_KEYS)], 1)
            hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
            raise SinkOptionError(f"Kafka option '{key}' is not known to the cordwood sink{hint}")
        if name == "path":
            raise SinkOptionError(
                'A path means nothing to the cordwood sink: write with .option("topic", "…").save(), or '
                '.option("topic", "…").start() for a stream'
            )
        if name not in known | _SPARKS_OWN | _OF_THE_SOURCE:
            near = difflib.get_close_matches(name, sorted(known), 1)
            spelled = next((option for option in SINK_OPTIONS if near and option.lower() == near[0]), None)
            hint = f"; did you mean '{spelled}'?" if spelled else f"; known are {', '.join(SINK_OPTIONS)} and kafka.*"
            raise SinkOptionError(f"Option '{name}' is not known to the cordwood sink{hint}")
    return warnings


def _without_weaker(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Removes settings that contradict exactly once. They have no effect if `exactlyOnce` is only the default, as in a
    query that comes from Spark's Kafka sink; beside a given `exactlyOnce` they are refused."""
    if "exactlyonce" in given:
        return dict(given), []
    weaker = [name for name, values in _WEAKER.items() if given.get(name, "").strip().lower() in values]
    kept = {name: text for name, text in given.items() if name not in weaker}
    warnings = [
        f"{name}={given[name]} has no effect: a write is exactly once; exactlyOnce=false obeys it" for name in weaker
    ]
    return kept, warnings


def _topic(given: Mapping[str, str]) -> str | None:
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise SinkOptionError("Option 'topic' is empty: name a topic, or leave it out and have a column 'topic'")
    return topic.strip() if topic is not None else None


def _acknowledgements(given: Mapping[str, str], guarantee: Guarantee) -> tuple[int, bool]:
    """The acks, and whether producers are idempotent; exactlyOnce needs both at their strictest."""
    text = given.get("kafka.acks", "all").strip().lower()
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(text)
    if acks is None:
        raise SinkOptionError(f"Option 'kafka.acks' is {text!r}: use all, -1, 1 or 0")
    idempotent = _boolean(given, "kafka.enable.idempotence", default=acks == -1)
    if guarantee is not Guarantee.AT_LEAST_ONCE:
        for name, fits in (("kafka.acks", acks == -1), ("kafka.enable.idempotence", idempotent)):
            if not fits:
                raise SinkOptionError(
                    f"Options '{name}={given[name]}' and 'exactlyOnce={guarantee.value}' contradict each other: leave "
                    f"'{name}' out, or write with exactlyOnce=false"
                )
    if idempotent and acks != -1:
        raise SinkOptionError(
            f"Options 'kafka.enable.idempotence=true' and 'kafka.acks={text}' contradict each other: idempotence needs "
            "acks=all"
        )
    if idempotent and _integer(given, "kafka.retries", MAX_INT, low=0) == 0:
        raise SinkOptionError(
            "Option 'kafka.retries=0' contradicts idempotent producers, which need to try again: leave it out, or set "
            "'kafka.enable.idempotence=false' and 'exactlyOnce=false'"
        )
    if idempotent and _integer(given, "kafka.max.in.flight.requests.per.connection", 1, low=1) > 5:
        raise SinkOptionError("Option 'kafka.max.in.flight.requests.per.connection' is at most 5 with idempotence")
    return acks, idempotent


def _compression(given: Mapping[str, str]) -> tuple[Codec, int | None]:
    text = given.get("kafka.compression.type", "none").strip().lower()
    codec = _CODECS.get(text)
    if codec is None:
        raise SinkOptionError(f"Option 'kafka.compression.type' is {text!r}: use one of {', '.join(_CODECS)}")
    level = None
    for other, (low, high) in _LEVELS.items():
        name = f"kafka.compression.{other.name.lower()}.level"
        if name in given:
            asked = _integer(given, name, 0, low=low, high=high)
            level = asked if other is codec else level
    return codec, level


def _family(given: Mapping[str, str], guarantee: Guarantee, *, streaming: bool) -> tuple[str | None, int | None]:
    family = given.get("family")
    if family is not None and not _FAMILY_NAME.match(family):
        raise SinkOptionError(
            f"Option 'family' is {family!r}: use 1 to 128 ASCII letters, digits, dots, underscores and hyphens"
        )
    if "batchid" not in given:
        return family, None
    batch_id = _integer(given, "batchId", 0, low=0, high=MAX_LONG)
    if streaming:
        raise SinkOptionError(
            "Option 'batchId' is for batch writes, such as those in foreachBatch: a streaming query numbers its "
            "micro-batches itself"
        )
    if family is None:
        raise SinkOptionError("Option 'batchId' needs 'family', the name of the sequence of batches that it numbers")
    if guarantee is not Guarantee.MICRO_BATCH:
        raise SinkOptionError(
            f"Options 'batchId' and 'exactlyOnce={guarantee.value}' contradict each other: a numbered batch is written "
            "with exactlyOnce=true"
        )
    return family, batch_id


def _client_settings(given: Mapping[str, str], servers: str) -> ClientSettings:
    try:
        security = security_of(given)
    except ValueError as reason:
        raise SinkOptionError(f"The settings of the connection (kafka.*) cannot be obeyed: {reason}") from None
    return ClientSettings(
        bootstrap_servers=servers,
        client_id=given.get("kafka.client.id", "cordwood-spark-sink"),
        request_timeout_ms=_integer(given, "kafka.request.timeout.ms", 30_000, low=1),
        retry_timeout_ms=(
            0
            if _integer(given, "kafka.retries", MAX_INT, low=0) == 0
            else _integer(given, "kafka.delivery.timeout.ms", 120_000, low=0)
        ),
        retry_backoff_ms=_integer(given, "kafka.retry.backoff.ms", 50, low=1),
        retry_backoff_max_ms=_integer(given, "kafka.retry.backoff.max.ms", 1_000, low=1),
        send_buffer_bytes=_integer(given, "kafka.send.buffer.bytes", -1, low=-1),
        receive_buffer_bytes=_integer(given, "kafka.receive.buffer.bytes", -1, low=-1),
        max_request_bytes=_request_bytes(given),
        max_in_flight_bytes=_buffer_bytes(given),
        security=security,
    )


def _request_bytes(given: Mapping[str, str]) -> int:
    return _integer(given, "kafka.max.request.size", 8 << 20, low=1)


def _buffer_bytes(given: Mapping[str, str]) -> int:
    return _integer(given, "kafka.buffer.memory", 32 << 20, low=1, high=MAX_LONG)


def _integer(given: Mapping[str, str], name: str, default: int, *, low: int, high: int = MAX_INT) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SinkOptionError(f"Option '{name}' is {text!r}: use a whole number from {low} to {high}")
    return value


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise SinkOptionError(f"Option '{name}' is {text!r}: use true or false")
    return text.strip().lower() == "true"


def _choice(given: Mapping[str, str], name: str, kinds: type[E], default: E) -> E:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return kinds(text.strip().lower())
    except ValueError:
        values = ", ".join(str(kind.value) for kind in kinds)
        raise SinkOptionError(f"Option '{name}' is {text!r}: use one of {values}") from None
