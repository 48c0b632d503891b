"""Finds the pages of a file that are in the page cache, and drops pages that a cold read brought in.

mincore(2) knows residency page by page; Python has no call for it, so the C library's is used. If mincore fails, all
pages count as cached and none is dropped: a polluted cache is slow, a wrongly emptied cache slower. cachestat(2), since
Linux 6.5, only counts pages, and costs a tenth.
"""

import ctypes
import os
import re

PAGE_SIZE = os.sysconf("SC_PAGESIZE")

_PROT_READ = 1
_MAP_SHARED = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_MAP_FAILED = ctypes.c_void_p(-1).value

_SYS_CACHESTAT = 451


class _ByteRange(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently"))


_LOWEST_BIT = bytes(value & 1 for value in range(256))
_RUN_OF_MISSING = re.compile(b"\x00+")

Range = tuple[int, int]
"""(position, length), whole pages."""


def pages_not_cached(descriptor: int, position: int, length: int) -> list[Range]:
    """The runs of pages under these bytes that are not in the cache."""
    start = position - position % PAGE_SIZE
    size = position + length - start
    if size <= 0:
        return []
    pages = -(-size // PAGE_SIZE)
    address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, start)
    if address == _MAP_FAILED:
        return []
    try:
        residency = ctypes.create_string_buffer(pages)
        if _libc.mincore(address, size, residency) != 0:
            return []
    finally:
        _libc.munmap(address, size)
    resident = residency.raw.translate(_LOWEST_BIT)
    return [
        (start + run.start() * PAGE_SIZE, (run.end() - run.start()) * PAGE_SIZE)
        for run in _RUN_OF_MISSING.finditer(resident)
    ]


def would_not_wait(descriptor: int, position: int, length: int) -> bool:
    """True if these bytes, all within the file, can be read without waiting for the disk. False if unknown."""
    asked, answer = _ByteRange(position, length), _CacheStat()
    if _libc.syscall(_SYS_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(answer), 0) == 0:
        pages = (position + length - 1) // PAGE_SIZE - position // PAGE_SIZE + 1
        if answer.cached < pages:
            return False
    elif pages_not_cached(descriptor, position, length):
        return False
    # A page that is just being read in counts as cached. Reads go forward, so the last page stands for all.
    try:
        return os.preadv(descriptor, (bytearray(1),), position + length - 1, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def drop_pages(descriptor: int, ranges: list[Range]) -> None:
    """Drops these pages. The kernel keeps dirty and mapped pages."""
    for position, length in ranges:
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_DONTNEED)
