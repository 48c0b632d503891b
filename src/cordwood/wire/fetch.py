"""Fetch requests, versions 4 to 18, in one go or in steps.

`topic` is a name up to version 12 and a topic id from version 13 on. `fetched` writes the responses.
"""

from collections.abc import Callable, Generator
from struct import Struct
from typing import Final, NamedTuple

from cordwood.model.identifiers import (
    CLIENT,
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
)
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT64,
    MALFORMED,
    Frame,
    check_elements,
    not_understood,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_tagged_fields,
    read_topic_id,
    skip_tagged_fields,
    trailing_bytes,
)
from cordwood.wire.requests import RequestHeader
from cordwood.wire.widths import max_elements

MIN_VERSION: Final = 4
MAX_VERSION: Final = 18
SESSIONS_FROM: Final = 7
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13

_WIDTH: Final = max_elements(ApiKey.FETCH)

NO_SESSION: Final = (0, -1)
"""Session id and epoch of a request without a session."""

UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1
"""The high watermark of a replica that does not name one."""


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    """The follower's log start; -1 from a consumer."""
    max_bytes: int
    replica_directory_id: TopicId | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


FetchTopics = list[tuple[str | TopicId, list[FetchPartition]]]
Forgotten = list[tuple[str | TopicId, tuple[int, ...]]]
"""Topics and the partitions of each that leave the session."""


class FetchRequest(NamedTuple):
    replica_id: BrokerId
    """-1: a consumer."""
    replica_epoch: BrokerEpoch
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    """0: read uncommitted, 1: read committed."""
    session_id: int
    session_epoch: int
    topics: FetchTopics
    forgotten: Forgotten
    rack_id: str
    cluster_id: str | None


# Before the topics: replica id, max wait, min bytes, max bytes, isolation level, session id and epoch.
_HEAD_V4: Final = Struct(">iiiib")
_HEAD_V7: Final = Struct(">iiiibii")
_HEAD_V15: Final = Struct(">iiibii")

PARTITIONS_PER_STEP: Final = 500
"""Partitions in one step, at about a microsecond each."""

LimitsAndSession = tuple[int, int, int, int, int, int]
_Head = tuple[BrokerId, LimitsAndSession]
"""The replica id and the other fields before the topics."""

_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")
_OLD_PARTITIONS: Final = {
    version: _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    for version in range(MIN_VERSION, FLEXIBLE_FROM)
}
_REPLICA_STATE: Final = Struct(">iq")

# Readers without sessions send every partition with every fetch, and the constructor of a named tuple would be half of
# the cost of each.
_new_tuple: Final = tuple.__new__
# Most requests forget no topics, and most readers have no rack: the byte for these is tested in place.
_NO_ELEMENTS: Final = 1
_NO_BYTES: Final = 1
_OLD_NO_ELEMENTS: Final = bytes(4)
_NOTHING_TAGGED: Final = (None, UNKNOWN_HIGH_WATERMARK)


def decode_fetch(header: RequestHeader, frame: Frame) -> FetchRequest:
    """Decodes a narrow request in one go."""
    version = header.api_version
    read_head, read_topic, read_partitions, read_end = _layout_of(version)
    try:
        head, count, position = read_head(frame, header.body_start, version)
        topics: FetchTopics = []
        elements = count
        for _ in range(count):
            topic, partition_count, position = read_topic(frame, position, version)
            elements += partition_count
            check_elements(elements, _WIDTH)
            partitions: list[FetchPartition] = []
            position = read_partitions(frame, position, version, partition_count, partitions)
            if version < FLEXIBLE_FROM:
                pass
            elif frame[position] == 0:
                position += 1
            else:
                position = skip_tagged_fields(frame, position)
            topics.append((topic, partitions))
        forgotten, position = _nothing_forgotten(frame, position, version)
        if forgotten is None:
            forgotten, position = _at_once(_read_forgotten(frame, position, version))
        request, end = read_end(frame, position, version, head, topics, forgotten)
    except MALFORMED as reason:
        raise not_understood("Fetch", version, reason) from None
    if end != len(frame):
        raise trailing_bytes("Fetch", version, len(frame) - end)
    return request


def decode_fetch_in_steps(header: RequestHeader, frame: Frame) -> Generator[None, None, FetchRequest]:
    """Like `decode_fetch`, with a pause after each step of partitions. The frame must stay until the end."""
    version = header.api_version
    read_head, read_topic, read_partitions, read_end = _layout_of(version)
    try:
        head, count, position = read_head(frame, header.body_start, version)
        topics: FetchTopics = []
        elements = count
        left = PARTITIONS_PER_STEP
        for _ in range(count):
            topic, partition_count, position = read_topic(frame, position, version)
            elements += partition_count
            check_elements(elements, _WIDTH)
            left -= 1
            partitions: list[FetchPartition] = []
            while len(partitions) < partition_count:
                some = min(partition_count - len(partitions), PARTITIONS_PER_STEP)
                position = read_partitions(frame, position, version, some, partitions)
                left -= some
                if left <= 0:
                    left = PARTITIONS_PER_STEP
                    yield
            if left <= 0:
                left = PARTITIONS_PER_STEP
                yield
            if version >= FLEXIBLE_FROM:
                position = skip_tagged_fields(frame, position)
            topics.append((topic, partitions))
        forgotten, position = _nothing_forgotten(frame, position, version)
        if forgotten is None:
            forgotten, position = yield from _read_forgotten(frame, position, version)
        request, end = read_end(frame, position, version, head, topics, forgotten)
    except MALFORMED as reason:
        raise not_understood("Fetch", version, reason) from None
    if end != len(frame):
        raise trailing_bytes("Fetch", version, len(frame) - end)
    return request


