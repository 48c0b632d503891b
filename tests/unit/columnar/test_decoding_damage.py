"""Damaged batches are called corrupt, with the offset, and nothing beyond the buffer is read."""

import re
import struct

import pytest
from crc32c import crc32c
from tests.unit.columnar.guarded import guarded
from tests.unit.columnar.rows import decoded

from cordwood.columnar.decoding import Decoder
from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.records.compression import compress
from cordwood.records.corruption import CorruptRecords

GOOD = build_batch([(5, b"k", b"v", [("h", b"x")])] * 3, base_offset=1000)


def damage(data: bytes | bytearray) -> str:
    with guarded(data) as view, pytest.raises(CorruptRecords) as caught:
        decoded(view)
    return str(caught.value)


def changed(position: int, layout: str, value: int) -> bytearray:
    """The good batch, behind another good one, with one field changed and a checksum that fits."""
    batch = bytearray(GOOD)
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return build_batch([(5, b"k", b"v", ())], base_offset=999) + batch


def with_records(section: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of exactly these bytes as its records."""
    batch = build_batch([], base_offset=1000, last_offset_delta=9)
    batch += compress(codec, section) if codec else section
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def test_a_buffer_that_ends_within_a_batch() -> None:
    first = build_batch([(5, b"k", b"v", ())], base_offset=999)
    for length in range(1, len(GOOD)):
        assert "the buffer ends within a batch" in damage(first + GOOD[:length])
    assert damage(first + GOOD[:8]).startswith("offset 1000:")


@pytest.mark.parametrize("size", [-(2**31), -13, -1, 0, 48])
def test_a_size_that_no_batch_can_have(size: int) -> None:
    assert damage(changed(8, ">i", size)).startswith("offset 1000: the batch claims a size")


@pytest.mark.parametrize("magic", [-1, 0, 1, 3])
def test_another_magic(magic: int) -> None:
    assert damage(changed(16, ">b", magic)).startswith("offset 1000: the batch has a magic")


@pytest.mark.parametrize("count", [3, 3000])
def test_every_byte_that_the_checksum_covers(count: int) -> None:
    batch = build_batch([(5, b"k", b"v", ())] * count, base_offset=1000)
    for position in {17, 20, 21, 40, 60, 61, len(batch) // 2, len(batch) - 1}:
        broken = bytearray(batch)
        broken[position] ^= 1
        assert re.match(r"offsets 1000 to \d+: the batch's checksum is wrong \(at byte 0 of", damage(broken))


@pytest.mark.parametrize("offset", [-1, -(2**63), 0, 999, 2**63 - 2])
def test_offsets_that_do_not_go_on(offset: int) -> None:
    assert damage(changed(0, ">q", offset)).startswith(f"offset {offset}: the batch's offsets are not behind")
    assert damage(changed(23, ">i", -1)).startswith("offset 1000: the batch's offsets are not behind")


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [-(2**31), -1, 2, 2**31 - 1])
def test_a_number_of_records_that_it_cannot_have(count: int, codec: Codec) -> None:
    record = bytes((12, 0, 0, 0, 1, 1, 0))
    assert damage(with_records(record, count, codec)).startswith("offset 1000: the batch claims a number of records")


NUMBERS = {
    "too long": b"\xff" * 10 + b"\x01",
    "more than 64 bits": b"\xff" * 9 + b"\x02",
    "never ending": b"\xff" * 20,
    "the largest": b"\xfe" + b"\xff" * 8 + b"\x01",
    "the smallest": b"\xff" * 9 + b"\x01",
    "minus two": b"\x03",
    "beyond the record": b"\x7e",
}


def framed(body: bytes) -> bytes:
    assert len(body) < 64
    return bytes((len(body) * 2,)) + body


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_lengths_in_a_record_that_cannot_be(number: bytes, codec: Codec) -> None:
    filler = bytes((1, 1, 1, 1, 1, 1))
    assert "a record reaches beyond its batch" in damage(with_records(number + filler * 2, 1, codec))
    assert "a key has a length" in damage(with_records(framed(b"\0\0\0" + number + filler), 1, codec))
    assert "a value has a length" in damage(with_records(framed(b"\0\0\0\1" + number + filler), 1, codec))
    assert "more headers than fit" in damage(with_records(framed(b"\0\0\0\1\1" + number + filler), 1, codec))
    assert "a header has a name or a value" in damage(with_records(framed(b"\0\0\0\1\1\2" + number + filler), 1, codec))
    assert "a header has a name or a value" in damage(
        with_records(framed(b"\0\0\0\1\1\2\0" + number + filler), 1, codec)
    )


def test_numbers_and_offsets_in_a_record_that_cannot_be() -> None:
    assert "cut short or too long" in damage(with_records(framed(b"\0" + b"\xff" * 20)))
    assert "cut short or too long" in damage(with_records(framed(b"\0\0" + b"\xff" * 20)))
    for delta in (b"\x01", b"\x14", b"\xfe\xff\xff\xff\x0f"):
        assert damage(with_records(framed(b"\0\0" + delta + b"\1\1\0"))).endswith("offset is not within its batch")


@pytest.mark.parametrize("second", [b"\2", b"\0"], ids=["the same", "lower"])
def test_offsets_within_a_batch_that_do_not_rise(second: bytes) -> None:
    records = framed(b"\0\0\2\1\1\0") + framed(b"\0\0" + second + b"\1\1\0")
    assert damage(with_records(records, 2)).endswith("the offsets within the batch do not rise")


def test_bytes_that_belong_to_nothing() -> None:
    assert damage(with_records(framed(b"\0\0\0\1\1\0") + b"\0")).endswith("bytes are left after the last record")
    assert damage(with_records(b"\0", 0)).startswith("offset 1000: bytes are left after the last record")
    assert damage(with_records(framed(b"\0\0\0\1\1\0\0"))).endswith("do not end where the record does")
    assert damage(with_records(framed(b"\0\0\0\1\1\2\0\0\0"))).endswith("do not end where the record does")


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_compressed_bytes_that_are_not_what_their_codec_writes(codec: int) -> None:
    text = damage(with_records(b"", 1, Codec.NONE)[:0] + _mislabelled(codec))
    assert text.startswith("offset 1000: ")


def _mislabelled(codec: int) -> bytearray:
    batch = with_records(framed(b"\0\0\0\1\1\0"))
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def test_a_few_bytes_that_claim_to_be_gigabytes() -> None:
    bomb = with_records(bytes(200 << 20), 1, Codec.ZSTD)
    assert len(bomb) < 100_000
    assert "larger than 134217728 bytes" in damage(bomb)


def test_headers_that_are_not_asked_for_are_not_opened_but_end_with_their_record() -> None:
    batch = with_records(framed(b"\0\0\0\1\1\2" + b"\xff" * 9) + framed(b"\0\0\2\1\1\0"), 2)
    with guarded(batch) as view:
        assert [row.offset for row in decoded(view, decoder=Decoder())] == [1000, 1001]
    assert "a header has a name or a value" in damage(batch)
