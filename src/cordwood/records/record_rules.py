"""The rules of a topic for single records: a key on a compacted topic, times within message.timestamp.*.max.ms.

Reading a record costs a microsecond of Python, so no thread of a broker reads a whole batch: `look_briefly` stops at a
bound; `look` reads to the end and belongs in another process. Both return plain values.
"""

from typing import NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import Buffer, read_header
from cordwood.records.corruption import CorruptRecords, TooMuchToOpen
from cordwood.records.records import LEAST_RECORD_BYTES, count_headers, packed_records_in, uncompressed_records

MAX_HEADERS = 500_000
"""The most headers that are read in one batch, or as many as fit into its bytes: more come only from hostile clients.

An uncompressed batch of the usual max.message.bytes has room for so many empty headers.
"""

MAX_OPENED = 500_000
"""The most records that are read in one batch, or as many as fit into its bytes."""

MAX_RECORD_ERRORS = 500
"""The most records at fault that are named; then the check ends."""

OUT_OF_BOUNDS = (
    "Timestamps are further from the broker's clock than message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms allow."
)

_NO_TIMESTAMP = -1

RecordErrors = tuple[tuple[int, str], ...]


class RecordRules(NamedTuple):
    """The rules for each record of a batch."""

    needs_key: bool
    times_ms: tuple[int, int] | None
    """The earliest and the latest timestamp; None: any."""


class LookedAt(bytearray):
    """A batch whose records were checked and follow the topic's rules: the type tells the log not to check again."""


class Refusal(NamedTuple):
    """The reason why a batch is refused, and its first records at fault, by index."""

    code: int
    message: str
    record_errors: RecordErrors = ()


class Look(NamedTuple):
    """The result of a check of records, and how much was opened for it."""

    refusal: Refusal | None
    records: int = 0
    uncompressed_bytes: int = 0
    headers: int = 0


def rules_of(settings: TopicSettings, wall_ms: int) -> RecordRules:
    """The topic's rules for records that arrive now."""
    times_ms = None
    if not settings.log_append_time:
        times_ms = (
            wall_ms - settings.message_timestamp_before_max_ms,
            wall_ms + settings.message_timestamp_after_max_ms,
        )
    return RecordRules(settings.compacted, times_ms)


def look(batch: Buffer, rules: RecordRules) -> Look:
    """Checks every record of a batch. A million records take a second, so callers use another process."""
    count = read_header(batch).record_count
    if count > max(MAX_OPENED, len(batch) // LEAST_RECORD_BYTES):
        # The code is not INVALID_RECORD: with this one a client splits the batch and sends it again.
        message = f"The record batch has {count} records; this topic looks at {MAX_OPENED} at most."
        return Look(Refusal(int(ErrorCode.MESSAGE_TOO_LARGE), message))
    try:
        return _look(batch, rules, None, max(MAX_HEADERS, len(batch) // 2))
    except CorruptRecords as error:
        return Look(Refusal(ErrorCode.INVALID_RECORD, f"The record batch is not valid: {error}."))


def look_briefly(
    batch: Buffer, rules: RecordRules, *, max_records: int, max_bytes: int, max_headers: int
) -> Look | None:
    """As `look`, but None if the check would open more than these bounds."""
    if read_header(batch).record_count > max_records:
        return None
    try:
        return _look(batch, rules, max_bytes, max_headers)
    except TooMuchToOpen:
        return None
    except CorruptRecords as error:
        return Look(Refusal(ErrorCode.INVALID_RECORD, f"The record batch is not valid: {error}."))


def _look(batch: Buffer, rules: RecordRules, max_size: int | None, max_headers: int) -> Look:
    needs_key, times_ms = rules
    earliest, latest = times_ms if times_ms is not None else (0, 0)
    without_key: list[int] = []
    out_of_bounds: list[tuple[int, int]] = []
    base_offset = read_header(batch).base_offset
    uncompressed = uncompressed_records(batch, max_size)
    if max_size is not None and len(uncompressed) > max_size:
        raise TooMuchToOpen(f"{len(uncompressed)} bytes of records are more than {max_size}")
    headers_left = max_headers
    index = -1
    for index, (offset, timestamp_ms, key, _, headers) in enumerate(
        packed_records_in(batch, uncompressed=uncompressed)
    ):
        if headers:
            headers_left -= count_headers(headers, headers_left)
        if offset - base_offset != index:
            raise CorruptRecords("the offsets within it do not count up one by one")
        if key is None and needs_key:
            without_key.append(index)
            if len(without_key) == MAX_RECORD_ERRORS:
                break
        if times_ms is not None and not earliest <= timestamp_ms <= latest and timestamp_ms != _NO_TIMESTAMP:
            out_of_bounds.append((index, timestamp_ms))
            if len(out_of_bounds) == MAX_RECORD_ERRORS:
                break
    refusal = None
    if without_key:
        errors = tuple((index, "Compacted topics need a key.") for index in without_key)
        refusal = Refusal(
            ErrorCode.INVALID_RECORD, "A record without a key cannot be kept on a compacted topic.", errors
        )
    elif out_of_bounds:
        errors = tuple(
            (index, f"Timestamp {timestamp_ms} is not within [{earliest}, {latest}].")
            for index, timestamp_ms in out_of_bounds
        )
        refusal = Refusal(ErrorCode.INVALID_TIMESTAMP, OUT_OF_BOUNDS, errors)
    return Look(refusal, index + 1, len(uncompressed), max_headers - headers_left)
