"""Produce, versions 3 to 13: the request without copying its records, and the response.

`topic` is a name up to version 12 and a topic id from version 13 on, in requests and responses alike.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT32,
    INT32_PAIR,
    MALFORMED,
    Frame,
    array_count,
    check_elements,
    compact_array_count,
    compact_string,
    cut_short,
    not_understood,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_topic_id,
    read_uvarint,
    skip_tagged_fields,
    string,
    tagged_fields,
    trailing_bytes,
)
from cordwood.wire.encoding.primitives import uvarint as encode_uvarint
from cordwood.wire.endpoints import NodeEndpoint, node_endpoints_tag
from cordwood.wire.requests import RequestHeader
from cordwood.wire.widths import max_elements

MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13

_WIDTH: Final = max_elements(ApiKey.PRODUCE)

ProducePartition = tuple[int, memoryview | bytes | None]
"""Partition index and the record batch: a view into the frame, writable if the frame is."""

ProduceTopic = tuple[str | TopicId, list[ProducePartition]]

_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hiB")
_INDEX_LENGTH: Final = Struct(">iB")


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


LONG_NAME_BITS: Final = 8
"""A name counts as one element more for each 256 letters: 100 MB of long names would be read in one turn. The longest
name of a topic has 249 letters."""


def decode_produce(header: RequestHeader, frame: memoryview, max_elements: int = _WIDTH) -> ProduceRequest:
    """Decodes a request. Raises TooManyElements beyond max_elements topics and batches, without reading on."""
    version = header.api_version
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise BadRequest(f"There is no Produce v{version}.")
    try:
        if version >= FLEXIBLE_FROM:
            request, end = _read_flexible(frame, header.body_start, version >= TOPIC_IDS_FROM, max_elements)
        else:
            request, end = _read_old(frame, header.body_start, max_elements)
    except MALFORMED as reason:
        raise not_understood("Produce", version, reason) from None
    if end != len(frame):
        raise trailing_bytes("Produce", version, len(frame) - end)
    return request


def _read_flexible(frame: Frame, position: int, topic_ids: bool, most: int) -> tuple[ProduceRequest, int]:
    # The hottest reader of a broker: counts and lengths of one or two bytes are read in place. A count of one byte
    # needs no check against the bytes that are left, since running into the end after at most 126 elements costs
    # little.
    size = len(frame)
    transactional_id: str | None = None
    if frame[position]:
        transactional_id, position = read_compact_string(frame, position)
    else:
        position += 1
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 7
    if topic_count > 0x7F:
        topic_count, position = read_compact_array_count(frame, position - 1, 3)
    else:
        topic_count -= 1
    if topic_count < 0:
        raise BadRequest("The topics are null.")
    elements = topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        topic: str | TopicId
        if topic_ids:
            topic, position = read_topic_id(frame, position)
        else:
            name, position = read_compact_string(frame, position)
            topic = present(name)
            elements += len(topic) >> LONG_NAME_BITS
        count = frame[position]
        if count > 0x7F:
            count, position = read_compact_array_count(frame, position, 6)
        else:
            count, position = count - 1, position + 1
        if count < 0:
            raise BadRequest("The partitions of a topic are null.")
        elements += count
        if elements > most:
            check_elements(elements, most)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, length = _INDEX_LENGTH.unpack_from(frame, position)
            position += 5
            if length > 0x7F:
                second = frame[position]
                if second < 0x80:
                    length += (second << 7) - 0x80
                    position += 1
                else:
                    length, position = read_uvarint(frame, position - 1)
            if length:
                end = position + length - 1
                if end > size:
                    raise cut_short()
                partitions.append((index, frame[position:end]))
                position = end
            else:
                partitions.append((index, None))
            # The tag buffer is nearly always empty: one byte, 0.
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        topics.append((topic, partitions))
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _read_old(frame: Frame, position: int, most: int) -> tuple[ProduceRequest, int]:
    size = len(frame)
    transactional_id, position = read_string(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_array_count(frame, position + 6, 6)
    if topic_count < 0:
        raise BadRequest("The topics are null.")
    elements = topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, position = read_string(frame, position)
        count, position = read_array_count(frame, position, 8)
        if count < 0:
            raise BadRequest("The partitions of a topic are null.")
        elements += count + (len(present(name)) >> LONG_NAME_BITS)
        if elements > most:
            check_elements(elements, most)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, length = INT32_PAIR.unpack_from(frame, position)
            position += 8
            if length >= 0:
                end = position + length
                if end > size:
                    raise cut_short()
                partitions.append((index, frame[position:end]))
                position = end
            elif length == -1:
                partitions.append((index, None))
            else:
                raise BadRequest("Records have a negative length.")
        topics.append((present(name), partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


class ProducedPartition(NamedTuple):
    """The result of one partition's batch. Fields that a version does not have are left out of its bytes."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    """-1 unless the topic has LogAppendTime."""
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """Index within the batch and message, for each record that made the batch fail."""
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch, for a producer that is at the wrong broker (version 10 and later)."""


_V3: Final = Struct(">ihqq")
_V5: Final = Struct(">ihqqq")
_V8_PLAIN: Final = Struct(">ihqqqih")
_V9_PLAIN: Final = Struct(">ihqqqBBB")
_START: Final = Struct(">iiB")
_THROTTLE_TAGS: Final = Struct(">iB")


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | TopicId, Sequence[ProducedPartition]]],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole frame, with its size."""
    if version < FLEXIBLE_FROM:
        return _encode_old(version, correlation_id, topics, throttle_time_ms)
    parts: list[bytes] = [b"", compact_array_count(len(topics))]
    for topic, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            assert not isinstance(topic, str), topic
            parts.append(topic.bytes)
        else:
            assert isinstance(topic, str), topic
            parts.append(compact_string(topic))
        parts.append(compact_array_count(len(partitions)))
        for partition in partitions:
            index, code, base_offset, append_time_ms, log_start, errors, message, leader = partition
            if not errors and message is None and leader is None:
                # No record errors (an empty compact array is 1), no message (null is 0), no tags.
                parts.append(_V9_PLAIN.pack(index, code, base_offset, append_time_ms, log_start, 1, 0, 0))
            else:
                parts.append(_flexible_failure(version, partition))
        parts.append(b"\x00")
    if node_endpoints and version >= 10:
        parts.append(INT32.pack(throttle_time_ms) + tagged_fields([(0, node_endpoints_tag(node_endpoints))]))
    else:
        parts.append(_THROTTLE_TAGS.pack(throttle_time_ms, 0))
    body = b"".join(parts)
    return _START.pack(len(body) + 5, correlation_id, 0) + body


