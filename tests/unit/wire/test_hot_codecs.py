"""Promises of the codecs written by hand beyond their bytes: no copies, no surprises, one kind of refusal."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from cordwood.model.identifiers import TopicId
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.codec import reader
from cordwood.wire.encoding.schema import load
from cordwood.wire.endpoints import NodeEndpoint
from cordwood.wire.fetch import decode_fetch
from cordwood.wire.fetched import JOIN_BELOW_BYTES, FetchedPartition, encode_fetch_response
from cordwood.wire.metadata import (
    MAX_VERSION,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata,
    encode_topic,
    layout_of,
)
from cordwood.wire.produce import ProducedPartition, decode_produce, encode_produce_response
from cordwood.wire.requests import RequestHeader, decode_request, parse_header

TOPIC_ID = TopicId(int=0x0102030405060708090A0B0C0D0E0F10)


def produce_frame(version: int, topic: bytes, records: bytes) -> bytes:
    header = b"\x00\x00" + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff"
    acks_and_timeout = b"\xff\xff\x00\x00\x01\xf4"
    if version >= 9:
        name = topic if version >= 13 else bytes((len(topic) + 1,)) + topic
        body = b"\x00" + acks_and_timeout + b"\x02" + name + b"\x02\x00\x00\x00\x05" + bytes((len(records) + 1,))
        return header + b"\x00" + body + records + b"\x00\x00\x00"
    body = b"\xff\xff" + acks_and_timeout + b"\x00\x00\x00\x01" + len(topic).to_bytes(2, "big") + topic
    return header + body + b"\x00\x00\x00\x01\x00\x00\x00\x05" + len(records).to_bytes(4, "big") + records


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_produced_records_are_a_writable_view_of_the_frame(version: int) -> None:
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    buffer = bytearray(produce_frame(version, topic, b"batch"))
    frame = memoryview(buffer)
    request = decode_produce(parse_header(frame), frame)
    assert request[:3] == (None, -1, 500)
    ((name, ((partition, records),)),) = request.topics
    assert name == (TOPIC_ID if version >= 13 else "orders")
    assert partition == 5
    assert isinstance(records, memoryview)
    records[:] = b"BATCH"
    assert b"BATCH" in buffer


@pytest.mark.parametrize("version", [3, 9])
def test_records_that_are_null_are_not_an_empty_batch(version: int) -> None:
    null, empty = (b"\x00", b"\x01") if version >= 9 else (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")
    frame = produce_frame(version, b"orders", b"")
    assert decode_produce(parse_header(frame), memoryview(frame)).topics == [("orders", [(5, b"")])]
    place = frame.rindex(b"\x00\x00\x00\x05" + empty) + 4
    frame = frame[:place] + null + frame[place + len(empty) :]
    assert decode_produce(parse_header(frame), memoryview(frame)).topics == [("orders", [(5, None)])]


@pytest.mark.parametrize("version", [0, 2, 14])
def test_a_produce_version_that_is_not_served_is_refused(version: int) -> None:
    frame = produce_frame(version, b"orders", b"batch")
    with pytest.raises(BadRequest, match="no Produce"):
        decode_produce(parse_header(frame), memoryview(frame))


@pytest.mark.parametrize("version", [3, 19])
def test_a_fetch_version_that_is_not_served_is_refused(version: int) -> None:
    frame = b"\x00\x01" + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff\x00"
    with pytest.raises(BadRequest, match="no Fetch"):
        decode_fetch(parse_header(frame), frame)


def test_tags_from_the_future_are_skipped_wherever_they_are() -> None:
    frame = produce_frame(9, b"orders", b"batch")
    future = b"\x02\x07\x01x\x63\x02yz"
    for tags_from_the_end in (1, 2, 3):
        place = len(frame) - tags_from_the_end
        tagged = frame[:place] + future + frame[place + 1 :]
        request = decode_produce(parse_header(tagged), memoryview(tagged))
        assert request.topics == [("orders", [(5, b"batch")])]


class Slice(NamedTuple):
    length: int


def test_records_that_are_elsewhere_keep_their_place_among_the_parts() -> None:
    here, there = b"h" * JOIN_BELOW_BYTES, Slice(1_000_000)
    topics = [("orders", [FetchedPartition(0, records=there), FetchedPartition(1, records=here)])]
    parts = encode_fetch_response(12, 7, topics)
    assert parts[1] is there
    assert parts[3] is here
    assert [type(part) for part in parts] == [bytes, Slice, bytes, bytes, bytes]
    first = parts[0]
    assert isinstance(first, bytes)
    size = there.length + sum(len(part) for part in parts if isinstance(part, bytes))
    assert int.from_bytes(first[:4], "big") == size - 4


def test_small_records_in_memory_are_joined_with_what_is_around_them() -> None:
    partitions = [FetchedPartition(index, records=b"small") for index in range(50)]
    assert len(encode_fetch_response(12, 7, [("orders", partitions)])) == 1


def test_an_empty_slice_is_not_a_part() -> None:
    assert len(encode_fetch_response(12, 7, [("orders", [FetchedPartition(0, records=Slice(0))])])) == 1


def test_names_and_ids_are_not_mixed_up() -> None:
    with pytest.raises(AssertionError):
        encode_produce_response(13, 7, [("orders", [ProducedPartition(0)])])
    with pytest.raises(AssertionError):
        encode_produce_response(12, 7, [(TOPIC_ID, [ProducedPartition(0)])])
    with pytest.raises(AssertionError):
        encode_fetch_response(13, 7, [("orders", [FetchedPartition(0)])])
    with pytest.raises(AssertionError):
        encode_fetch_response(4, 7, [(TOPIC_ID, [FetchedPartition(0)])])


def test_only_the_oldest_metadata_request_asks_for_everything_with_an_empty_list() -> None:
    header = b"\x00\x00\x00\x01\xff\xff"
    nothing, null = b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"
    asked = {}
    for version, topics in ((0, nothing), (1, nothing), (1, null)):
        frame = b"\x00\x03" + version.to_bytes(2, "big") + header + topics
        asked[version, topics] = decode_metadata(parse_header(frame), frame).topics
    assert asked == {(0, nothing): None, (1, nothing): [], (1, null): None}
    frame = b"\x00\x03\x00\x00" + header + null
    with pytest.raises(BadRequest):
        decode_metadata(parse_header(frame), frame)


def test_a_topic_entry_can_be_kept_for_all_versions_of_its_layout() -> None:
    topic = TopicMetadata("orders", TOPIC_ID, [PartitionMetadata(0, 1, 5, [1, 2], [1])])
    layouts = {layout_of(version) for version in range(MAX_VERSION + 1)}
    assert layouts == {0, 1, 5, 7, 8, 9, 10}
    entries = {encode_topic(version, topic) for version in range(MAX_VERSION + 1)}
    assert len(entries) == len(layouts)


def test_a_partition_may_have_more_replicas_than_one_byte_counts() -> None:
    replicas = list(range(200))
    entry = encode_topic(12, TopicMetadata("orders", TOPIC_ID, [PartitionMetadata(0, 1, 5, replicas, replicas)]))
    assert b"\xc9\x01" + replicas[0].to_bytes(4, "big") in entry


def flexible_header(key: int, version: int) -> bytes:
    return bytes((0, key, 0, version)) + b"\x00\x00\x00\x01\xff\xff\x00"


MILLION = b"\xc1\x84\x3d"
"""The compact count of a million elements."""

TENTHS = b"\xa1\x8d\x06"
"""The compact count of a hundred thousand elements."""

NULL_RECORDS = b"\x00\x00\x00\x01\x00\x00"


@pytest.mark.parametrize(
    ("decode", "frame"),
    [
        (decode_metadata, flexible_header(3, 9) + MILLION + b"\x01\x00" * 1_000_000 + b"\x00\x00\x00\x00"),
        (
            decode_produce,
            flexible_header(0, 9)
            + b"\x00\xff\xff\x00\x00\x00\x01\x04"
            + (b"\x02t" + TENTHS + NULL_RECORDS * 100_000 + b"\x00") * 3
            + b"\x00",
        ),
        (
            decode_request,
            flexible_header(10, 4) + b"\x00" + MILLION + b"\x01" * 1_000_000 + b"\x00",
        ),
        (
            decode_request,
            flexible_header(21, 2)
            + b"\x04"
            + (b"\x02t" + TENTHS + (bytes(12) + b"\x00") * 100_000 + b"\x00") * 3
            + b"\x00\x00\x00\x00\x00",
        ),
    ],
    ids=["one array by hand", "nested arrays by hand", "one array", "nested arrays"],
)
def test_a_request_of_very_many_elements_is_refused(
    decode: Callable[[RequestHeader, memoryview], object], frame: bytes
) -> None:
    with pytest.raises(BadRequest, match="elements"):
        decode(parse_header(frame), memoryview(frame))


@pytest.mark.parametrize("decode", [decode_metadata, decode_request])
def test_a_struct_of_very_many_tags_is_refused(decode: Callable[[RequestHeader, memoryview], object]) -> None:
    few, many = (
        flexible_header(3, 9) + b"\x01\x00\x00\x00" + bytes((count,)) + b"\x55\x00" * count for count in (32, 33)
    )
    decode(parse_header(few), memoryview(few))
    with pytest.raises(BadRequest, match="tagged"):
        decode(parse_header(many), memoryview(many))


EVERYTHING_PRODUCED = ProducedPartition(0, 1, 2, 3, 4, [(5, "because")], "reason", (6, 7))
EVERYTHING_FETCHED = FetchedPartition(0, 1, 2, 3, 4, b"records", [(5, 6)], 7, (8, 9), (10, 11), (12, 13))
ENDPOINTS = [NodeEndpoint(1, "here", 9092, "rack")]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_response_leaves_out_what_its_version_does_not_have(version: int) -> None:
    topics = [(TOPIC_ID if version >= 13 else "orders", [EVERYTHING_PRODUCED])]
    frame = encode_produce_response(version, 7, topics, node_endpoints=ENDPOINTS)
    body = frame[8 + (version >= 9) :]
    entity, end = reader(load("Produce")["response"], version)(body, 0)
    assert end == len(body)
    partition = entity.responses[0].partition_responses[0]
    assert (partition.log_start_offset == 4) == (version >= 5)
    assert (partition.error_message == "reason") == (version >= 8)
    assert (len(partition.record_errors) == 1) == (version >= 8)
    assert (partition.current_leader.leader_id == 6) == (version >= 10)
    assert (len(entity.node_endpoints) == 1) == (version >= 10)
    without_tags = [(topics[0][0], [EVERYTHING_PRODUCED._replace(current_leader=None)])]
    assert (frame == encode_produce_response(version, 7, without_tags)) == (version < 10)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_response_leaves_out_what_its_version_does_not_have(version: int) -> None:
    topics = [(TOPIC_ID if version >= 13 else "orders", [EVERYTHING_FETCHED])]
    (frame,) = encode_fetch_response(version, 7, topics, error_code=70, session_id=9, node_endpoints=ENDPOINTS)
    assert isinstance(frame, bytes)
    body = frame[8 + (version >= 12) :]
    entity, end = reader(load("Fetch")["response"], version)(body, 0)
    assert end == len(body)
    partition = entity.responses[0].partitions[0]
    assert ((entity.error_code, entity.session_id) == (70, 9)) == (version >= 7)
    assert (partition.log_start_offset == 4) == (version >= 5)
    assert (partition.preferred_read_replica == 7) == (version >= 11)
    assert (partition.diverging_epoch.end_offset == 9) == (version >= 12)
    assert (partition.current_leader.leader_epoch == 11) == (version >= 12)
    assert (partition.snapshot_id.epoch == 13) == (version >= 12)
    assert (len(entity.node_endpoints) == 1) == (version >= 16)
    without_endpoints = encode_fetch_response(version, 7, topics, error_code=70, session_id=9)
    assert ([frame] == without_endpoints) == (version < 16)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (9, "00 00 00 00 01 01 00 00"),
        (10, "00 00 00 00 01 01 00 00"),
        (12, "00 00 00 00 01 00 00"),
        (13, "00 00 00 00 01 00 00"),
    ],
)
def test_librdkafka_may_ask_for_all_topics_with_three_bytes_too_many(version: int, body: str) -> None:
    """librdkafka 2.16 sends a compact null, three bytes left of the old count, then the flags."""
    frame = flexible_header(3, version) + bytes.fromhex(body)
    request = decode_metadata(parse_header(frame), memoryview(frame))
    assert request == (None, True, version <= 10, False)
    with pytest.raises(BadRequest):
        decode_metadata(parse_header(frame), memoryview(frame + b"\x00"))
