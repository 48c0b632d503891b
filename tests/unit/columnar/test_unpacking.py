"""Compressed records as the many clients write them, and room that is used again."""

import gzip
import struct
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from cordwood.columnar.unpacking import Unpacker
from cordwood.records.batch import Codec
from cordwood.records.compression import compress
from cordwood.records.corruption import CorruptRecords

RECORDS = b"".join(b"record %d, " % number for number in range(20_000))
LIMIT = 1 << 20


def streamed_zstd(data: bytes) -> bytes:
    """As Java writes it: a stream, whose frame does not say how large it is."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


def xerial_of_odd_blocks(data: bytes) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(data[start : start + 9999])) for start in range(0, len(data), 9999)]
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


DIALECTS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "zstd with its size": (Codec.ZSTD, zstandard.ZstdCompressor().compress),
    "zstd without its size": (Codec.ZSTD, streamed_zstd),
    "zstd in two frames": (Codec.ZSTD, lambda data: streamed_zstd(data[:500]) + compress(Codec.ZSTD, data[500:])),
    "zstd with a checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "lz4 of linked blocks": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=True)),
    "lz4 with its size": (Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=True)),
    "lz4 with checksums": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(data, store_size=False, content_checksum=True, block_checksum=True),
    ),
    "snappy raw": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy in xerial's blocks": (Codec.SNAPPY, xerial_of_odd_blocks),
    "gzip": (Codec.GZIP, gzip.compress),
    "gzip in two members": (Codec.GZIP, lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:])),
}
dialects = pytest.mark.parametrize("dialect", DIALECTS)


@dialects
def test_every_dialect_is_understood_also_where_there_is_no_room_yet(dialect: str) -> None:
    codec, pack = DIALECTS[dialect]
    section = memoryview(pack(RECORDS))
    for room in (1, len(RECORDS) - 1, len(RECORDS), 4 * len(RECORDS)):
        unpacker = Unpacker(room)
        assert unpacker.unpack(codec, section, LIMIT) == (0, len(RECORDS))
        assert unpacker.unpack(codec, section, LIMIT) == (len(RECORDS), 2 * len(RECORDS))
        assert unpacker.data == RECORDS * 2


@dialects
def test_the_limit_holds_however_much_room_there_is(dialect: str) -> None:
    codec, pack = DIALECTS[dialect]
    section = memoryview(pack(RECORDS))
    for room in (1, 4 * len(RECORDS)):
        unpacker = Unpacker(room)
        assert unpacker.unpack(codec, section, len(RECORDS)) == (0, len(RECORDS))
        with pytest.raises(CorruptRecords):
            unpacker.unpack(codec, section, len(RECORDS) - 1)
        assert unpacker.data == RECORDS


@dialects
def test_records_that_are_cut_short_are_found_out(dialect: str) -> None:
    codec, pack = DIALECTS[dialect]
    section = pack(RECORDS)
    unpacker = Unpacker(4 * len(RECORDS))
    for length in (0, 1, 7, len(section) // 2, len(section) - 1):
        try:
            start, end = unpacker.unpack(codec, memoryview(section)[:length], LIMIT)
        except CorruptRecords:
            continue
        # A stream of zstd does not tell that it is cut short: its records do, which are fewer than their batch says.
        assert codec == Codec.ZSTD
        assert RECORDS.startswith(bytes(unpacker.data[start:end]))


def test_room_is_used_again() -> None:
    unpacker = Unpacker(1000)
    section = memoryview(compress(Codec.ZSTD, RECORDS))
    unpacker.unpack(Codec.ZSTD, section, LIMIT)
    room = unpacker.room_bytes
    for _ in range(5):
        unpacker.used = 0
        assert unpacker.unpack(Codec.ZSTD, section, LIMIT) == (0, len(RECORDS))
    assert unpacker.room_bytes == room
