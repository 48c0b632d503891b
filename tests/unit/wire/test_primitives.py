"""Lengths, counts and tags that a peer can get wrong."""

import pytest

from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    MALFORMED,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_uvarint,
    uvarint,
)
from cordwood.wire.requests import decode_request, parse_header


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, 2**21, 2**28, 2**31, 2**32 - 1])
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 10])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(BadRequest, match="32 bits"):
        read_uvarint(encoded, 0)


def test_a_varint_that_is_cut_short_is_malformed() -> None:
    with pytest.raises(MALFORMED):
        read_uvarint(b"\xff\xff", 0)


def test_a_count_must_fit_into_the_bytes_that_are_left() -> None:
    frame = b"\x00\x00\x00\x03" + bytes(12)
    assert read_array_count(frame, 0, 4) == (3, 4)
    assert read_compact_array_count(frame, 3, 4) == (2, 4)
    with pytest.raises(BadRequest, match="does not fit"):
        read_array_count(frame, 0, 5)
    with pytest.raises(BadRequest, match="does not fit"):
        read_compact_array_count(frame, 3, 7)


def test_null_and_negative_counts_are_told_apart() -> None:
    assert read_array_count(b"\xff\xff\xff\xff", 0, 4) == (-1, 4)
    assert read_compact_array_count(b"\x00", 0, 4) == (-1, 1)
    with pytest.raises(BadRequest):
        read_array_count(b"\xff\xff\xff\xfe", 0, 4)


def test_a_string_must_end_within_the_frame() -> None:
    assert read_string(b"\x00\x02hi", 0) == ("hi", 4)
    assert read_compact_string(b"\x03hi", 0) == ("hi", 3)
    assert read_string(b"\xff\xff", 0) == (None, 2)
    assert read_compact_string(b"\x00", 0) == (None, 1)
    for read, frame in ((read_string, b"\x00\x03hi"), (read_compact_string, b"\x04hi"), (read_string, b"\xff\xfehi")):
        with pytest.raises(BadRequest):
            read(frame, 0)


@pytest.mark.parametrize("size", [5, 7])
def test_a_tagged_field_must_fill_its_tag(size: int) -> None:
    """The cluster id of a Fetch, with a tag that is a byte too small or too large for it."""
    frame = bytes.fromhex("0001 000c 00000001 ffff 00")
    frame += bytes.fromhex("ffffffff 00000000 00000000 00000000 00 00000000 ffffffff 01 01 01")
    right = frame + b"\x01\x00\x06\x06hello"
    wrong = frame + b"\x01\x00" + bytes((size,)) + b"\x06hello" + b"\x00" * (size - 6)
    assert decode_request(parse_header(right), right).cluster_id == "hello"
    with pytest.raises(BadRequest):
        decode_request(parse_header(wrong), wrong)
