"""One file of the machine's disk: appends, reads that must not block, cold reads, syncs.

A failed append leaves the file as it was. Any thread may sync and cold-read a file while the loop appends: a lock per
file keeps the handle from being closed in the middle of a call.
"""

import contextlib
import ctypes
import errno
import os
import threading
from typing import Protocol

from cordwood.log.files.cold_pages import drop_pages, pages_not_cached, would_not_wait
from cordwood.log.files.recent_bytes import RecentBytes, Tail
from cordwood.log.files.syncing import Syncing
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.records.batch import Buffer

HOT_TAIL_BYTES = 8 << 20
"""The end of a file, up to this many bytes, is read without a look at the cache: it was just written."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE."""
_libc = ctypes.CDLL(None, use_errno=True)


class Handles(Protocol):
    """The part of a filesystem that a file needs: a bounded number of handles, and state that all files share."""

    reads_without_waiting: bool | None
    syncing: Syncing
    recent_bytes: RecentBytes

    def learn_reads_without_waiting(self, descriptor: int, position: int) -> bool: ...

    def open_descriptor(self, path: str, flags: int) -> int: ...

    def admit_handle(self, file: "OsFile") -> None: ...

    def forget_handle(self, file: "OsFile") -> None: ...


def storage_failure(error: OSError, action: str, path: str) -> StorageFailure:
    kind = DiskFull if error.errno in _NO_SPACE else StorageFailure
    return kind(f"cannot {action} {path}: {error.strerror}")


def write_rest(descriptor: int, data: Buffer, position: int, written: int) -> None:
    """Writes `data` from its byte `written` on."""
    view = memoryview(data)
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], position + written)


