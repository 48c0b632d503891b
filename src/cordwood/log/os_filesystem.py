"""The machine's own disk: the only part of the log that calls `os`.

Promises: a bounded number of open handles, and no handle with unsynced writes is ever given up (the kernel could
report a failed write-back to nobody); an append that does not fit leaves the file as it was; reads that must not
block do not; a cold read leaves the page cache as it found it. Files may be synced and cold-read from any thread
while the loop appends: a lock per file keeps its handle from being closed in the middle of a call.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import threading
from collections import OrderedDict

from cordwood.log.cold_pages import drop_pages, pages_not_cached, would_not_wait
from cordwood.log.file_lock import FileLock
from cordwood.log.recent_bytes import RecentBytes, Tail
from cordwood.log.syncing import Syncing
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.records.batch import Buffer
from cordwood.segments.filesystem import File

DEFAULT_MAX_OPEN_FILES = 512
DEFAULT_TAIL_BYTES = 64 << 20
HOT_TAIL_BYTES = 8 << 20
"""So much of a file's end is read without asking whether it is cached: it was just written."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRITING = os.O_WRONLY | os.O_RDWR
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE."""
_libc = ctypes.CDLL(None, use_errno=True)


def _failure(error: OSError, action: str, path: str) -> StorageFailure:
    kind = DiskFull if error.errno in _NO_SPACE else StorageFailure
    return kind(f"cannot {action} {path}: {error.strerror}")


def _fallocate(descriptor: int, size: int) -> None:
    """Reserves without changing the file's length: after a crash it ends where its last batch does."""
    offset, length = ctypes.c_longlong(0), ctypes.c_longlong(size)
    if _libc.fallocate64(descriptor, _KEEP_SIZE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class OsFile:
    """A file whose handle is opened at first use, and again whenever it was given up in between."""

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

    def __init__(self, filesystem: "OsFilesystem", path: str, size: int, descriptor: int = -1) -> None:
        self.path = path
        self._filesystem = filesystem
        self._size = size
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        """Held during fdatasync: of two that overlap, the kernel tells only one of a lost write."""
        self._pins = 0
        """How many threads are inside a call on the handle without holding the lock."""
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
                    self._write_rest(descriptor, data, position, written)
            except OSError as error:
                # Whatever part got in lies beyond the size we know: the next append overwrites it even if this fails.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, position)
                raise _failure(error, "append to", self.path) from error
            self._size = position + length
            nowait = self._filesystem.reads_without_waiting
            if nowait is None:
                nowait = self._filesystem.learn_reads_without_waiting(descriptor, position)
            if not nowait:
                tail = self._tail
                if tail is None:
                    tail = self._tail = Tail(position)
                self._filesystem.recent_bytes.add(tail, data)

    @staticmethod
    def _write_rest(descriptor: int, data: Buffer, position: int, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(descriptor, view[written:], position + written)

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
            raise _failure(error, "read", self.path) from error
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
                # Asked first, because a read that does not wait still makes the kernel read ahead: a reader that is
                # far behind would fill the cache with pages that nobody takes out again.
                return 0
            try:
                return os.preadv(descriptor, (into,), position, os.RWF_NOWAIT)
            except BlockingIOError:
                return 0
            except OSError as error:
                raise _failure(error, "read", self.path) from error

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
                raise

    def read_cold(self, position: int, into: memoryview) -> int:
        available = self._size - position
        if available <= 0:
            return 0
        if available < len(into):
            into = into[:available]
        # A handle of its own, because the advice against read-ahead holds for a whole handle: pages read ahead would
        # look, to the next cold read, as if somebody else had wanted them.
        try:
            descriptor = self._filesystem.open_descriptor(self.path, os.O_RDONLY)
        except OSError as error:
            raise _failure(error, "open", self.path) from error
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
            raise _failure(error, "read", self.path) from error
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
                raise _failure(error, "truncate", self.path) from error
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
            raise _failure(error, "drop from memory", self.path) from error
        finally:
            self._unpin()

    def close(self) -> None:
        with self._lock:
            if self._tail is not None:
                self._filesystem.recent_bytes.forget(self._tail)
                self._tail = None
            if self._descriptor < 0:
                return
            # With the lock held, so that nobody opens it again in between and is then forgotten.
            self._filesystem.forget_handle(self)
            if self._pins:
                self._closing = True
            else:
                self._give_up_handle()

    def give_up_if_idle(self) -> bool:
        """Closes the handle if that is safe and it was not used since the last time somebody asked."""
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
        """Syncs and closes the handle, unless somebody is using it."""
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
        """Holds the handle while the whole filesystem is synced; False if there is nothing to sync in this file."""
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
            raise _failure(error, "open", self.path) from error
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
                # Before the call, so that what is appended during it counts as unsynced again.
                self._unsynced = False
            return descriptor

    def _unpin(self) -> None:
        with self._lock:
            self._pins -= 1
            if self._closing and not self._pins:
                self._give_up_handle()


class OsFilesystem:
    """The directory tree at and below `root`; paths are the machine's own."""

    def __init__(
        self,
        root: str,
        *,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
    ) -> None:
        assert max_open_files > 0
        self.root = root
        self.max_open_files = max_open_files
        self.forced_syncs = 0
        """How often every handle was unsynced, so that one had to be synced in order to open another."""
        self.reads_without_waiting: bool | None = None
        """Whether reads with RWF_NOWAIT work on this disk; unknown before the first append."""
        self.syncing = Syncing(root, self._open_directory)
        self.recent_bytes = RecentBytes(tail_bytes)
        self._handles: OrderedDict[OsFile, None] = OrderedDict()
        self._handles_lock = threading.Lock()

    def close(self) -> None:
        """Gives back what is kept for syncfs. Files have their own `close`."""
        self.syncing.close()

    @property
    def open_files(self) -> int:
        return len(self._handles)

    @property
    def unsynced_files(self) -> int:
        """How many handles cannot be given up before they are synced; near max_open_files it is time for a flush."""
        with self._handles_lock:
            return sum(file.unsynced for file in self._handles)

    def open(self, path: str, *, create: bool = False) -> File:
        try:
            if not create:
                return OsFile(self, path, os.stat(path).st_size)
            descriptor = self.open_descriptor(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure(error, "open", path) from error
        file = OsFile(self, path, os.fstat(descriptor).st_size, descriptor)
        self.admit_handle(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directories(self, directory: str) -> list[str]:
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failure(error, "list", directory) from error

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failure(error, "list", directory) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _failure(error, "make directory", path) from error
        if path == self.root:
            self.syncing.watch()

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure(error, f"rename to {new}", old) from error

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure(error, "remove", path) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure(error, "remove", path) from error

    def sync_directory(self, path: str) -> None:
        self.syncing.directory(path)

    def sync_everything(self) -> None:
        # Before files count as synced: if it cannot be begun, they still have to be.
        self.syncing.watch()
        with self._handles_lock:
            files = list(self._handles)
        pinned = [file for file in files if file.begin_shared_sync()]
        try:
            self.syncing.everything()
        finally:
            for file in pinned:
                file.end_shared_sync()

    def _open_directory(self, path: str) -> int:
        try:
            return self.open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _failure(error, "open directory", path) from error

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure(error, "read", path) from error

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            descriptor = self.open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                OsFile._write_rest(descriptor, data, 0, 0)
                self.syncing.file(descriptor, temporary)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError as error:
            raise _failure(error, "write", path) from error
        self.sync_directory(os.path.dirname(path) or ".")

    def free_bytes(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self.root)
        except OSError as error:
            raise _failure(error, "ask for free space at", self.root) from error
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def lock(self, path: str) -> FileLock:
        """Takes a lock that dies with this process, or raises StorageFailure because another one has it."""
        return FileLock(path)

    def learn_reads_without_waiting(self, descriptor: int, position: int) -> bool:
        """Whether RWF_NOWAIT works here, tried on a byte that was just written. tmpfs and overlayfs refuse it."""
        try:
            os.preadv(descriptor, (bytearray(1),), position, os.RWF_NOWAIT)
            works = True
        except BlockingIOError:
            works = True
        except OSError:
            works = False
        self.reads_without_waiting = works
        return works

    def open_descriptor(self, path: str, flags: int) -> int:
        """Opens it. If others have used up the descriptors, one of our handles is given up for it. Raises OSError."""
        if flags & _WRITING and not self.syncing.watching:
            with contextlib.suppress(StorageFailure):  # without a root there is nothing to watch
                self.syncing.watch()
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                with self._handles_lock:
                    if not self._give_up_one_handle():
                        raise

    def admit_handle(self, file: OsFile) -> None:
        """Counts a handle that was just opened, giving up the least used one if there are too many."""
        with self._handles_lock:
            if len(self._handles) >= self.max_open_files:
                self._give_up_one_handle()
            self._handles[file] = None

    def forget_handle(self, file: OsFile) -> None:
        with self._handles_lock:
            self._handles.pop(file, None)

    def _give_up_one_handle(self) -> bool:
        # Second chance instead of true recency: the hot path only sets a flag on the file.
        handles = self._handles
        for _ in range(2 * len(handles)):
            file, _nothing = handles.popitem(last=False)
            if file.give_up_if_idle():
                return True
            handles[file] = None
        # All are unsynced or in use. Syncing blocks, but a bound that yields under load is none.
        for file in list(handles):
            if file.sync_and_give_up():
                self.forced_syncs += 1
                del handles[file]
                return True
        return False
