"""Fetch responses, versions 4 to 18, around records that need not be in memory.

`topic` is a name up to version 12 and a topic id from version 13 on. `fetch` reads the requests.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.encoding.primitives import (
    INT32,
    INT32_PAIR,
    NO_TAGS,
    array_count,
    compact_array_count,
    compact_string,
    string,
    tagged_fields,
    uvarint,
)
from cordwood.wire.endpoints import NodeEndpoint, node_endpoints_tag
from cordwood.wire.fetch import FLEXIBLE_FROM, PARTITIONS_PER_STEP, SESSIONS_FROM, TOPIC_IDS_FROM


class SizedPart(Protocol):
    """Records outside of memory, such as in a file: the sender of the response puts `length` bytes in this place."""

    @property
    def length(self) -> int: ...


Bytes = bytes | bytearray | memoryview
_IN_MEMORY: Final = (bytes, bytearray, memoryview)
Part = Bytes | SizedPart


class FetchedPartition(NamedTuple):
    """The result of a fetch from one partition. Fields that a version does not have are left out of its bytes."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Part | None = b""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of each aborted transaction; None for readers of uncommitted records."""
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and its end offset (version 12 and later)."""
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch (version 12 and later)."""
    snapshot_id: tuple[int, int] | None = None
    """End offset and epoch (version 12 and later)."""
    dropped_deletions: tuple[int, int] | None = None
    """For followers: mark and highest offset of the deletions that the log lacks (version 12 and later)."""

    def without_records(self) -> "FetchedPartition":
        return self._replace(records=b"", aborted_transactions=None if self.aborted_transactions is None else ())


FetchedTopics = Sequence[tuple[str | TopicId, Sequence[FetchedPartition]]]

JOIN_BELOW_BYTES: Final = 8192
"""Records in memory that are smaller than this are copied into their neighbours: a part costs more than the copy."""

_START_V4: Final = Struct(">iii")
_START_V7: Final = Struct(">iiihi")
_START_V12: Final = Struct(">iiBihi")
_FOUND_V4: Final = Struct(">ihqqi")
_FOUND_V5: Final = Struct(">ihqqqi")
_FOUND_V12: Final = Struct(">ihqqqBi")
_FOUND_V12_ABORTED: Final = Struct(">ihqqq")
_FOUND_V12_EMPTY: Final = Struct(">ihqqqBiBB")
_ABORTED: Final = Struct(">qq")
_ABORTED_V12: Final = Struct(">qqB")
_DIVERGING: Final = Struct(">iqB")
_LEADER: Final = Struct(">iiB")
_SNAPSHOT: Final = Struct(">qiB")
_DROPPED: Final = Struct(">qqB")


