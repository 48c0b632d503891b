"""Records are read whole and exact, or the batch is called corrupt."""

import struct

import pytest
from tests.traced_memory import traced

from cordwood.records.batch import Codec, read_header
from cordwood.records.build import build_batch
from cordwood.records.records import (
    CorruptRecords,
    PackedHeaders,
    PackedRecord,
    Record,
    count_headers,
    packed_records_in,
    records_in,
)

SECTION = 61


def batch_with(section: bytes, count: int = 1, last_offset_delta: int = 0) -> bytes:
    """A batch around these bytes; readers do not look at its CRC."""
    batch = build_batch([], base_offset=10, last_offset_delta=last_offset_delta)
    struct.pack_into(">i", batch, 8, 49 + len(section))
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">q", batch, 27, 1000)
    return bytes(batch) + section


def test_a_record_is_read_from_its_bytes() -> None:
    section = b"\x1a\x00\x02\x00\x02k\x04vw\x02\x02h\x02x"
    assert list(records_in(batch_with(section))) == [Record(10, 1001, b"k", b"vw", (("h", b"x"),))]


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (b"", "cut short"),
        (b"\x20\x00\x00\x00\x01\x01\x00", "ends at 17 of 7"),
        (b"\x0b\x00\x00\x00\x01\x01\x00", "ends at"),  # a negative length
        (b"\x0c\x00\x00\x00\x03\x01\x00", "key has a negative length"),
        (b"\x0c\x00\x00\x00\x01\x03\x00", "value has a negative length"),
        (b"\x0c\x00\x00\x00\x10\x01\x00", "cut short"),  # a key beyond the end
        (b"\x0a\x00\x00\x00\x01\x01\x00", "fields end at 7, the record at 6"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "fields end at 7, the record at 8"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "not within its batch"),  # offset delta 1 of 0
        (b"\x0c\x00\x00\x01\x01\x01\x00", "not within its batch"),  # offset delta -1
        (b"\x0c\x00\x00\x00\x01\x01\x01", "more headers than fit"),  # -1 of them
        (b"\x0c\x00\x00\x00\x01\x01\x7e", "more headers than fit"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "has no name"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", "header's value has a negative length"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "1 bytes are left"),
        (b"\xff" * 12, "longer than 64 bits"),
        (b"\xff" * 9 + b"\x7f", "longer than 64 bits"),
    ],
)
def test_what_is_not_a_record_is_called_corrupt(section: bytes, why: str) -> None:
    with pytest.raises(CorruptRecords, match=why):
        list(records_in(batch_with(section)))
    with pytest.raises(CorruptRecords, match=why):
        [count_headers(record.headers, 10) for record in packed_records_in(batch_with(section))]


def test_headers_can_stay_as_they_are_in_the_bytes() -> None:
    section = b"\x1a\x00\x02\x00\x02k\x04vw\x02\x02h\x02x" + b"\x0c\x00\x00\x02\x01\x01\x00"
    packed = list(packed_records_in(batch_with(section, 2, 1)))
    assert packed == [
        PackedRecord(10, 1001, b"k", b"vw", PackedHeaders(b"\x02\x02h\x02x")),
        PackedRecord(11, 1000, None, None, PackedHeaders()),
    ]
    assert count_headers(packed[0].headers, 1) == 1
    rebuilt = build_batch([record[1:] for record in packed], base_offset=10)
    assert list(records_in(rebuilt)) == list(records_in(batch_with(section, 2, 1)))


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"\x02\x02h\x04x", "beyond its record"),
        (b"\x02\x04h\x01", "beyond its record"),
        (b"\x04\x02h\x02x", "beyond its record"),
        (b"\x02\x02h\x02xy", "1 bytes before it"),
        (b"\x80\x00\x00", "1 bytes before it"),  # none, said in two bytes
        (b"\x06\x00\x01\x00\x01\x00\x01", "more headers"),
    ],
)
def test_packed_headers_are_counted_if_they_are_whole_and_few(packed: bytes, why: str) -> None:
    with pytest.raises(CorruptRecords, match=why):
        count_headers(PackedHeaders(packed), 2)


def test_half_a_million_headers_in_a_small_batch_are_stepped_over_without_an_object_for_each() -> None:
    count = 500_000
    headers = PackedHeaders(b"\xc0\x84\x3d" + b"\x00\x01" * count)
    batch = bytes(build_batch([(1, b"key", b"value", headers)], codec=Codec.ZSTD))
    assert len(batch) < 2000
    # A tuple for each would take 30 times as much and more.
    assert traced(step_over, batch, count) < 8 * len(headers)


def step_over(batch: bytes, count: int) -> None:
    (record,) = packed_records_in(batch)
    assert count_headers(record.headers, count) == count


def test_a_record_may_not_reach_into_the_next() -> None:
    # The first record's key claims the second record's bytes: all lengths are within the section.
    with pytest.raises(CorruptRecords, match="fields end at"):
        list(records_in(batch_with(b"\x0c\x00\x00\x00\x06\x01\x00" + b"\x0c\x00\x00\x02\x01\x01\x00", 2, 1)))


def test_fewer_or_more_records_than_announced_are_corrupt() -> None:
    whole = bytes(build_batch([(1, b"a", b"b", ())] * 3))
    for count in (2, 4):
        lying = bytearray(whole)
        struct.pack_into(">i", lying, 57, count)
        with pytest.raises(CorruptRecords):
            list(records_in(lying))


def test_a_batch_is_needed() -> None:
    batch = bytes(build_batch([(1, b"a", b"b", ())]))
    for wrong in (b"", batch[:60], batch[:-1], batch[:16] + b"\x01" + batch[17:]):
        with pytest.raises(CorruptRecords):
            list(records_in(wrong))
    negative = bytearray(batch[:61])
    struct.pack_into(">i", negative, 8, 49)
    struct.pack_into(">i", negative, 57, -1)
    with pytest.raises(CorruptRecords, match="-1 records"):
        list(records_in(negative))


def test_bytes_behind_the_batch_are_not_looked_at() -> None:
    batch = bytes(build_batch([(1, b"a", b"b", ())]))
    assert list(records_in(batch + b"more")) == list(records_in(batch))


def test_a_header_name_that_is_not_utf8_survives_reading_and_building() -> None:
    section = b"\x14\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01"
    (record,) = records_in(batch_with(section))
    rebuilt = build_batch([record[1:]], base_offset=10)
    assert bytes(rebuilt[SECTION:]) == section
    assert read_header(rebuilt).record_count == 1


def test_a_small_batch_cannot_claim_the_memory_of_a_large_one() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        bomb = build_batch([(1, None, bytes(3_000_000), ())], codec=codec)
        assert len(bomb) < 200_000
        assert len(next(records_in(bomb)).value or b"") == 3_000_000
        with pytest.raises(CorruptRecords, match="larger than 1000000 bytes"):
            list(records_in(bomb, 1_000_000))
