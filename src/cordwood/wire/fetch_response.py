"""A Fetch response as a client reads it, versions 4 to 18: records are views into the frame, never copies."""

from struct import Struct
from typing import Final, NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import response_body_start, unreadable
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT32,
    MALFORMED,
    cut_short,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_tagged_fields,
    read_topic_id,
    read_uvarint,
    skip_tagged_fields,
)
from cordwood.wire.fetch import FLEXIBLE_FROM, MAX_VERSION, MIN_VERSION, SESSIONS_FROM, TOPIC_IDS_FROM
from cordwood.wire.fetched import FetchedPartition

_START: Final = Struct(">ihi")
_FOUND_V4: Final = Struct(">ihqq")
_FOUND_V5: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_LEADER: Final = Struct(">ii")


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[str | TopicId, list[FetchedPartition]]]


def decode_fetch_response(version: int, frame: memoryview) -> FetchResponse:
    """Decodes a response. The records of a partition are a view into the frame, which lives as long as they do."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    position = response_body_start(ApiKey.FETCH, version, frame)
    read = _read_flexible if version >= FLEXIBLE_FROM else _read_old
    try:
        response, end = read(frame, position, version)
    except (*MALFORMED, BadRequest) as reason:
        raise unreadable(ApiKey.FETCH, version, reason) from None
    if end != len(frame):
        raise unreadable(ApiKey.FETCH, version, f"{len(frame) - end} bytes follow it that are not part of it")
    return response


def _read_flexible(frame: memoryview, position: int, version: int) -> tuple[FetchResponse, int]:
    throttle_time_ms, error_code, session_id = _START.unpack_from(frame, position)
    topic_count, position = read_compact_array_count(frame, position + _START.size, 3)
    topics: list[tuple[str | TopicId, list[FetchedPartition]]] = []
    for _ in range(topic_count):
        topic: str | TopicId
        if version >= TOPIC_IDS_FROM:
            topic, position = read_topic_id(frame, position)
        else:
            name, position = read_compact_string(frame, position)
            topic = present(name)
        count, position = read_compact_array_count(frame, position, _FOUND_V5.size)
        partitions: list[FetchedPartition] = []
        for _ in range(count):
            partition, position = _read_flexible_partition(frame, position)
            partitions.append(partition)
        position = skip_tagged_fields(frame, position)
        topics.append((topic, partitions))
    position = skip_tagged_fields(frame, position)
    return FetchResponse(throttle_time_ms, error_code, session_id, topics), position


def _read_flexible_partition(frame: memoryview, position: int) -> tuple[FetchedPartition, int]:
    partition, code, high_watermark, stable, log_start = _FOUND_V5.unpack_from(frame, position)
    aborted_count, position = read_compact_array_count(frame, position + _FOUND_V5.size, _ABORTED.size + 1)
    aborted: list[tuple[int, int]] | None = None if aborted_count < 0 else []
    for _ in range(aborted_count):
        assert aborted is not None
        aborted.append(_ABORTED.unpack_from(frame, position))
        position = skip_tagged_fields(frame, position + _ABORTED.size)
    (replica,) = INT32.unpack_from(frame, position)
    length, position = read_uvarint(frame, position + 4)
    records, position = _records(frame, position, length - 1)
    current_leader: tuple[int, int] | None = None
    if frame[position] == 0:
        position += 1
    else:
        tags, position = read_tagged_fields(frame, position)
        if 1 in tags:
            leader_id, leader_epoch = _LEADER.unpack_from(frame, tags[1][0])
            current_leader = leader_id, leader_epoch
    found = FetchedPartition(
        partition, code, high_watermark, stable, log_start, records, aborted, replica, current_leader=current_leader
    )
    return found, position


def _read_old(frame: memoryview, position: int, version: int) -> tuple[FetchResponse, int]:
    error_code, session_id = 0, 0
    if version >= SESSIONS_FROM:
        throttle_time_ms, error_code, session_id = _START.unpack_from(frame, position)
        position += _START.size
    else:
        (throttle_time_ms,) = INT32.unpack_from(frame, position)
        position += 4
    layout = _FOUND_V5 if version >= 5 else _FOUND_V4
    topic_count, position = read_array_count(frame, position, 6)
    topics: list[tuple[str | TopicId, list[FetchedPartition]]] = []
    for _ in range(topic_count):
        name, position = read_string(frame, position)
        count, position = read_array_count(frame, position, layout.size)
        partitions: list[FetchedPartition] = []
        for _ in range(count):
            partition, position = _read_old_partition(frame, position, version, layout)
            partitions.append(partition)
        topics.append((present(name), partitions))
    return FetchResponse(throttle_time_ms, error_code, session_id, topics), position


def _read_old_partition(frame: memoryview, position: int, version: int, layout: Struct) -> tuple[FetchedPartition, int]:
    partition, code, high_watermark, stable, *rest = layout.unpack_from(frame, position)
    log_start = rest[0] if rest else -1
    aborted_count, position = read_array_count(frame, position + layout.size, _ABORTED.size)
    aborted: list[tuple[int, int]] | None = None
    if aborted_count >= 0:
        end = position + aborted_count * _ABORTED.size
        aborted = list(_ABORTED.iter_unpack(frame[position:end]))
        position = end
    replica = -1
    if version >= 11:
        (replica,) = INT32.unpack_from(frame, position)
        position += 4
    (length,) = INT32.unpack_from(frame, position)
    records, position = _records(frame, position + 4, length)
    found = FetchedPartition(partition, code, high_watermark, stable, log_start, records, aborted, replica)
    return found, position


def _records(frame: memoryview, position: int, length: int) -> tuple[memoryview | None, int]:
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise cut_short()
    return frame[position:end], end