class _Body:
    """The parts of a response: chunks of bytes are joined; records outside of memory stay parts of their own."""

    __slots__ = ("chunks", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.chunks: list[Bytes] = []
        self.size = 0

    def add_records(self, records: Part, length: int) -> None:
        if length < JOIN_BELOW_BYTES and isinstance(records, _IN_MEMORY):
            self.chunks.append(records)
            return
        self.finish()
        self.parts.append(records)
        self.size += length

    def finish(self) -> int:
        joined = b"".join(self.chunks)
        self.chunks.clear()
        self.parts.append(joined)
        self.size += len(joined)
        return self.size


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: FetchedTopics,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """The whole frame as parts to send one after another. The first part has the size prefix of all."""
    body = _Body()
    chunks = body.chunks
    if version >= FLEXIBLE_FROM:
        chunks.append(compact_array_count(len(topics)))
        for topic, partitions in topics:
            _write_topic(chunks, version, topic, len(partitions))
            _write_partitions(body, partitions)
            chunks.append(NO_TAGS)
    else:
        chunks.append(array_count(len(topics)))
        for topic, partitions in topics:
            _write_old_topic(chunks, topic, len(partitions))
            _write_old_partitions(body, version, partitions)
    return _framed(body, version, correlation_id, error_code, session_id, throttle_time_ms, node_endpoints)


def encode_fetch_in_steps(
    version: int,
    correlation_id: int,
    topics: FetchedTopics,
    *,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Generator[None, None, list[Part]]:
    """Like `encode_fetch_response`, with a pause after each step of partitions."""
    body = _Body()
    chunks = body.chunks
    flexible = version >= FLEXIBLE_FROM
    chunks.append(compact_array_count(len(topics)) if flexible else array_count(len(topics)))
    left = PARTITIONS_PER_STEP
    for topic, partitions in topics:
        if flexible:
            _write_topic(chunks, version, topic, len(partitions))
        else:
            _write_old_topic(chunks, topic, len(partitions))
        left -= 1
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            some = partitions[start : start + PARTITIONS_PER_STEP]
            if flexible:
                _write_partitions(body, some)
            else:
                _write_old_partitions(body, version, some)
            left -= len(some)
            if left <= 0:
                left = PARTITIONS_PER_STEP
                yield
        if flexible:
            chunks.append(NO_TAGS)
    return _framed(body, version, correlation_id, 0, session_id, 0, node_endpoints)


def _framed(
    body: _Body,
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> list[Part]:
    """The parts of the frame around these topics."""
    if version >= FLEXIBLE_FROM:
        if node_endpoints and version >= 16:
            body.chunks.append(tagged_fields([(0, node_endpoints_tag(node_endpoints))]))
        else:
            body.chunks.append(NO_TAGS)
        size = body.finish() + _START_V12.size - 4
        start = _START_V12.pack(size, correlation_id, 0, throttle_time_ms, error_code, session_id)
    elif version >= SESSIONS_FROM:
        size = body.finish() + _START_V7.size - 4
        start = _START_V7.pack(size, correlation_id, throttle_time_ms, error_code, session_id)
    else:
        start = _START_V4.pack(body.finish() + _START_V4.size - 4, correlation_id, throttle_time_ms)
    parts = body.parts
    parts[0] = start + parts[0]  # type: ignore[operator]
    return parts


def _length(records: Part | None) -> int:
    if records is None:
        return -1
    return len(records) if isinstance(records, _IN_MEMORY) else records.length


def _write_topic(chunks: list[Bytes], version: int, topic: str | TopicId, partition_count: int) -> None:
    if version >= TOPIC_IDS_FROM:
        assert not isinstance(topic, str), topic
        chunks.append(topic.bytes)
    else:
        assert isinstance(topic, str), topic
        chunks.append(compact_string(topic))
    chunks.append(compact_array_count(partition_count))


def _write_partitions(body: _Body, partitions: Sequence[FetchedPartition]) -> None:
    chunks = body.chunks
    for partition in partitions:
        (
            index,
            code,
            high_watermark,
            stable,
            log_start,
            records,
            aborted,
            replica,
            divergence,
            leader,
            snapshot,
            drops,
        ) = partition
        length = _length(records)
        tagged = divergence is not None or leader is not None or snapshot is not None or drops is not None
        if aborted:
            chunks.append(_FOUND_V12_ABORTED.pack(index, code, high_watermark, stable, log_start))
            chunks.append(compact_array_count(len(aborted)))
            chunks.extend(_ABORTED_V12.pack(producer_id, offset, 0) for producer_id, offset in aborted)
            chunks.append(INT32.pack(replica))
        else:
            # Null is 0 in a compact array, and empty is 1; the same holds for records.
            absent = 0 if aborted is None else 1
            if length == 0 and not tagged:
                chunks.append(
                    _FOUND_V12_EMPTY.pack(index, code, high_watermark, stable, log_start, absent, replica, 1, 0)
                )
                continue
            chunks.append(_FOUND_V12.pack(index, code, high_watermark, stable, log_start, absent, replica))
        chunks.append(uvarint(length + 1))
        if records is not None and length:
            body.add_records(records, length)
        chunks.append(_partition_tags(partition) if tagged else NO_TAGS)


def _partition_tags(partition: FetchedPartition) -> bytes:
    # A struct within a tag has a tag buffer of its own: the 0 at its end. Default values are not sent.
    fields: list[tuple[int, bytes]] = []
    if partition.diverging_epoch not in (None, (-1, -1)):
        fields.append((0, _DIVERGING.pack(*partition.diverging_epoch, 0)))
    if partition.current_leader not in (None, (-1, -1)):
        fields.append((1, _LEADER.pack(*partition.current_leader, 0)))
    if partition.snapshot_id not in (None, (-1, -1)):
        fields.append((2, _SNAPSHOT.pack(*partition.snapshot_id, 0)))
    if partition.dropped_deletions is not None:
        fields.append((10000, _DROPPED.pack(*partition.dropped_deletions, 0)))
    return tagged_fields(fields)


def _write_old_topic(chunks: list[Bytes], topic: str | TopicId, partition_count: int) -> None:
    assert isinstance(topic, str), topic
    chunks.append(string(topic))
    chunks.append(array_count(partition_count))


def _write_old_partitions(body: _Body, version: int, partitions: Sequence[FetchedPartition]) -> None:
    chunks = body.chunks
    for partition in partitions:
        records, aborted = partition.records, partition.aborted_transactions
        length = _length(records)
        aborted_count = -1 if aborted is None else len(aborted)
        if version >= 5:
            chunks.append(_FOUND_V5.pack(*partition[:5], aborted_count))
        else:
            chunks.append(_FOUND_V4.pack(*partition[:4], aborted_count))
        if aborted:
            chunks.extend(_ABORTED.pack(*transaction) for transaction in aborted)
        if version >= 11:
            chunks.append(INT32_PAIR.pack(partition.preferred_read_replica, length))
        else:
            chunks.append(INT32.pack(length))
        if records is not None and length:
            body.add_records(records, length)
