"""Metadata, versions 0 to 13: the request, and the response put together from entries that can be kept.

A topic's entry is the same bytes in every response of the same layout, so a broker encodes it once and keeps it until
the topic changes: `layout_of(version)` is the key for that, since many versions share a layout.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT16,
    INT32,
    INT32_PAIR,
    MALFORMED,
    NO_TAGS,
    Frame,
    array_count,
    check_elements,
    compact_array_count,
    compact_string,
    not_understood,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_topic_id,
    skip_tagged_fields,
    string,
    topic_id_bytes,
    trailing_bytes,
)
from cordwood.wire.endpoints import NodeEndpoint
from cordwood.wire.requests import RequestHeader
from cordwood.wire.widths import max_elements

MIN_VERSION: Final = 0
MAX_VERSION: Final = 13
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 10
NULL_NAMES_FROM: Final = 12

_WIDTH: Final = max_elements(ApiKey.METADATA)

OPERATIONS_NOT_ASKED_FOR: Final = -(2**31)
"""The value of authorized operations that the request did not ask for."""


_START_FLEXIBLE: Final = Struct(">iiB")


class RequestedTopic(NamedTuple):
    """A topic requested by name, or by id: then the name is None."""

    name: str | None
    topic_id: TopicId | None


class MetadataRequest(NamedTuple):
    topics: list[RequestedTopic] | None
    """None: all topics."""
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


def decode_metadata(header: RequestHeader, frame: Frame) -> MetadataRequest:
    version = header.api_version
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise BadRequest(f"There is no Metadata v{version}.")
    try:
        topics, position = (_read_topics if version >= FLEXIBLE_FROM else _read_old_topics)(
            frame, header.body_start, version
        )
        flags, end = _read_flags(frame, position, version)
        # librdkafka (seen in 2.16) asks for all topics with a null of one byte and leaves the other three bytes of the
        # old count in place. Kafka ignores the left-over bytes; we find the flags behind them.
        all_topics = topics is None and version >= FLEXIBLE_FROM
        if end != len(frame) and all_topics and frame[position : position + 3] == b"\x00\x00\x00":
            flags, end = _read_flags(frame, position + 3, version)
    except MALFORMED as reason:
        raise not_understood("Metadata", version, reason) from None
    if end != len(frame):
        raise trailing_bytes("Metadata", version, len(frame) - end)
    return MetadataRequest(topics, *flags)


def _read_flags(frame: Frame, position: int, version: int) -> tuple[tuple[bool, bool, bool], int]:
    auto_create, cluster_operations, topic_operations = True, False, False
    if version >= 4:
        auto_create, position = frame[position] != 0, position + 1
    if 8 <= version <= 10:
        cluster_operations, position = frame[position] != 0, position + 1
    if version >= 8:
        topic_operations, position = frame[position] != 0, position + 1
    if version >= FLEXIBLE_FROM:
        position = skip_tagged_fields(frame, position)
    return (auto_create, cluster_operations, topic_operations), position


def _read_topics(frame: Frame, position: int, version: int) -> tuple[list[RequestedTopic] | None, int]:
    count, position = read_compact_array_count(frame, position, 2)
    if count < 0:
        return None, position
    check_elements(count, _WIDTH)
    topics: list[RequestedTopic] = []
    for _ in range(count):
        topic_id: TopicId | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id, position = read_topic_id(frame, position)
            if topic_id.int == 0:
                topic_id = None
        name, position = read_compact_string(frame, position)
        if version < TOPIC_IDS_FROM:
            name = present(name)
        topics.append(RequestedTopic(name, topic_id))
        position = skip_tagged_fields(frame, position)
    return topics, position


def _read_old_topics(frame: Frame, position: int, version: int) -> tuple[list[RequestedTopic] | None, int]:
    count, position = read_array_count(frame, position, 2)
    if version == 0:
        if count < 0:
            raise BadRequest("The topics are null.")
        # The oldest version has no null array: an empty array asks for all topics.
        if count == 0:
            return None, position
    elif count < 0:
        return None, position
    check_elements(count, _WIDTH)
    topics: list[RequestedTopic] = []
    for _ in range(count):
        name, position = read_string(frame, position)
        topics.append(RequestedTopic(present(name), None))
    return topics, position


class PartitionMetadata(NamedTuple):
    partition: int
    leader_id: int
    """-1: there is no leader."""
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int] = ()
    error_code: int = 0


class TopicMetadata(NamedTuple):
    name: str | None
    """The name; None for a requested id that no topic has (version 12 and later)."""
    topic_id: TopicId | None
    partitions: Sequence[PartitionMetadata]
    is_internal: bool = False
    error_code: int = 0
    authorized_operations: int = OPERATIONS_NOT_ASKED_FOR


def layout_of(version: int) -> int:
    """The lowest version with the same bytes for a topic's entry as this one."""
    if version >= 10:
        return 10
    if version in (2, 3, 4):
        return 1
    return 5 if version == 6 else version