def _layout_of(version: int) -> "_Layout":
    layout = _LAYOUTS.get(version)
    if layout is None:
        raise BadRequest(f"There is no Fetch v{version}.")
    return layout


class _Layout(NamedTuple):
    """Readers of the parts of a request, in their order. Each returns the position after its part."""

    head: Callable[[Frame, int, int], tuple[_Head, int, int]]
    """Reads the fields before the topics, and the number of topics."""
    topic: Callable[[Frame, int, int], tuple[str | TopicId, int, int]]
    """Reads a topic, and the number of its partitions."""
    partitions: Callable[[Frame, int, int, int, list[FetchPartition]], int]
    """Adds `count` partitions to the list."""
    end: Callable[[Frame, int, int, _Head, FetchTopics, Forgotten], tuple[FetchRequest, int]]


def _read_head(frame: Frame, position: int, version: int) -> tuple[_Head, int, int]:
    replica_id = CLIENT
    limits_and_session: LimitsAndSession
    if version >= 15:
        limits_and_session = _HEAD_V15.unpack_from(frame, position)
        position += _HEAD_V15.size
    else:
        head = _HEAD_V7.unpack_from(frame, position)
        replica_id, limits_and_session = head[0], head[1:]
        position += _HEAD_V7.size
    count, position = read_compact_array_count(frame, position, 3)
    if count < 0:
        raise BadRequest("The topics are null.")
    return (replica_id, limits_and_session), count, position


def _read_topic_and_count(frame: Frame, position: int, version: int) -> tuple[str | TopicId, int, int]:
    topic, position = _read_topic(frame, position, version)
    count, position = read_compact_array_count(frame, position, _PARTITION_V12.size + 1)
    if count < 0:
        raise BadRequest("The partitions of a topic are null.")
    return topic, count, position


def _read_end(
    frame: Frame, position: int, version: int, head: _Head, topics: FetchTopics, forgotten: Forgotten
) -> tuple[FetchRequest, int]:
    replica_id, limits_and_session = head
    replica_epoch = NO_BROKER_EPOCH
    rack_id: str | None = ""
    if frame[position] == _NO_BYTES:
        position += 1
    else:
        rack_id, position = read_compact_string(frame, position)
    cluster_id = None
    if frame[position] == 0:
        position += 1
    else:
        tags, position = read_tagged_fields(frame, position)
        if 0 in tags:
            cluster_id, _ = _exactly(read_compact_string(frame, tags[0][0]), tags[0][1])
        if 1 in tags and version >= 15:
            start, end = tags[1]
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, start)
            if skip_tagged_fields(frame, start + _REPLICA_STATE.size) != end:
                raise BadRequest("The replica state does not fill its tag.")
    request = FetchRequest(
        replica_id, replica_epoch, *limits_and_session, topics, forgotten, present(rack_id), cluster_id
    )
    return request, position


def _exactly(read: tuple[str | None, int], end: int) -> tuple[str | None, int]:
    if read[1] != end:
        raise BadRequest("A tagged field does not fill its tag.")
    return read


def _read_topic(frame: Frame, position: int, version: int) -> tuple[str | TopicId, int]:
    if version >= TOPIC_IDS_FROM:
        return read_topic_id(frame, position)
    name, position = read_compact_string(frame, position)
    return present(name), position


def _read_partitions(frame: Frame, position: int, version: int, count: int, partitions: list[FetchPartition]) -> int:
    """Adds `count` partitions to the list; returns the position after them."""
    fixed_size = _PARTITION_V12.size
    for _ in range(count):
        fields = _PARTITION_V12.unpack_from(frame, position)
        position += fixed_size
        if frame[position] == 0:
            position += 1
            partitions.append(_new_tuple(FetchPartition, fields + _NOTHING_TAGGED))
        else:
            tags, position = read_tagged_fields(frame, position)
            partitions.append(_with_tags(frame, fields, tags, version))
    return position


