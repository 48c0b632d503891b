"""Builds a batch from records, as a Kafka client does: for internal topics, compaction, the CLI and tests."""

import struct
from collections.abc import Iterable, Sequence

from cordwood.records.batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
    Codec,
)
from cordwood.records.checksum import crc32c
from cordwood.records.compression import compress
from cordwood.records.records import PackedHeaders

RecordHeaders = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, Buffer | None, Buffer | None, RecordHeaders]
"""Timestamp in ms, key, value, headers."""
PackedNewRecord = tuple[int, Buffer | None, Buffer | None, PackedHeaders]

_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_NO_HEADERS = b"\x00"
_NOTHING_SINCE = b"\x00\x00"
"""The start of a record without attributes, with the time of the batch."""


class _Varints(dict[int, bytes]):
    """Zigzag varints by number. Lengths and deltas repeat, so small ones are kept; larger ones are made anew."""

    def __missing__(self, number: int) -> bytes:
        rest = (number << 1) if number >= 0 else ((-number << 1) - 1)
        out = bytearray()
        while rest > 0x7F:
            out.append((rest & 0x7F) | 0x80)
            rest >>= 7
        out.append(rest)
        encoded = bytes(out)
        if -1 <= number < 4096:
            self[number] = encoded
        return encoded


_VARINTS = _Varints()


def build_batch(
    records: Iterable[NewRecord | PackedNewRecord],
    *,
    base_offset: int = 0,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    codec: int = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One whole batch with its CRC.

    Offsets count up from base_offset unless offset_deltas says otherwise (compaction leaves gaps); last_offset_delta
    keeps a batch's end where its last records are gone. delete_horizon_ms takes the base timestamp's place, as the
    format wants it. A batch without records is valid only as compaction's trace of a producer's last batch.
    """
    rows = records if isinstance(records, list) else list(records)
    count = len(rows)
    deltas: Sequence[int] = range(count)
    if offset_deltas is not None:
        deltas = offset_deltas
        if len(deltas) != count:
            raise ValueError(f"{len(deltas)} offset deltas for {count} records")
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if rows else 0
    attributes = codec
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    base_timestamp = rows[0][0] if rows else -1
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = log_append_time_ms
    else:
        max_timestamp = max([row[0] for row in rows], default=-1)

    section = _encode_records(rows, deltas, base_timestamp)
    if codec and rows:
        section = compress(codec, section)
    after_crc = _AFTER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return _sealed(base_offset, leader_epoch, after_crc + section)


def build_batch_of_now(
    records: Sequence[tuple[bytes, bytes | None]],
    wall_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """As build_batch, for keys and values with one common time: the form that coordinators write for nearly every
    request."""
    varints = _VARINTS
    null = varints[-1]
    section = bytearray()
    for delta, (key, value) in enumerate(records):
        body = b"".join(
            (
                _NOTHING_SINCE,
                varints[delta],
                varints[len(key)],
                key,
                null if value is None else varints[len(value)],
                value or b"",
                _NO_HEADERS,
            )
        )
        section += varints[len(body)]
        section += body
    attributes = TRANSACTIONAL_BIT if transactional else 0
    count = len(records)
    after_crc = _AFTER_CRC.pack(attributes, count - 1, wall_ms, wall_ms, producer_id, producer_epoch, -1, count)
    return _sealed(0, -1, after_crc + section)


def _sealed(base_offset: int, leader_epoch: int, covered: bytes) -> bytearray:
    """A whole batch around the bytes that its CRC covers."""
    length = len(covered) + CRC_START - LOG_OVERHEAD
    batch = bytearray(_BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered)))
    batch += covered
    return batch


def _encode_records(
    rows: Sequence[NewRecord | PackedNewRecord], deltas: Sequence[int], base_timestamp: int
) -> bytes | bytearray:
    varints = _VARINTS
    null = varints[-1]
    join = b"".join
    section = bytearray()
    for (timestamp, key, value, headers), delta in zip(rows, deltas, strict=True):
        body = join(
            (
                b"\x00",
                varints[timestamp - base_timestamp],
                varints[delta],
                null if key is None else varints[len(key)],
                b"" if key is None else key,
                null if value is None else varints[len(value)],
                b"" if value is None else value,
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        section += varints[len(body)]
        section += body
    return section


def _encode_headers(headers: RecordHeaders | PackedHeaders) -> bytes:
    if isinstance(headers, PackedHeaders):
        return headers
    varints = _VARINTS
    parts = [varints[len(headers)]]
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts.append(varints[len(encoded)])
        parts.append(encoded)
        if value is None:
            parts.append(varints[-1])
        else:
            parts.append(varints[len(value)])
            parts.append(value)
    return b"".join(parts)
