"""The machine's own disk: the only part of the log that calls `os`.

Promises: the number of open handles is bounded, and no handle with unsynced writes is closed (the kernel would not
report a failed write-back); a failed append leaves the file as it was; reads that must not block do not; a cold read
leaves the page cache as it found it. os_file.py has the operations on one file.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
from collections import OrderedDict

from cordwood.log.files.os_file import OsFile, storage_failure, write_rest
from cordwood.log.files.recent_bytes import RecentBytes
from cordwood.log.files.syncing import Syncing
from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import File

DEFAULT_MAX_OPEN_FILES = 512
DEFAULT_TAIL_BYTES = 64 << 20

OWNERS_FILE, OWNERS_DIRECTORY = 0o600, 0o700
"""The modes of new files and directories: records are for the broker's user alone."""

_WRITING = os.O_WRONLY | os.O_RDWR
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class FileLock:
    """A lock between processes, as a file: held until released or until the process ends, however it ends."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNERS_FILE)
        except OSError as error:
            raise StorageFailure(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise StorageFailure(
                f"{path} is locked: this data directory is in use by another broker; stop it first"
            ) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            # A process that was forked meanwhile holds the descriptor, too: closing it here would not release the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


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
        """The number of times that a file had to be synced to free a handle, because all handles were unsynced."""
        self.reads_without_waiting: bool | None = None
        """True if reads with RWF_NOWAIT work on this disk; unknown before the first append."""
        self.syncing = Syncing(root, self._open_directory)
        self.recent_bytes = RecentBytes(tail_bytes)
        self._handles: OrderedDict[OsFile, None] = OrderedDict()
        self._handles_lock = threading.Lock()

    def close(self) -> None:
        """Closes the descriptor for syncfs. Files have their own `close`."""
        self.syncing.close()

    def boot_number(self) -> int | None:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return int(file.read().strip().replace("-", "")[:15], 16)
        except (OSError, ValueError):
            return None

    @property
    def open_files(self) -> int:
        return len(self._handles)

    @property
    def unsynced_files(self) -> int:
        """The number of handles that must be synced before they can be closed."""
        with self._handles_lock:
            return sum(file.unsynced for file in self._handles)

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.syncing.check_root()
        try:
            if not create:
                return OsFile(self, path, os.stat(path).st_size)
            descriptor = self.open_descriptor(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            self.syncing.check_root()
            raise
        except OSError as error:
            raise storage_failure(error, "open", path) from error
        file = OsFile(self, path, os.fstat(descriptor).st_size, descriptor)
        self.admit_handle(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directories(self, directory: str) -> list[str]:
        self.syncing.check_root()
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_failure(error, "list", directory) from error

    def list(self, directory: str) -> list[str]:
        # A log whose files cannot be seen would be taken for a new one.
        self.syncing.check_root()
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_failure(error, "list", directory) from error

    def make_directory(self, path: str) -> None:
        self.syncing.check_root()
        try:
            if self.syncing.claimed and path.startswith(f"{self.root}/"):
                self._make_below_root(path)
            else:
                os.makedirs(path, OWNERS_DIRECTORY, exist_ok=True)
        except OSError as error:
            self.syncing.check_root()
            raise storage_failure(error, "make directory", path) from error
        if path == self.root:
            self.syncing.claim()

    def _make_below_root(self, path: str) -> None:
        """Makes a directory and its parents, but not the root: a root that vanished must not begin anew, empty."""
        parent = os.path.dirname(path)
        if parent != self.root:
            self._make_below_root(parent)
        try:
            os.mkdir(path, OWNERS_DIRECTORY)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def check_present(self, path: str) -> None:
        self.syncing.check_root()

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except FileNotFoundError:
            self.syncing.check_root()
            raise
        except OSError as error:
            raise storage_failure(error, f"rename to {new}", old) from error

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            self.syncing.check_root()
            raise
        except OSError as error:
            raise storage_failure(error, "remove", path) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            self.syncing.check_root()
        except OSError as error:
            raise storage_failure(error, "remove", path) from error

    def sync_directory(self, path: str) -> None:
        self.syncing.directory(path)

    def sync_everything(self) -> None:
        # The descriptor is opened before files are marked as synced: if that fails, they stay unsynced.
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
            raise storage_failure(error, "open directory", path) from error

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            self.syncing.check_root()
            raise
        except OSError as error:
            raise storage_failure(error, "read", path) from error

    def replace(self, path: str, data: bytes) -> None:
        self.syncing.check_root()
        temporary = path + ".tmp"
        try:
            descriptor = self.open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_rest(descriptor, data, 0, 0)
                self.syncing.file(descriptor, temporary)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError as error:
            raise storage_failure(error, "write", path) from error
        self.sync_directory(os.path.dirname(path) or ".")

    def free_bytes(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self.root)
        except OSError as error:
            raise storage_failure(error, "ask for free space at", self.root) from error
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def lock(self, path: str) -> FileLock:
        """Takes a lock that ends with this process. Raises StorageFailure if another process has it."""
        return FileLock(path)

    def learn_reads_without_waiting(self, descriptor: int, position: int) -> bool:
        """Tries RWF_NOWAIT on a byte that was just written; tmpfs and overlayfs refuse it. True if it works."""
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
        """Opens a file. If the process is out of descriptors, another handle is closed. Raises OSError."""
        if flags & _WRITING and not self.syncing.watching:
            with contextlib.suppress(StorageFailure):  # without a root there is nothing to watch
                self.syncing.watch()
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, OWNERS_FILE)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                with self._handles_lock:
                    if not self._give_up_one_handle():
                        raise

    def admit_handle(self, file: OsFile) -> None:
        """Counts a new handle, and closes a little-used one if there are too many."""
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
        # All handles are unsynced or in use. Syncing blocks, but the bound must hold under load, too.
        for file in list(handles):
            if file.sync_and_give_up():
                self.forced_syncs += 1
                del handles[file]
                return True
        return False
