"""What the broker checks before it takes a batch from a client: the batch is then appended as it is, or not at all.

The header is always checked, and the CRC over everything. Records are opened only where a topic's settings ask about
single records (a compacted topic needs keys, message.timestamp.before.max.ms bounds the oldest record), and a few to
name those that are too late: a batch's cost stays independent of how many records it has.
"""

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.topic_settings import TopicSettings
from cordwood.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
)
from cordwood.records.checksum import crc32c
from cordwood.records.records import CorruptRecords, count_headers, packed_records_in

RecordErrors = tuple[tuple[int, str], ...]

MAX_HEADERS = 500_000
"""So many headers are looked at in one batch, or as many as fit into its bytes: more come only from hostile clients.

It is what an uncompressed batch of the usual max.message.bytes has room for, if all of them are empty.
"""

MAX_OPENED = 500_000
"""So many records are opened in one batch, or as many as fit into its bytes: each holds the loop for 1.5 us."""

_LEAST_RECORD_BYTES = 7

MAX_RECORD_ERRORS = 500
"""So many records at fault are named; then no more are looked at."""

_FEW_RECORDS = 1000
_FEW_BYTES = 256 * 1024
"""Of a batch that is refused anyway so many records, so large once uncompressed, are opened to name those at fault."""

_NO_TIMESTAMP = -1
_UNBOUNDED_MS = 2**63 - 1
_ZSTD = int(Codec.ZSTD)
_OUT_OF_BOUNDS = (
    "Timestamps are further from the broker's clock than message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms allow."
)


class InvalidBatch(ProtocolError):
    """A client's batch that is refused whole; record_errors names the first records at fault by their index in it."""

    def __init__(self, code: ErrorCode, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def check_client_batch(records: Buffer, settings: TopicSettings, now_ms: int) -> BatchHeader:
    """The header of the one batch that a client sent for a partition; InvalidBatch if the log must not take it."""
    size = len(records)
    if size < HEADER_SIZE:
        raise _invalid("a produce request must have exactly one whole record batch per partition")
    header = read_header(records)
    (_, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count) = header
    if magic != MAGIC:
        raise _invalid(f"magic {magic} is not supported: the record batch must have magic {MAGIC}")
    if length + LOG_OVERHEAD != size:
        raise _wrong_length(length, size)
    if size > settings.max_message_bytes:
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size} bytes, max.message.bytes is {settings.max_message_bytes}.",
        )
    if crc32c(memoryview(records)[CRC_START:]) != crc:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "The record batch does not have the CRC that its bytes give.")
    if attributes & (CODEC_MASK | TIMESTAMP_TYPE_BIT | CONTROL_BIT | DELETE_HORIZON_BIT):
        _check_attributes(attributes)
    if count <= 0 or count != last_offset_delta + 1:
        raise _invalid(f"it claims {count} records, but its last offset delta is {last_offset_delta}")
    if producer[0] != -1 or attributes & TRANSACTIONAL_BIT:
        _check_producer(header)
    if settings.message_timestamp_type == "CreateTime":
        latest = now_ms + settings.message_timestamp_after_max_ms
        if max_timestamp > latest or base_timestamp > latest:
            raise _too_late(records, count, settings, now_ms)
        if settings.message_timestamp_before_max_ms < _UNBOUNDED_MS:
            _check_every_record(records, settings, now_ms)
            return header
    if "compact" in settings.cleanup_policy:
        _check_every_record(records, settings, now_ms)
    return header


def _invalid(reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, f"The record batch is not valid: {reason}.")


def _wrong_length(length: int, size: int) -> InvalidBatch:
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"The record batch claims to be {length} bytes long.")
    if length + LOG_OVERHEAD > size:
        return _invalid(f"it claims {length + LOG_OVERHEAD} bytes, {size} were sent")
    return _invalid("a produce request must have exactly one record batch per partition")


def _check_attributes(attributes: int) -> None:
    codec = attributes & CODEC_MASK
    if codec > _ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Codec {codec} is unknown.")
    if attributes & CONTROL_BIT:
        raise _invalid("clients cannot write control records")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            "The record batch says that the broker stamped it (LogAppendTime); only the broker may say so.",
        )
    if attributes & DELETE_HORIZON_BIT:
        raise _invalid("only compaction sets a delete horizon")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id == -1:
        raise _invalid("it is transactional but has no producer id")
    if header.producer_id < 0:
        raise _invalid(f"its producer id is {header.producer_id}")
    if header.producer_epoch < 0:
        raise _invalid(f"it has producer id {header.producer_id} but the producer epoch {header.producer_epoch}")
    if header.base_sequence < 0:
        raise _invalid(f"it has producer id {header.producer_id} but the sequence number {header.base_sequence}")


def _too_late(records: Buffer, count: int, settings: TopicSettings, now_ms: int) -> InvalidBatch:
    """The header's times are enough to refuse a batch: the time index would believe them, whatever its records say."""
    if count <= _FEW_RECORDS:
        try:
            _check_every_record(records, settings, now_ms, _FEW_BYTES)
        except InvalidBatch as refusal:
            if refusal.code is ErrorCode.INVALID_TIMESTAMP:
                return refusal
    return InvalidBatch(ErrorCode.INVALID_TIMESTAMP, _OUT_OF_BOUNDS)


def _check_every_record(records: Buffer, settings: TopicSettings, now_ms: int, max_size: int | None = None) -> None:
    """Opens the batch once and looks at each record; what is wrong is said of many of them together."""
    needs_key = settings.compacted
    has_bounds = not settings.log_append_time
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    without_key: list[int] = []
    out_of_bounds: list[tuple[int, int]] = []
    header = read_header(records)
    base_offset = header.base_offset
    if header.record_count > max(MAX_OPENED, len(records) // _LEAST_RECORD_BYTES):
        # Not INVALID_RECORD: a client that packed so much into one batch takes it apart and sends it again.
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {header.record_count} records; this topic looks at {MAX_OPENED} at most.",
        )
    headers_left = max(MAX_HEADERS, len(records) // 2)
    try:
        for index, (offset, timestamp_ms, key, _, headers) in enumerate(packed_records_in(records, max_size)):
            if headers:
                headers_left -= count_headers(headers, headers_left)
            if offset - base_offset != index:
                raise CorruptRecords("the offsets within it do not count up one by one")
            if key is None and needs_key:
                without_key.append(index)
                if len(without_key) == MAX_RECORD_ERRORS:
                    break
            if has_bounds and not earliest <= timestamp_ms <= latest and timestamp_ms != _NO_TIMESTAMP:
                out_of_bounds.append((index, timestamp_ms))
                if len(out_of_bounds) == MAX_RECORD_ERRORS:
                    break
    except CorruptRecords as error:
        raise _invalid(str(error)) from error
    if without_key:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            "A record without a key cannot be kept on a compacted topic.",
            tuple((index, "Compacted topics need a key.") for index in without_key),
        )
    if out_of_bounds:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            _OUT_OF_BOUNDS,
            tuple(
                (index, f"Timestamp {timestamp_ms} is not within [{earliest}, {latest}].")
                for index, timestamp_ms in out_of_bounds
            ),
        )
