"""The client's half of the hot codecs: a broker reads its requests, and its reads copy no records."""

from collections.abc import Sequence

import pytest

from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.asking import (
    BadResponse,
    correlation_id_of,
    decode_response,
    encode_request,
    request_start,
)
from cordwood.wire.fetch import decode_fetch
from cordwood.wire.fetch_response import decode_fetch_response
from cordwood.wire.fetched import FetchedPartition, encode_fetch_response
from cordwood.wire.produce import ProducedPartition, decode_produce, encode_produce_response
from cordwood.wire.produce_request import Bytes, encode_produce_request
from cordwood.wire.requests import decode_request, encode_response, parse_header

TOPIC_ID = TopicId(int=0x0102030405060708090A0B0C0D0E0F10)
OTHER_ID = TopicId(int=0x1102030405060708090A0B0C0D0E0F10)
SCHEMA_APIS = sorted(set(ApiKey) - {ApiKey.PRODUCE, ApiKey.FETCH})


def frame_of(api_key: int, version: int, body: bytes) -> memoryview:
    frame = request_start(api_key, version, 77, b"me", len(body)) + body
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_broker_reads_a_produce_request_as_it_was_meant(version: int) -> None:
    names: tuple[str | TopicId, str | TopicId] = ("a", "b") if version < 13 else (TOPIC_ID, OTHER_ID)
    topics: list[tuple[str | TopicId, list[tuple[int, Bytes]]]] = [
        (names[0], [(0, b"first"), (5, b"x" * 300)]),
        (names[1], [(1, memoryview(b"third"))]),
    ]
    parts = encode_produce_request(version, topics, transactional_id="tx", acks=-1, timeout_ms=9)
    frame = frame_of(ApiKey.PRODUCE, version, b"".join(parts))
    header = parse_header(frame)
    assert header[:4] == (ApiKey.PRODUCE, version, 77, "me")
    assert decode_produce(header, frame) == ("tx", -1, 9, topics)


def test_a_produce_request_leaves_its_batches_where_they_are() -> None:
    batch = bytearray(b"batch")
    parts = encode_produce_request(13, [(TOPIC_ID, [(0, batch)])], transactional_id=None, acks=1, timeout_ms=1)
    assert any(part is batch for part in parts)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("aborted", [None, (), ((7, 8), (9, 10))])
def test_a_fetch_response_is_read_as_the_broker_meant_it(
    version: int, aborted: tuple[tuple[int, int], ...] | None
) -> None:
    full = FetchedPartition(0, 0, 90, 80, 10, b"x" * 200, aborted, 3 if version >= 11 else -1)
    empty = FetchedPartition(1, 6, 91, 81, 11, b"", aborted)
    if version < 5:
        full, empty = full._replace(log_start_offset=-1), empty._replace(log_start_offset=-1)
    elif version >= 12:
        empty = empty._replace(current_leader=(4, 5))
    topic = TOPIC_ID if version >= 13 else "orders"
    parts = encode_fetch_response(version, 77, [(topic, [full, empty])], throttle_time_ms=12, session_id=0)
    frame = memoryview(bytearray(b"".join(bytes(part) for part in parts if isinstance(part, bytes | memoryview))))[4:]
    assert correlation_id_of(frame) == 77
    response = decode_fetch_response(version, frame)
    assert response.throttle_time_ms == 12
    ((name, partitions),) = response.topics
    assert name == topic
    read = [part._replace(aborted_transactions=_tuples(part.aborted_transactions)) for part in partitions]
    assert read == [full, empty]


def _tuples(aborted: Sequence[tuple[int, int]] | None) -> tuple[tuple[int, int], ...] | None:
    return None if aborted is None else tuple(aborted)


def test_fetched_records_are_a_view_of_the_frame() -> None:
    parts = encode_fetch_response(16, 1, [(TOPIC_ID, [FetchedPartition(0, records=b"records")])])
    buffer = bytearray(b"".join(bytes(part) for part in parts if isinstance(part, bytes)))
    records = decode_fetch_response(16, memoryview(buffer)[4:]).topics[0][1][0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_fetch_response_that_is_cut_short_anywhere_is_refused(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    found = FetchedPartition(0, 0, 90, 80, 10, b"x" * 20, ((7, 8),))
    parts = encode_fetch_response(version, 77, [(topic, [found])])
    frame = b"".join(bytes(part) for part in parts if isinstance(part, bytes))[4:]
    for size in range(4, len(frame)):
        with pytest.raises(BadResponse, match="Fetch"):
            decode_fetch_response(version, memoryview(frame)[:size])


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_response_is_read_as_the_broker_meant_it(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    frame = encode_produce_response(version, 77, [(topic, [ProducedPartition(3, 6, 40, error_message="moved")])])
    (answered,) = decode_response(ApiKey.PRODUCE, version, memoryview(frame)[4:]).responses
    assert (answered.topic_id if version >= 13 else answered.name) == topic
    (row,) = answered.partition_responses
    assert (row.index, row.error_code, row.base_offset) == (3, 6, 40)
    assert row.error_message == ("moved" if version >= 8 else None)


@pytest.mark.parametrize("api_key", SCHEMA_APIS)
def test_requests_and_responses_of_every_api_go_both_ways_in_every_version(api_key: ApiKey) -> None:
    api = APIS[api_key]
    for version in range(api.min_version, api.max_version + 1):
        body = encode_request(api_key, version, {})
        frame = frame_of(api_key, version, body)
        header = parse_header(frame)
        assert header[:4] == (api_key, version, 77, "me")
        assert encode_request(api_key, version, vars(decode_request(header, frame))) == body
        answer = memoryview(encode_response(header, {}))[4:]
        assert correlation_id_of(answer) == 77
        decode_response(api_key, version, answer)
        with pytest.raises(BadResponse, match="1 bytes follow"):
            decode_response(api_key, version, bytes(answer) + b"\x00")


def test_a_fetch_request_made_by_its_schema_is_what_the_broker_reads() -> None:
    values = {"max_wait_ms": 5, "min_bytes": 1, "max_bytes": 10, "topics": [{"topic_id": TOPIC_ID, "partitions": [{}]}]}
    frame = frame_of(ApiKey.FETCH, 18, encode_request(ApiKey.FETCH, 18, values))
    request = decode_fetch(parse_header(frame), frame)
    assert request.replica_id == -1
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.topics[0][0] == TOPIC_ID


def test_an_answer_without_a_correlation_id_is_refused() -> None:
    with pytest.raises(BadResponse, match="correlation id"):
        correlation_id_of(b"abc")


@pytest.mark.parametrize(
    ("version", "topic", "offset"),
    [(9, "orders", 2**63), (8, "orders", -(2**63) - 1), (9, "a\udcff", 1), (2, "\ud800", 1)],
)
def test_a_value_that_a_request_has_no_room_for_is_told_with_the_request(version: int, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    with pytest.raises(ValueError, match="OffsetCommit has no room"):
        encode_request(ApiKey.OFFSET_COMMIT, version, {"topics": [{"name": topic, "partitions": partitions}]})
