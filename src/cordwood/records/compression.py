"""The four codecs of a record batch, bounded: a few bytes can claim to be gigabytes.

Only code that opens batches uses codecs (compaction, validation on compacted topics, the CLI, tests); the append path
keeps a batch as the producer compressed it. So a broker may never need a codec: each is imported at first use.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

from cordwood.records.batch import Buffer, Codec
from cordwood.records.corruption import CorruptRecords, TooMuchToOpen

GZIP_WINDOW_BITS = 31
"""zlib's code for a gzip header and trailer around the largest window."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_SIZE = 32 * 1024
"""The block size of Java's writer; readers take any size."""

_MAX_GZIP_MEMBERS = 100
"""The most gzip members; known clients write one. zlib copies the bytes behind each member, so many small members would
cost quadratic time."""

_MANY_SNAPPY_BLOCKS = 20_000
_SMALL_SNAPPY_BLOCK = 50
"""Beyond so many blocks the average block must have more than so many bytes: opening a block costs far more than a
byte."""

_STEP_SIZE = 1024 * 1024
"""The bytes asked of a reader at a time, for readers that reserve memory ahead."""

_INT32 = struct.Struct(">i")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The records section of a batch, as a client that uses this codec would send it.

    The level is the codec's own (gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22); None is the default level. Snappy has
    no levels.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=GZIP_WINDOW_BITS)
        return compressor.compress(data) + compressor.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        import lz4.frame

        # Java's reader refuses blocks that depend on each other.
        return bytes(lz4.frame.compress(data, level or 0, block_linked=False, store_size=False))
    if codec == Codec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(3 if level is None else level).compress(data)
    raise ValueError(f"unknown codec {codec}")


def decompress(codec: int, data: Buffer, max_size: int) -> bytes:
    """Decompresses a section. CorruptRecords if it is invalid or cut, TooMuchToOpen beyond max_size bytes."""
    if codec == Codec.NONE:
        if len(data) > max_size:
            raise _too_large(max_size)
        return bytes(data)
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptRecords(f"unknown codec {codec}")
    return decompressor(data, max_size)


def _too_large(max_size: int) -> TooMuchToOpen:
    return TooMuchToOpen(f"records are larger than {max_size} bytes once uncompressed")


def _not_valid(codec: Codec, error: Exception) -> CorruptRecords:
    return CorruptRecords(f"{codec.name.lower()}: {error}")


def _cut_short(codec: Codec) -> CorruptRecords:
    return CorruptRecords(f"{codec.name.lower()}: the compressed data is cut short")


def _gunzip(data: Buffer, max_size: int) -> bytes:
    # A gzip file may have several members, as Java's reader accepts.
    parts: list[bytes] = []
    left = max_size
    rest: Buffer = data
    for _ in range(_MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
        try:
            part = member.decompress(rest, left + 1)
        except zlib.error as error:
            raise _not_valid(Codec.GZIP, error) from error
        left -= len(part)
        if left < 0:
            raise _too_large(max_size)
        parts.append(part)
        if not member.eof:
            raise _cut_short(Codec.GZIP)
        rest = member.unused_data
        if not rest:
            return b"".join(parts)
    raise CorruptRecords(f"gzip: more than {_MAX_GZIP_MEMBERS} members")


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        # librdkafka and others send one raw block.
        return b"".join(_unsnap([view], max_size))
    return b"".join(_unsnap(_xerial_blocks(view), max_size))


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position, end = 0, len(view)
    left = max(_MANY_SNAPPY_BLOCKS, end // _SMALL_SNAPPY_BLOCK)
    while position < end:
        if not left:
            raise CorruptRecords("snappy: too many small blocks")
        left -= 1
        if view[position : position + 8] == _XERIAL_MAGIC:
            # The header stands at the start, and again where streams were concatenated, as Java's reader accepts.
            position += len(_XERIAL_HEADER)
            if position > end:
                raise _cut_short(Codec.SNAPPY)
            continue
        if position + 4 > end:
            raise _cut_short(Codec.SNAPPY)
        (size,) = _INT32.unpack_from(view, position)
        position += 4
        if size < 0 or position + size > end:
            raise _cut_short(Codec.SNAPPY)
        yield view[position : position + size]
        position += size


def _unsnap(blocks: Iterable[memoryview], max_size: int) -> Iterator[bytes]:
    import cramjam

    left = max_size
    for block in blocks:
        try:
            left -= cramjam.snappy.decompress_raw_len(block)
            if left < 0:
                raise _too_large(max_size)
            yield bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise _not_valid(Codec.SNAPPY, error) from error


def _decompress_lz4(data: Buffer, max_size: int) -> bytes:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = max_size
    rest: Buffer = data
    while not frame.eof:
        try:
            part: bytes = frame.decompress(rest, _STEP_SIZE)
        except RuntimeError as error:
            raise _not_valid(Codec.LZ4, error) from error
        if not part and not frame.eof:
            raise _cut_short(Codec.LZ4)
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise _too_large(max_size)
        rest = b""
    if frame.unused_data:
        # Java's reader ignores bytes behind the first frame, so only some clients would see records there.
        raise CorruptRecords("lz4: data behind the frame")
    return b"".join(parts)


def _decompress_zstd(data: Buffer, max_size: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    left = max_size
    try:
        announced = zstandard.frame_content_size(data)
        if announced > max_size:
            raise _too_large(max_size)
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while part := reader.read(_STEP_SIZE):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise _too_large(max_size)
    except zstandard.ZstdError as error:
        raise _not_valid(Codec.ZSTD, error) from error
    # The reader does not report an incomplete frame. In frames without a size (Java's) the incomplete records show it.
    if max_size - left < announced:
        raise _cut_short(Codec.ZSTD)
    return b"".join(parts)


_DECOMPRESSORS: dict[int, Callable[[Buffer, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
