"""Compresses batches anew, for topics whose compression.type names a codec.

The records section is decompressed and compressed as bytes: no record is read, so the cost is the codecs', which
release the GIL. Offsets, times, producer and record count stay as they are.
"""

import struct

from cordwood.model.errors import ErrorCode
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import (
    CODEC_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    Buffer,
    Codec,
    crc_is_right,
    read_header,
)
from cordwood.records.checksum import crc32c
from cordwood.records.compression import compress
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import uncompressed_records
from cordwood.records.validate import InvalidBatch

_LENGTH_POSITION = 8
_ATTRIBUTES_POSITION = 21
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_JAVAS_FAST_LZ4 = 9
"""Kafka's default level of lz4, which selects the fast compressor; other levels select the slow one."""


def codec_of(settings: TopicSettings) -> Codec | None:
    """The codec of a topic's batches; None: each producer's own."""
    return _CODECS.get(settings.compression_type)


def level_of(settings: TopicSettings, codec: Codec) -> int | None:
    """The level that a topic asks for, as `compress` takes it."""
    if codec is Codec.GZIP:
        return None if settings.compression_gzip_level < 0 else settings.compression_gzip_level
    if codec is Codec.LZ4:
        return None if settings.compression_lz4_level == _JAVAS_FAST_LZ4 else settings.compression_lz4_level
    if codec is Codec.ZSTD:
        return settings.compression_zstd_level
    return None


def needs_recompression(batch: Buffer, codec: Codec) -> bool:
    """Whether the batch has another codec. The log refuses a batch that is too short to tell."""
    return len(batch) >= HEADER_SIZE and batch[_ATTRIBUTES_POSITION + 1] & CODEC_MASK != codec


def recompress(batch: Buffer, codec: Codec, level: int | None, max_bytes: int) -> Buffer:
    """The batch with this codec, or InvalidBatch. Runs in any thread.

    A batch that is not whole, or too large already, comes back as it is: the log refuses it with the reason.
    """
    size, header = len(batch), read_header(batch)
    if (
        header.magic != MAGIC
        or header.batch_length + LOG_OVERHEAD != size
        or size > max_bytes
        or header.codec > Codec.ZSTD
        or not crc_is_right(batch, 0, size)
    ):
        return batch
    try:
        records = uncompressed_records(batch)
    except CorruptRecords as error:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"The record batch is not valid: {error}.") from error
    section = compress(codec, records, level)
    del records
    if HEADER_SIZE + len(section) > max_bytes:
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"With codec {codec.name.lower()} the record batch has {HEADER_SIZE + len(section)} bytes, more than the "
            f"{max_bytes} that are left for it.",
        )
    renewed = bytearray(batch[:HEADER_SIZE])
    renewed += section
    _INT32.pack_into(renewed, _LENGTH_POSITION, len(renewed) - LOG_OVERHEAD)
    _INT16.pack_into(renewed, _ATTRIBUTES_POSITION, header.attributes & ~CODEC_MASK | codec)
    _UINT32.pack_into(renewed, CRC_POSITION, crc32c(memoryview(renewed)[CRC_START:]))
    return renewed