def encode_topic(version: int, topic: TopicMetadata) -> bytes:
    """One topic's entry, for `encode_metadata_response` in any version of the same layout."""
    name, topic_id, partitions, is_internal, error_code, operations = topic
    assert name is not None or version >= NULL_NAMES_FROM, topic
    if version >= FLEXIBLE_FROM:
        parts = [INT16.pack(error_code), compact_string(name)]
        if version >= TOPIC_IDS_FROM:
            parts.append(topic_id_bytes(topic_id))
        parts += (b"\x01" if is_internal else b"\x00", compact_array_count(len(partitions)))
    else:
        parts = [INT16.pack(error_code), string(name)]
        if version >= 1:
            parts.append(b"\x01" if is_internal else b"\x00")
        parts.append(array_count(len(partitions)))
    parts += _partitions(version, partitions)
    if version >= 8:
        parts.append(INT32.pack(operations))
    if version >= FLEXIBLE_FROM:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _partitions(version: int, partitions: Iterable[PartitionMetadata]) -> list[bytes]:
    encoded: list[bytes] = []
    append = encoded.append
    for index, leader, epoch, replicas, isr, offline, error_code in partitions:
        pack, replica_count, isr_count, offline_count = _partition_layout(
            version, len(replicas), len(isr), len(offline)
        )
        if version >= FLEXIBLE_FROM:
            append(
                pack(
                    *(error_code, index, leader, epoch),
                    *(replica_count, *replicas, isr_count, *isr, offline_count, *offline, 0),
                )
            )
        elif version >= 7:
            append(
                pack(
                    *(error_code, index, leader, epoch),
                    *(replica_count, *replicas, isr_count, *isr, offline_count, *offline),
                )
            )
        elif version >= 5:
            append(
                pack(
                    *(error_code, index, leader),
                    *(replica_count, *replicas, isr_count, *isr, offline_count, *offline),
                )
            )
        else:
            append(pack(error_code, index, leader, replica_count, *replicas, isr_count, *isr))
    return encoded


@lru_cache(maxsize=512)
def _partition_layout(
    version: int, replicas: int, isr: int, offline: int
) -> tuple[Callable[..., bytes], bytes, bytes, bytes]:
    """The layout of a partition with this many nodes in its three lists, and the encoded counts."""
    count = compact_array_count if version >= FLEXIBLE_FROM else array_count
    counts = count(replicas), count(isr), count(offline)
    nodes = f"{len(counts[0])}s{replicas}i{len(counts[1])}s{isr}i"
    if version >= 5:
        nodes += f"{len(counts[2])}s{offline}i"
    if version >= FLEXIBLE_FROM:
        nodes += "B"
    return Struct((">hiii" if version >= 7 else ">hii") + nodes).pack, *counts


def encode_metadata_response(
    version: int,
    correlation_id: int,
    *,
    brokers: Sequence[NodeEndpoint],
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[bytes],
    throttle_time_ms: int = 0,
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR,
    error_code: int = 0,
) -> bytes:
    """The whole frame, with its size. `topics` are entries by `encode_topic`."""
    if version >= FLEXIBLE_FROM:
        parts = [INT32.pack(throttle_time_ms), compact_array_count(len(brokers))]
        for node_id, host, port, rack in brokers:
            parts += (INT32.pack(node_id), compact_string(host), INT32.pack(port), compact_string(rack), NO_TAGS)
        parts += (compact_string(cluster_id), INT32.pack(controller_id), compact_array_count(len(topics)))
        parts += topics
        if version <= 10:
            parts.append(INT32.pack(cluster_authorized_operations))
        if version >= 13:
            parts.append(INT16.pack(error_code))
        parts.append(NO_TAGS)
        body = b"".join(parts)
        return _START_FLEXIBLE.pack(len(body) + 5, correlation_id, 0) + body
    parts = [INT32.pack(throttle_time_ms)] if version >= 3 else []
    parts.append(array_count(len(brokers)))
    for node_id, host, port, rack in brokers:
        parts += (INT32.pack(node_id), string(host), INT32.pack(port))
        if version >= 1:
            parts.append(string(rack))
    if version >= 2:
        parts.append(string(cluster_id))
    if version >= 1:
        parts.append(INT32.pack(controller_id))
    parts.append(array_count(len(topics)))
    parts += topics
    if version >= 8:
        parts.append(INT32.pack(cluster_authorized_operations))
    body = b"".join(parts)
    return INT32_PAIR.pack(len(body) + 4, correlation_id) + body
