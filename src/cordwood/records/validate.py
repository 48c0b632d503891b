"""Checks a client's batch before the append: the batch is appended as it is, or not at all.

The header is always checked, and the CRC over everything. Records are opened only where a topic's settings ask about
single records (a compacted topic needs keys, message.timestamp.before.max.ms bounds the oldest record), and a few to
name records that are too late: the cost of a batch stays independent of its number of records. A broker checks many
records in another process, and marks the batch (`LookedAt`).
"""

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.topic_settings import NO_LIMIT, TopicSettings
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
from cordwood.records.record_rules import (
    OUT_OF_BOUNDS,
    LookedAt,
    RecordErrors,
    RecordRules,
    Refusal,
    look,
    look_briefly,
    rules_of,
)
from cordwood.records.records import LEAST_RECORD_BYTES, max_record_count

_FEW_RECORDS = 1000
_FEW_BYTES = 256 * 1024
"""The most records and uncompressed bytes of a refused batch that are opened to name the records at fault."""

_ZSTD = int(Codec.ZSTD)


class InvalidBatch(ProtocolError):
    """A client's batch that is refused whole; record_errors names the first records at fault by their index in it."""

    def __init__(self, code: ErrorCode, message: str, record_errors: RecordErrors = ()) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def check_client_batch(records: Buffer, settings: TopicSettings, wall_ms: int) -> BatchHeader:
    """The header of the one batch that a client sent for a partition. Raises InvalidBatch to refuse it."""
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
    if count * LEAST_RECORD_BYTES > size - HEADER_SIZE:
        _check_record_count(count, size - HEADER_SIZE, attributes & CODEC_MASK)
    if producer[0] != -1 or attributes & TRANSACTIONAL_BIT:
        _check_producer(header)
    if settings.message_timestamp_type == "CreateTime":
        latest = wall_ms + settings.message_timestamp_after_max_ms
        if max_timestamp > latest or base_timestamp > latest:
            raise _too_late(records, rules_of(settings, wall_ms))
        if settings.message_timestamp_before_max_ms < NO_LIMIT:
            _check_every_record(records, settings, wall_ms)
            return header
    if "compact" in settings.cleanup_policy:
        _check_every_record(records, settings, wall_ms)
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


def _too_late(records: Buffer, rules: RecordRules) -> InvalidBatch:
    """Refuses a batch by the times in its header: the time index would believe them, whatever the records have."""
    brief = look_briefly(records, rules, max_records=_FEW_RECORDS, max_bytes=_FEW_BYTES, max_headers=_FEW_RECORDS)
    if brief is not None and brief.refusal is not None and brief.refusal.code == ErrorCode.INVALID_TIMESTAMP:
        return refused(brief.refusal)
    return InvalidBatch(ErrorCode.INVALID_TIMESTAMP, OUT_OF_BOUNDS)


def _check_every_record(records: Buffer, settings: TopicSettings, wall_ms: int) -> None:
    if isinstance(records, memoryview) and isinstance(records.obj, LookedAt):
        return
    refusal = look(records, rules_of(settings, wall_ms)).refusal
    if refusal is not None:
        raise refused(refusal)


def _check_record_count(count: int, section_bytes: int, codec: int) -> None:
    """A count that the bytes cannot hold would move the log's end, and begin segments, for next to nothing."""
    most = max_record_count(section_bytes, codec)
    if count > most:
        raise _invalid(f"it claims {count} records, and its {section_bytes} bytes can hold {most} at most")


def refused(refusal: Refusal) -> InvalidBatch:
    return InvalidBatch(ErrorCode(refusal.code), refusal.message, refusal.record_errors)