def _flexible_failure(version: int, partition: ProducedPartition) -> bytes:
    parts = [_V5.pack(*partition[:5]), encode_uvarint(len(partition.record_errors) + 1)]
    for index, message in partition.record_errors:
        parts += (INT32.pack(index), compact_string(message), b"\x00")
    parts.append(compact_string(partition.error_message))
    leader = partition.current_leader
    if leader is not None and version >= 10 and leader != (-1, -1):
        # A struct within a tag has a tag buffer of its own, here an empty one.
        parts.append(tagged_fields([(0, INT32_PAIR.pack(*leader) + b"\x00")]))
    else:
        parts.append(b"\x00")
    return b"".join(parts)


def _encode_old(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | TopicId, Sequence[ProducedPartition]]],
    throttle_time_ms: int,
) -> bytes:
    parts: list[bytes] = [array_count(len(topics))]
    for topic, partitions in topics:
        assert isinstance(topic, str), topic
        parts += (string(topic), array_count(len(partitions)))
        for partition in partitions:
            if version >= 8:
                if partition.record_errors or partition.error_message is not None:
                    parts += (_V5.pack(*partition[:5]), array_count(len(partition.record_errors)))
                    for index, message in partition.record_errors:
                        parts += (INT32.pack(index), string(message))
                    parts.append(string(partition.error_message))
                else:
                    parts.append(_V8_PLAIN.pack(*partition[:5], 0, -1))
            elif version >= 5:
                parts.append(_V5.pack(*partition[:5]))
            else:
                parts.append(_V3.pack(*partition[:4]))
    parts.append(INT32.pack(throttle_time_ms))
    body = b"".join(parts)
    return INT32_PAIR.pack(len(body) + 4, correlation_id) + body
