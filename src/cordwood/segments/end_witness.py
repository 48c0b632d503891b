"""The witness of durable ends: the offset up to which each log was fsynced, noted with every fsync.

A log file that lost whole batches from its end looks sound. Above the recovery point, which is up to a minute old, no
other file tells that acknowledged records are gone. The witness does: it is written after every fsync, before the
acknowledgement. The witness is not fsynced itself: it survives kill -9, and a power cut takes at most the newest
entries. Only a start that learns of a loss from the witness fsyncs it. An end in the witness is never beyond the bytes
that were durable.

Two files of entries: a checkpoint makes the entries of one of them obsolete. An entry has 32 bytes, big endian: topic
id (16), partition (4), end offset (8), CRC-32 of these 28 bytes (4). The entry has the topic's id, not its name: a new
topic of the same name has other ends. Entries with a wrong checksum are ignored.

The witness also says which logs have begun since the last checkpoint: before a log's first checkpoint no other file
says that its directory or its first file existed. The entry of a beginning is written when the log's first file is
made; its end offset is -1 minus the base offset of that file. A power cut may keep the entry and take the file, so an
entry of the machine's boot precedes it (an id and a partition that no topic has, and a number of the boot): beginnings
of another boot are ignored.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cordwood.model.identifiers import TopicId

FILE_NAMES = ("durable-end-witness-0", "durable-end-witness-1")
ENTRY_SIZE = 32

_KEY = struct.Struct(">16si")
_END = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_CHECKED_SIZE = ENTRY_SIZE - _CHECKSUM.size

EndKey = bytes
"""The first 20 bytes of an entry: the topic's id and the number of the partition."""


_BOOT: EndKey = _KEY.pack(bytes(16), -1)


class Witnessed(NamedTuple):
    """The facts in the entries of a witness."""

    ends: dict[EndKey, int]
    """The highest end of each partition."""
    first_files: dict[EndKey, int]
    """The base offset of the first file of each log that began in this boot of the machine."""


def end_key(topic_id: TopicId, partition: int) -> EndKey:
    return _KEY.pack(topic_id.bytes, partition)


def encode_ends(ends: Mapping[EndKey, int]) -> bytes:
    """The entries of these ends."""
    return b"".join([_entry(key + _END.pack(end_offset)) for key, end_offset in ends.items()])


def encode_beginnings(first_files: Mapping[EndKey, int], boot: int) -> bytes:
    """The entries of logs that begin with these files in this boot of the machine."""
    if not first_files:
        return b""
    return encode_ends({_BOOT: boot}) + encode_ends({key: -1 - first for key, first in first_files.items()})


def decode_ends(files: Iterable[bytes]) -> dict[EndKey, int]:
    """The highest end of each partition in the content of the files."""
    return decode_witness(files, None).ends


def decode_witness(files: Iterable[bytes], boot: int | None) -> Witnessed:
    """The facts in the files for this boot of the machine; None: unknown."""
    ends: dict[EndKey, int] = {}
    first_files: dict[EndKey, int] = {}
    for data in files:
        noted_in: int | None = None
        for start in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
            checked = data[start : start + _CHECKED_SIZE]
            if _entry(checked) != data[start : start + ENTRY_SIZE]:
                continue
            key, (end_offset,) = checked[: _KEY.size], _END.unpack_from(checked, _KEY.size)
            if key == _BOOT:
                noted_in = end_offset
            elif end_offset >= 0:
                ends[key] = max(end_offset, ends.get(key, 0))
            elif noted_in is not None and noted_in == boot:
                # The later of two beginnings is believed: a log that began anew further on misses nothing.
                first_files[key] = max(-1 - end_offset, first_files.get(key, 0))
    return Witnessed(ends, first_files)


def _entry(checked: bytes) -> bytes:
    return checked + _CHECKSUM.pack(zlib.crc32(checked))
