"""The note of a log about deletions that compaction dropped: markers of transactions, and tombstones.

A replica that never had such a marker or tombstone may still have the records that the deletion ended or deleted
(docs/decisions/dropped-deletions.md). The note is a file of the partition's directory, so it goes where the log goes.
Text: version, mark and offset, and the CRC-32 of the lines before it.
"""

import hashlib
import zlib
from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedCheckpoint

FILE_NAME = "dropped-deletions"
NONE = -1
_VERSION = "0"


class Dropped(NamedTuple):
    mark: int
    """A number that changes whenever compaction drops a deletion. Two logs have the same mark only if one of them was
    empty and was filled from the other."""
    highest: int = NONE
    """The highest offset of a deletion that the log lacks; -1: none."""


def next_mark(before: Dropped | None, log: str, wall_ms: int) -> int:
    """The mark of the log `log`, which no other log has, from this time on."""
    text = f"{log} {wall_ms} {before}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def encode_dropped(dropped: Dropped) -> bytes:
    lines = f"{_VERSION}\n{dropped.mark} {dropped.highest}\n"
    return f"{lines}{zlib.crc32(lines.encode()):08x}\n".encode()


def decode_dropped(data: Buffer) -> Dropped:
    """Reads a note. DamagedCheckpoint if `encode_dropped` did not write it."""
    try:
        version, numbers, _ = bytes(data).decode("ascii").split("\n", 2)
        if version != _VERSION:
            raise ValueError(f"version {version} is not known")
        mark, highest = numbers.split(" ")
        dropped = Dropped(int(mark), int(highest))
        if bytes(data) != encode_dropped(dropped):
            raise ValueError("the checksum is not that of its lines")
        return dropped
    except ValueError as error:
        raise DamagedCheckpoint(f"{FILE_NAME}: {error}") from None
