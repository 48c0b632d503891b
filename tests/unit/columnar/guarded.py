"""Bytes with nothing behind them: whoever reads on is killed by the system, so no read beyond the end goes unseen."""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@contextmanager
def guarded(data: bytes | bytearray) -> Iterator[memoryview]:
    """The data in pages of their own, up to the last byte before a page that cannot be touched."""
    size = -(-len(data) // _PAGE) * _PAGE
    region = mmap.mmap(-1, size + _PAGE)
    whole = (ctypes.c_char * len(region)).from_buffer(region)
    guard = ctypes.addressof(whole) + size
    assert _libc.mprotect(guard, _PAGE, 0) == 0
    view = memoryview(region)
    view[size - len(data) : size] = data
    try:
        yield view[size - len(data) : size]
    finally:
        assert _libc.mprotect(guard, _PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