def _fallocate(descriptor: int, size: int) -> None:
    """Reserves disk without changing the file's length: after a crash the file ends with its last batch."""
    offset, length = ctypes.c_longlong(0), ctypes.c_longlong(size)
    if _libc.fallocate64(descriptor, _KEEP_SIZE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class OsFile:
    """A file whose handle is opened at first use, and again after it was closed."""

    __slots__ = (
        "_closing",
        "_descriptor",
        "_filesystem",
        "_lock",
        "_pins",
        "_size",
        "_syncing",
        "_tail",
        "_unsynced",
        "_used",
        "path",
    )

    def __init__(self, filesystem: Handles, path: str, size: int, descriptor: int = -1) -> None:
        self.path = path
        self._filesystem = filesystem
        self._size = size
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        """Held during fdatasync: the kernel reports a lost write to only one of two overlapping calls."""
        self._pins = 0
        """The number of threads inside a call on the handle without holding the lock."""
        self._closing = False
        self._unsynced = False
        self._used = False
        self._tail: Tail | None = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def unsynced(self) -> bool:
        return self._unsynced

    def append(self, data: Buffer) -> None:
        length = len(data)
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            position = self._size
            self._unsynced = self._used = True
            try:
                written = os.pwrite(descriptor, data, position)
                if written != length:
                    write_rest(descriptor, data, position, written)
            except OSError as error:
                # A written part lies beyond the known size: the next append overwrites it even if this truncate fails.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, position)
                raise storage_failure(error, "append to", self.path) from error
            self._size = position + length
            nowait = self._filesystem.reads_without_waiting
            if nowait is None:
                nowait = self._filesystem.learn_reads_without_waiting(descriptor, position)
            if not nowait:
                tail = self._tail
                if tail is None:
                    tail = self._tail = Tail(position)
                self._filesystem.recent_bytes.add(tail, data)

    def read(self, position: int, length: int) -> bytes:
        length = min(length, self._size - position)
        if length <= 0:
            return b""
        descriptor = self._pin()
        try:
            data = os.pread(descriptor, length, position)
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_failure(error, "read", self.path) from error
        finally:
            self._unpin()
        return data

    def read_now(self, position: int, into: memoryview) -> int:
        available = self._size - position
        if available <= 0:
            return 0
        if available < len(into):
            into = into[:available]
        if not self._filesystem.reads_without_waiting:
            tail = self._tail
            return 0 if tail is None else self._filesystem.recent_bytes.read(tail, position, into)
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            self._used = True
            if position < self._size - HOT_TAIL_BYTES and not would_not_wait(descriptor, position, len(into)):
                # The cache is checked first, because even a read that does not wait makes the kernel read ahead: a
                # reader far behind would fill the cache with pages that are never dropped.
                return 0
            try:
                return os.preadv(descriptor, (into,), position, os.RWF_NOWAIT)
            except BlockingIOError:
                return 0
            except OSError as error:
                raise storage_failure(error, "read", self.path) from error

    def send_now(self, socket: int, position: int, length: int) -> int:
        length = min(length, self._size - position)
        if length <= 0 or not self._filesystem.reads_without_waiting:
            return 0
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            self._used = True
            if not would_not_wait(descriptor, position, length):
                return 0
            try:
                return os.sendfile(socket, descriptor, position, length)
            except OSError as error:
                if error.errno in _NOT_SUPPORTED:
                    return 0
                if error.errno == errno.EIO:
                    raise storage_failure(error, "read", self.path) from error
                raise

    def read_cold(self, position: int, into: memoryview) -> int:
        available = self._size - position
        if available <= 0:
            return 0
        if available < len(into):
            into = into[:available]
        # The read has a handle of its own, because the advice against read-ahead holds for a whole handle: to the next
        # cold read, pages read ahead would look like another reader's.
        try:
            descriptor = self._filesystem.open_descriptor(self.path, os.O_RDONLY)
        except OSError as error:
            raise storage_failure(error, "open", self.path) from error
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            missing = pages_not_cached(descriptor, position, len(into))
            got = 0
            while got < len(into):
                count = os.preadv(descriptor, (into[got:],), position + got)
                if count == 0:
                    break
                got += count
            drop_pages(descriptor, missing)
            return got
        except OSError as error:
            raise storage_failure(error, "read", self.path) from error
        finally:
            os.close(descriptor)

    def truncate(self, size: int) -> None:
        assert size <= self._size, f"{self.path}: {size} is beyond the end at {self._size}"
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            self._unsynced = True
            try:
                os.ftruncate(descriptor, size)
            except OSError as error:
                raise storage_failure(error, "truncate", self.path) from error
            self._size = size
            if self._tail is not None:
                self._filesystem.recent_bytes.forget(self._tail)
                self._tail = None

    def reserve(self, total_bytes: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            if total_bytes > self._size:
                _fallocate(descriptor, total_bytes)
            else:
                os.ftruncate(descriptor, self._size)

    def sync(self) -> None:
        descriptor = self._pin(syncing=True)
        try:
            with self._syncing:
                self._filesystem.syncing.file(descriptor, self.path)
        finally:
            self._unpin()

    def forget_cached(self) -> None:
        descriptor = self._pin()
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise storage_failure(error, "drop from memory", self.path) from error
        finally:
            self._unpin()

    def close(self) -> None:
        with self._lock:
            if self._tail is not None:
                self._filesystem.recent_bytes.forget(self._tail)
                self._tail = None
            if self._descriptor < 0:
                return
            # With the lock held: a handle opened in between would be forgotten.
            self._filesystem.forget_handle(self)
            if self._pins:
                self._closing = True
            else:
                self._give_up_handle()

    def give_up_if_idle(self) -> bool:
        """Closes the handle if that is safe and the handle was not used since the last call."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._pins or self._unsynced:
                return False
            if self._used:
                self._used = False
                return False
            if self._descriptor >= 0:
                self._give_up_handle()
            return True
        finally:
            self._lock.release()

    def sync_and_give_up(self) -> bool:
        """Syncs and closes the handle, unless a thread uses it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._pins:
                return False
            if self._descriptor < 0:
                return True
            self._filesystem.syncing.file(self._descriptor, self.path)
            self._unsynced = False
            self._give_up_handle()
            return True
        finally:
            self._lock.release()

    def begin_shared_sync(self) -> bool:
        """Pins the handle while the whole filesystem is synced; False if the file has no unsynced writes."""
        with self._lock:
            if not self._unsynced or self._descriptor < 0:
                return False
            self._unsynced = False
            self._pins += 1
            return True

    def end_shared_sync(self) -> None:
        self._unpin()

    def _open(self) -> int:
        """Opens the handle; the caller holds the lock."""
        try:
            self._descriptor = self._filesystem.open_descriptor(self.path, os.O_RDWR)
        except OSError as error:
            raise storage_failure(error, "open", self.path) from error
        self._filesystem.admit_handle(self)
        return self._descriptor

    def _give_up_handle(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._closing = False
        os.close(descriptor)

    def _pin(self, *, syncing: bool = False) -> int:
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            self._used = True
            self._pins += 1
            if syncing:
                # Set before the call, so that an append during it counts as unsynced again.
                self._unsynced = False
            return descriptor

    def _unpin(self) -> None:
        with self._lock:
            self._pins -= 1
            if self._closing and not self._pins:
                self._give_up_handle()
