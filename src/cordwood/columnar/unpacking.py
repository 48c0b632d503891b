"""Decompresses records into memory that is reused.

Half of the cost of decompression is memory that was never touched before. So codecs that can write to given memory do
so here; data that they refuse, or that does not fit, goes through `records.compression`, whose verdict counts.
"""

import cramjam
import lz4.frame
import numpy as np
import zstandard

from cordwood.records.batch import Codec
from cordwood.records.compression import decompress

_LZ4_LARGEST_RATIO = 255
_LZ4_FLAGS, _LZ4_CONTENT_SIZE_BIT = 4, 0x08
_XERIAL_MAGIC = b"\x82SNAPPY\x00"


class Unpacker:
    """Room for the records of several batches, for one thread at a time."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._size = size
        self._room = memoryview(b"")
        self._zstd = zstandard.ZstdDecompressor()
        self.used = 0

    @property
    def room_bytes(self) -> int:
        return len(self._room)

    @property
    def data(self) -> memoryview:
        """The bytes unpacked since `used` was last set to 0."""
        return self._room[: self.used]

    def unpack(self, codec: int, section: memoryview, max_size: int) -> tuple[int, int]:
        """Unpacks a section; returns the place of its records in `data`. Raises CorruptRecords."""
        if not self._room:
            self._grow(self._size)
        size = self._unpack_in_place(codec, section, self._room[self.used : self.used + max_size])
        if size < 0:
            whole = _lz4_at_once(section, max_size) if codec == Codec.LZ4 else None
            if whole is None:
                whole = decompress(codec, section, max_size)
            size = len(whole)
            if self.used + size > len(self._room):
                self._grow(2 * (self.used + size))
            self._room[self.used : self.used + size] = whole
        start = self.used
        self.used += size
        return start, self.used

    def _grow(self, size: int) -> None:
        grown = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        grown[: self.used] = self.data
        self._room = grown

    def _unpack_in_place(self, codec: int, section: memoryview, room: memoryview) -> int:
        """Unpacks into the room and returns the size; -1 if that is not possible."""
        if codec == Codec.ZSTD:
            return self._unpack_zstd(section, room)
        if codec == Codec.SNAPPY and section[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
            try:
                return int(cramjam.snappy.decompress_raw_into(section, room))
            except cramjam.DecompressionError:
                return -1
        return -1

    def _unpack_zstd(self, section: memoryview, room: memoryview) -> int:
        size = 0
        try:
            announced = zstandard.frame_content_size(section)
            reader = self._zstd.stream_reader(section, read_across_frames=True)
            while part := reader.readinto(room[size:]):
                size += part
            # An incomplete frame ends silently, and so does a frame that does not fit into the room.
            return size if size >= announced and not (size == len(room) and reader.read(1)) else -1
        except zstandard.ZstdError:
            self._zstd = zstandard.ZstdDecompressor()
            return -1


def _lz4_at_once(section: memoryview, max_size: int) -> bytes | None:
    """The content of the frame; None if it may be too large, or is invalid. Bounded steps are slower."""
    if len(section) * _LZ4_LARGEST_RATIO > max_size or (
        len(section) > _LZ4_FLAGS and section[_LZ4_FLAGS] & _LZ4_CONTENT_SIZE_BIT
    ):
        return None
    try:
        whole, read = lz4.frame.decompress(section, return_bytes_read=True)
    except RuntimeError:
        return None
    return whole if read == len(section) else None
