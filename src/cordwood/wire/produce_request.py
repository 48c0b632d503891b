"""A Produce request as a client writes it, versions 3 to 13: parts to send one after another, around batches that stay
where they are."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from cordwood.model.identifiers import TopicId
from cordwood.wire.encoding.primitives import (
    INT32,
    INT32_PAIR,
    NO_TAGS,
    array_count,
    compact_array_count,
    compact_string,
    string,
    uvarint,
)
from cordwood.wire.produce import FLEXIBLE_FROM, MAX_VERSION, MIN_VERSION, TOPIC_IDS_FROM

Bytes = bytes | bytearray | memoryview
BatchOfPartition = tuple[int, Bytes]
"""Partition index and one record batch: Kafka takes exactly one for each partition in a request."""

_ACKS_TIMEOUT: Final = Struct(">hi")


def encode_produce_request(
    version: int,
    topics: Sequence[tuple[str | TopicId, Sequence[BatchOfPartition]]],
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> list[Bytes]:
    """The body. A topic goes by its name up to version 12 and by its id from version 13 on."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    if version < FLEXIBLE_FROM:
        return _encode_old(topics, transactional_id, acks, timeout_ms)
    chunk = compact_string(transactional_id) + _ACKS_TIMEOUT.pack(acks, timeout_ms) + compact_array_count(len(topics))
    parts: list[Bytes] = []
    for topic, batches in topics:
        if version >= TOPIC_IDS_FROM:
            assert not isinstance(topic, str), topic
            chunk += topic.bytes
        else:
            assert isinstance(topic, str), topic
            chunk += compact_string(topic)
        chunk += compact_array_count(len(batches))
        for partition, batch in batches:
            parts += (chunk + INT32.pack(partition) + uvarint(len(batch) + 1), batch)
            chunk = NO_TAGS
        chunk += NO_TAGS
    parts.append(chunk + NO_TAGS)
    return parts


def _encode_old(
    topics: Sequence[tuple[str | TopicId, Sequence[BatchOfPartition]]],
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> list[Bytes]:
    chunk = string(transactional_id) + _ACKS_TIMEOUT.pack(acks, timeout_ms) + array_count(len(topics))
    parts: list[Bytes] = []
    for topic, batches in topics:
        assert isinstance(topic, str), topic
        chunk += string(topic) + array_count(len(batches))
        for partition, batch in batches:
            parts += (chunk + INT32_PAIR.pack(partition, len(batch)), batch)
            chunk = b""
    parts.append(chunk)
    return parts
