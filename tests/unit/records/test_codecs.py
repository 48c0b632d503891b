"""Every codec: what others write can be read, what is cut or too large is refused, nothing else happens."""

import gzip
import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from tests.traced_memory import traced

from cordwood.records.batch import Codec
from cordwood.records.compression import compress, decompress
from cordwood.records.corruption import CorruptRecords

TEXT = b"".join(b"line %d of a text that compresses; " % number for number in range(5000))
COMPRESSING = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(3_000_000)], ids=["empty", "one", "text", "zeros"])
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecords, match="larger than"):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_data_is_refused_at_every_place(codec: Codec) -> None:
    data = compress(codec, b"abcdefgh" * 20)
    for cut in range(1, len(data)):
        if codec == Codec.SNAPPY and cut == 16:
            continue  # the bare header: a stream with no blocks
        with pytest.raises(CorruptRecords):
            decompress(codec, data[:cut], 1000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    assert traced(refuse, codec, bomb, 4 * 1024 * 1024) < 16 * 1024 * 1024


def refuse(codec: Codec, data: bytes, limit: int) -> None:
    with pytest.raises(CorruptRecords):
        decompress(codec, data, limit)


def test_an_unknown_codec_is_refused() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptRecords, match="unknown codec"):
            decompress(codec, b"", 10)
        with pytest.raises(ValueError, match="unknown codec"):
            compress(codec, b"")


def test_gzip_members_in_a_row_are_one() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 4) == b"abcd"
    with pytest.raises(CorruptRecords):
        decompress(Codec.GZIP, gzip.compress(b"ab") + b"rest", 100)


def test_gzip_members_are_opened_up_to_a_number_that_no_client_comes_near() -> None:
    member = gzip.compress(b"a")
    assert decompress(Codec.GZIP, member * 100, 1000) == b"a" * 100
    with pytest.raises(CorruptRecords, match="more than 100 members"):
        decompress(Codec.GZIP, member * 101, 1000)


def test_tiny_snappy_blocks_are_opened_up_to_a_number_that_no_client_comes_near() -> None:
    head = compress(Codec.SNAPPY, b"")
    assert len(head) == 16
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    framed = struct.pack(">i", len(block)) + block
    # The head counts as one of them: many heads are no cheaper.
    assert decompress(Codec.SNAPPY, head + framed * 19_999, 10**6) == b"a" * 19_999
    for many in (head + framed * 20_000, head * 20_001):
        with pytest.raises(CorruptRecords, match="too many small blocks"):
            decompress(Codec.SNAPPY, many, 10**6)


def test_snappy_blocks_of_a_usual_size_may_be_as_many_as_fit() -> None:
    head = compress(Codec.SNAPPY, b"")
    text = bytes(range(60))
    block = bytes(cramjam.snappy.compress_raw(text))
    framed = struct.pack(">i", len(block)) + block
    assert decompress(Codec.SNAPPY, head + framed * 25_000, 10**7) == text * 25_000


def test_snappy_is_read_with_javas_framing_and_without() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert len(framed) < len(TEXT)
    assert decompress(Codec.SNAPPY, framed + framed, 2 * len(TEXT)) == TEXT + TEXT


def test_a_snappy_block_that_claims_gigabytes_is_refused_before_it_is_opened() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(CorruptRecords, match="larger than"):
        decompress(Codec.SNAPPY, claim, 1000)


def test_a_zstd_frame_that_claims_gigabytes_is_refused_before_it_is_opened() -> None:
    claim = bytearray(zstandard.ZstdCompressor().compress(bytes(70_000)))
    assert zstandard.frame_content_size(claim) == 70_000
    claim[5:9] = b"\xff\xff\xff\x7f"
    with pytest.raises(CorruptRecords, match="larger than"):
        decompress(Codec.ZSTD, claim, 100_000)


def test_zstd_frames_without_a_size_are_read_as_javas_are() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    data = stream.compress(TEXT) + stream.flush()
    assert zstandard.frame_content_size(data) == -1
    assert decompress(Codec.ZSTD, data, len(TEXT)) == TEXT


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    frame = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not frame["block_linked"]
    linked = lz4.frame.compress(TEXT, block_linked=True)
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT


def test_nothing_may_follow_an_lz4_frame() -> None:
    with pytest.raises(CorruptRecords, match="behind the frame"):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"a") + compress(Codec.LZ4, b"b"), 100)