def _with_tags(
    frame: Frame, fields: tuple[int, int, int, int, int, int], tags: dict[int, tuple[int, int]], version: int
) -> FetchPartition:
    directory_id: TopicId | None = None
    high_watermark = UNKNOWN_HIGH_WATERMARK
    if 0 in tags and version >= 17:
        start, end = tags[0]
        if end - start != 16:
            raise BadRequest("A directory id does not have 16 bytes.")
        directory_id, _ = read_topic_id(frame, start)
        if directory_id.int == 0:
            directory_id = None
    if 1 in tags and version >= 18:
        start, end = tags[1]
        if end - start != 8:
            raise BadRequest("A high watermark does not have 8 bytes.")
        (high_watermark,) = INT64.unpack_from(frame, start)
    return _new_tuple(FetchPartition, (*fields, directory_id, high_watermark))


def _nothing_forgotten(frame: Frame, position: int, version: int) -> tuple[Forgotten | None, int]:
    """An empty list and the position after it; None if the request forgets topics."""
    if version >= FLEXIBLE_FROM:
        return ([], position + 1) if frame[position] == _NO_ELEMENTS else (None, position)
    if version < SESSIONS_FROM:
        return [], position
    return ([], position + 4) if frame[position : position + 4] == _OLD_NO_ELEMENTS else (None, position)


def _read_forgotten(frame: Frame, position: int, version: int) -> Generator[None, None, tuple[Forgotten, int]]:
    """Reads the topics that a session forgets, with a pause after each step of topics."""
    is_flexible = version >= FLEXIBLE_FROM
    read_count = read_compact_array_count if is_flexible else read_array_count
    count, position = read_count(frame, position, 3)
    if count < 0:
        raise BadRequest("The forgotten topics are null.")
    forgotten: Forgotten = []
    elements = count
    topic: str | TopicId
    for number in range(count):
        if number and not number % PARTITIONS_PER_STEP:
            yield
        if is_flexible:
            topic, position = _read_topic(frame, position, version)
        else:
            name, position = read_string(frame, position)
            topic = present(name)
        partition_count, position = read_count(frame, position, 4)
        elements += partition_count
        check_elements(elements, _WIDTH)
        if partition_count < 0:
            raise BadRequest("The forgotten partitions of a topic are null.")
        forgotten.append((topic, Struct(f">{partition_count}i").unpack_from(frame, position)))
        position += 4 * partition_count
        if is_flexible:
            position = skip_tagged_fields(frame, position)
    return forgotten, position


def _at_once(steps: Generator[None, None, tuple[Forgotten, int]]) -> tuple[Forgotten, int]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[Forgotten, int] = end.value
            return found


def _read_old_head(frame: Frame, position: int, version: int) -> tuple[_Head, int, int]:
    layout = _HEAD_V7 if version >= SESSIONS_FROM else _HEAD_V4
    head = layout.unpack_from(frame, position)
    limits_and_session: LimitsAndSession = head[1:] if version >= SESSIONS_FROM else head[1:] + NO_SESSION
    count, position = read_array_count(frame, position + layout.size, 6)
    if count < 0:
        raise BadRequest("The topics are null.")
    return (head[0], limits_and_session), count, position


def _read_old_topic(frame: Frame, position: int, version: int) -> tuple[str | TopicId, int, int]:
    name, position = read_string(frame, position)
    count, position = read_array_count(frame, position, _OLD_PARTITIONS[version].size)
    if count < 0:
        raise BadRequest("The partitions of a topic are null.")
    return present(name), count, position


def _read_old_partitions(
    frame: Frame, position: int, version: int, count: int, partitions: list[FetchPartition]
) -> int:
    layout = _OLD_PARTITIONS[version]
    end = position + count * layout.size
    rows = layout.iter_unpack(frame[position:end])
    if version >= 9:
        partitions += [
            _new_tuple(FetchPartition, (p, epoch, offset, -1, start, size, *_NOTHING_TAGGED))
            for p, epoch, offset, start, size in rows
        ]
    elif version >= 5:
        partitions += [
            FetchPartition(p, NO_LEADER_EPOCH, offset, NO_LEADER_EPOCH, start, size) for p, offset, start, size in rows
        ]
    else:
        partitions += [
            FetchPartition(p, NO_LEADER_EPOCH, offset, NO_LEADER_EPOCH, NO_OFFSET, size) for p, offset, size in rows
        ]
    return end


def _read_old_end(
    frame: Frame, position: int, version: int, head: _Head, topics: FetchTopics, forgotten: Forgotten
) -> tuple[FetchRequest, int]:
    replica_id, limits_and_session = head
    rack_id: str | None = ""
    if version >= 11:
        rack_id, position = read_string(frame, position)
    request = FetchRequest(replica_id, NO_BROKER_EPOCH, *limits_and_session, topics, forgotten, present(rack_id), None)
    return request, position


_FLEXIBLE: Final = _Layout(_read_head, _read_topic_and_count, _read_partitions, _read_end)
_OLD: Final = _Layout(_read_old_head, _read_old_topic, _read_old_partitions, _read_old_end)
_LAYOUTS: Final = {
    version: _FLEXIBLE if version >= FLEXIBLE_FROM else _OLD for version in range(MIN_VERSION, MAX_VERSION + 1)
}
