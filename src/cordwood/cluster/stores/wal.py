"""Reads SQLite's write-ahead log before SQLite does: the pages that the log adds to the file, and the damage of the
log.

SQLite ends its recovery silently at the first frame whose checksum is wrong. After a power cut that is right: the
frames of the last transaction were on their way to the disk, and the transaction was not acknowledged. If a frame was
damaged after its fsync, acknowledged transactions would be gone.

The frames behind the bad frame tell the two cases apart. Every commit is fsynced before the next transaction writes its
first frame (synchronous=FULL). So if a commit stands at or behind the bad frame, and behind the commit a further frame
of the same log, then the bad frame was on disk once: the log is damaged. A bad frame in the last transaction of the log
may be either case; the witness (stores/witness.py) has the last known state of the store.

A frame's checksum continues the checksum stored in the frame before it, so each frame behind a bad one can be checked
by itself. https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import struct
from typing import NamedTuple

from cordwood.cluster.stores.interface import StoreFailure

_HEADER_SIZE = 32
_FRAME_HEADER_SIZE = 24
_LITTLE_ENDIAN, _BIG_ENDIAN = 0x377F0682, 0x377F0683
_PENDING_PAGE = 65536
_MASK = 0xFFFFFFFF


class DamagedStore(StoreFailure):
    """The store's files differ from the written bytes."""


class Overlay(NamedTuple):
    """The pages that the committed transactions of a log put over the file."""

    page_size: int
    page_count: int
    pages: dict[int, bytes]
    """Pages by number, from 1 on."""
    frame_count: int
    """Frames of the log up to the last commit."""

    def can_complete(self, database: bytes) -> bool:
        """True if SQLite copies the log into a file of this size. SQLite refuses a file that lacks more than the log
        and one page of 64 KiB can add (walCheckpoint in wal.c)."""
        return len(database) + _PENDING_PAGE + self.frame_count * self.page_size >= self.page_count * self.page_size

    def over(self, database: bytes) -> bytes:
        image = bytearray(database[: self.page_count * self.page_size].ljust(self.page_count * self.page_size, b"\0"))
        for number, page in self.pages.items():
            if number <= self.page_count:
                image[(number - 1) * self.page_size : number * self.page_size] = page
        return bytes(image)


class _Frame(NamedTuple):
    page_number: int
    page_count: int
    """The file's size in pages after the transaction that ends with this frame; 0 if no transaction ends here."""
    salts: tuple[int, int]
    checksum: tuple[int, int]
    head: bytes
    page: bytes


def read_wal(data: bytes, path: str, *, believe_damaged: bool = False) -> Overlay | None:
    """The pages that the log adds; None if there are none. Raises DamagedStore if acknowledged transactions are
    unreadable.

    With `believe_damaged` the transactions before the damage are taken instead.
    """
    if len(data) <= _HEADER_SIZE or not any(data):
        return None
    magic, _, page_size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", data[:_HEADER_SIZE])
    if magic not in (_LITTLE_ENDIAN, _BIG_ENDIAN):
        _damaged(path, "it does not begin with the header of a write-ahead log", believe_damaged)
        return None
    order = "<" if magic == _LITTLE_ENDIAN else ">"
    if _checksum(order, data[:24], (0, 0)) != (sum1, sum2):
        _damaged(path, "the checksum of its header is wrong", believe_damaged)
        return None
    frames = _frames(data, page_size)
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    page_count = frame_count = 0
    running = (sum1, sum2)
    for index, frame in enumerate(frames):
        if frame.salts != (salt1, salt2) or _checksum_of(order, frame, running) != frame.checksum:
            if not believe_damaged:
                _check_tail(order, frames, index, (salt1, salt2), path)
            break
        running = frame.checksum
        pending[frame.page_number] = frame.page
        if frame.page_count:
            committed.update(pending)
            pending.clear()
            page_count, frame_count = frame.page_count, index + 1
    return Overlay(page_size, page_count, committed, frame_count) if page_count else None


def _frames(data: bytes, page_size: int) -> list[_Frame]:
    size = _FRAME_HEADER_SIZE + page_size
    frames = []
    for start in range(_HEADER_SIZE, len(data) - size + 1, size):
        head = data[start : start + _FRAME_HEADER_SIZE]
        number, count, salt1, salt2, sum1, sum2 = struct.unpack(">6I", head)
        page = data[start + _FRAME_HEADER_SIZE : start + size]
        frames.append(_Frame(number, count, (salt1, salt2), (sum1, sum2), head[:8], page))
    return frames


def _check_tail(order: str, frames: list[_Frame], bad: int, salts: tuple[int, int], path: str) -> None:
    """Raises DamagedStore if the bad frame was on disk once (see the module)."""
    committed = bool(frames[bad].page_count) and frames[bad].salts == salts
    for index in range(bad + 1, len(frames)):
        frame = frames[index]
        if frame.salts != salts or _checksum_of(order, frame, frames[index - 1].checksum) != frame.checksum:
            continue
        if committed:
            _damaged(path, f"frame {bad} of {len(frames)} is bad, and later transactions follow it", False)
        committed = bool(frame.page_count)


def _damaged(path: str, what: str, believed: bool) -> None:
    if not believed:
        raise DamagedStore(f"{path} is damaged: {what}")


def _checksum_of(order: str, frame: _Frame, before: tuple[int, int]) -> tuple[int, int]:
    return _checksum(order, frame.page, _checksum(order, frame.head, before))


def _checksum(order: str, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
