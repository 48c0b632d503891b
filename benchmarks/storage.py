"""The data files of a broker and the page cache: write them out, drop them from memory, ask what is in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def segments(directory: Path, topic: str = "") -> Iterator[Path]:
    """The .log files under a broker's data directory, of one topic or of all."""
    for path in sorted(directory.rglob("*.log")):
        if not topic or path.parent.name.rpartition("-")[0] == topic:
            yield path


def settle(directory: Path) -> None:
    """Write out dirty pages, so that their writing does not fall into the next measurement."""
    for path in segments(directory):
        _with_file(path, os.fdatasync)


def evict(directory: Path, topic: str) -> None:
    """Drop a topic's segments from the page cache (they are written out first: dirty pages cannot be dropped)."""

    def drop(file: int) -> None:
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    for path in segments(directory, topic):
        _with_file(path, drop)


def resident_share(directory: Path, topic: str) -> float:
    """How much of a topic's segments is in the page cache, between 0 and 1."""
    pages = resident = 0
    for path in segments(directory, topic):
        seen = _residency(path)
        pages += len(seen)
        resident += sum(byte & 1 for byte in seen)
    return resident / pages if pages else 0.0


def _residency(path: Path) -> bytes:
    size = path.stat().st_size
    if size == 0:
        return b""
    file = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    finally:
        os.close(file)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"mmap of {path}")
    seen = ctypes.create_string_buffer((size + _PAGE - 1) // _PAGE)
    try:
        if _libc.mincore(address, size, seen) != 0:
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    finally:
        _libc.munmap(address, size)
    return seen.raw


def _with_file(path: Path, action: Callable[[int], object]) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # deleted by its broker while we looked
    try:
        action(file)
    finally:
        os.close(file)
