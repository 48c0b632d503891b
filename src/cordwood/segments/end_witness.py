"""The witness of durable ends: the offset up to which each log was fsynced, noted with every fsync.

A log file that lost whole batches from its end looks sound. Above the recovery point, which is up to a minute old, no
other file tells that acknowledged records are gone. The witness does: it is written behind every fsync, before the
acknowledgement. It is not fsynced itself, so it survives kill -9, and a power cut takes back the newest entries at
most. Only a start that learns of a loss from the witness fsyncs it. An end in the witness is never beyond the bytes
that were durable.

Two files of entries: a checkpoint makes the entries of one of them obsolete. An entry has 32 bytes, big endian: topic
id (16), partition (4), end offset (8), CRC-32 of these 28 bytes (4). The topic's id and not its name: a new topic of
the same name has other ends. Entries with a wrong checksum are ignored.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping

from cordwood.model.identifiers import TopicId

FILE_NAMES = ("durable-end-witness-0", "durable-end-witness-1")
ENTRY_SIZE = 32

_KEY = struct.Struct(">16si")
_END = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_CHECKED_SIZE = ENTRY_SIZE - _CHECKSUM.size

EndKey = bytes
"""The first 20 bytes of an entry: the topic's id and the number of the partition."""


def end_key(topic_id: TopicId, partition: int) -> EndKey:
    return _KEY.pack(topic_id.bytes, partition)


def encode_ends(ends: Mapping[EndKey, int]) -> bytes:
    """The entries of these ends."""
    return b"".join([_entry(key + _END.pack(end_offset)) for key, end_offset in ends.items()])


def decode_ends(files: Iterable[bytes]) -> dict[EndKey, int]:
    """The highest end of each partition in the content of the files."""
    ends: dict[EndKey, int] = {}
    for data in files:
        for start in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
            checked = data[start : start + _CHECKED_SIZE]
            if _entry(checked) != data[start : start + ENTRY_SIZE]:
                continue
            key, (end_offset,) = checked[: _KEY.size], _END.unpack_from(checked, _KEY.size)
            ends[key] = max(end_offset, ends.get(key, 0))
    return ends


def _entry(checked: bytes) -> bytes:
    return checked + _CHECKSUM.pack(zlib.crc32(checked))
