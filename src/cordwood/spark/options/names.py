"""The names of the source's options, and messages about unknown names.

Spark hands options over in lower case; messages and documentation use the spelling of Spark's Kafka source.
"""

import difflib
from collections.abc import Iterable

SUBSCRIBE = "subscribe"
SUBSCRIBE_PATTERN = "subscribePattern"
ASSIGN = "assign"
STARTING_OFFSETS = "startingOffsets"
STARTING_TIMESTAMP = "startingTimestamp"
STARTING_OFFSETS_BY_TIMESTAMP = "startingOffsetsByTimestamp"
STARTING_STRATEGY = "startingOffsetsByTimestampStrategy"
ENDING_OFFSETS = "endingOffsets"
ENDING_TIMESTAMP = "endingTimestamp"
ENDING_OFFSETS_BY_TIMESTAMP = "endingOffsetsByTimestamp"
STOP_AT_OFFSETS = "stopAtOffsets"
CONTINUE_AT_OFFSETS = "continueAtOffsets"
GROUP = "group"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
INCLUDE_HEADERS = "includeHeaders"
INCLUDE_ORIGIN = "includeOrigin"
MIN_PARTITIONS = "minPartitions"
MAX_RECORDS_PER_PARTITION = "maxRecordsPerPartition"
WHOLE_PARTITIONS = "wholePartitions"
MAX_OFFSETS_PER_TRIGGER = "maxOffsetsPerTrigger"
MIN_OFFSETS_PER_TRIGGER = "minOffsetsPerTrigger"
MAX_TRIGGER_DELAY = "maxTriggerDelay"
MAX_BYTES_PER_TRIGGER = "maxBytesPerTrigger"
GROUP_ID_PREFIX = "groupIdPrefix"
PROGRESS_GROUP = "progressGroup"
POLL_TIMEOUT_MS = "kafkaConsumer.pollTimeoutMs"
FETCH_OFFSET_RETRIES = "fetchOffset.numRetries"
FETCH_OFFSET_RETRY_INTERVAL_MS = "fetchOffset.retryIntervalMs"

OPTIONS = (
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_STRATEGY,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    ENDING_OFFSETS_BY_TIMESTAMP,
    STOP_AT_OFFSETS,
    CONTINUE_AT_OFFSETS,
    GROUP,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    INCLUDE_ORIGIN,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    WHOLE_PARTITIONS,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MAX_BYTES_PER_TRIGGER,
    GROUP_ID_PREFIX,
    PROGRESS_GROUP,
    POLL_TIMEOUT_MS,
    FETCH_OFFSET_RETRIES,
    FETCH_OFFSET_RETRY_INTERVAL_MS,
)
"""Every option of a read besides the `kafka.*` keys: all of Spark's Kafka source, and some more."""

WITHOUT_EFFECT = {
    "topic": f"it names the topic of a write; a read uses {SUBSCRIBE}",
    FETCH_OFFSET_RETRIES: "attempts are bounded by time, see kafka.default.api.timeout.ms",
}
"""Options of Spark's Kafka source that have no effect here, with the reason for the warning."""

EXTRA_COLUMNS = {
    INCLUDE_HEADERS: ("headers",),
    INCLUDE_ORIGIN: ("producerId", "producerEpoch", "sequence", "transactional", "control"),
}
"""Options that add columns."""

STREAMING_ONLY = (
    STOP_AT_OFFSETS,
    CONTINUE_AT_OFFSETS,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MAX_BYTES_PER_TRIGGER,
    GROUP_ID_PREFIX,
    PROGRESS_GROUP,
)

REFUSED = {
    "path": f"there is no path to load from: name topics with {SUBSCRIBE}, {SUBSCRIBE_PATTERN} or {ASSIGN}",
}
"""Options that people often bring along, with the reason for the refusal."""

SPELLING = {name.lower(): name for name in (*OPTIONS, *WITHOUT_EFFECT, *REFUSED)}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean subscribe?`, or nothing if no known name is similar."""
    spelling = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), spelling, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(spelling[match] for match in near)}?" if near else ""
