"""Syncs by fdatasync, fsync and syncfs, none of which succeeds after a lost write.

The kernel reports a lost write once to each descriptor that was open at the time, and to no later descriptor if another
process was told first. So the descriptor for syncfs is opened before the first write and kept. If two threads sync the
same file at once, one gets the error and the other a success: so threads take turns, and after the first failure every
call fails. A failed sync is never tried again: the kernel drops the pages that it could not write.

The same descriptor shows whether the data directory is still at its path. A directory that was renamed, or whose disk
was unmounted, fails as a sync does: files made at its path would be missing when it is back.
"""

import ctypes
import os
import threading
import weakref
from collections.abc import Callable

from cordwood.model.errors import StorageFailure, SyncFailure

_DIRECTORY_LOCKS = 64

_libc = ctypes.CDLL(None, use_errno=True)


def _syncfs(descriptor: int) -> None:
    if _libc.syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Syncing:
    """The syncs of the filesystem at and below `root`."""

    def __init__(self, root: str, open_directory: Callable[[str], int]) -> None:
        """`open_directory` returns a new descriptor, or raises StorageFailure."""
        self._root = root
        self._open_directory = open_directory
        self._failure: str | None = None
        self._descriptor = -1
        """The descriptor for syncfs, which hears of every write lost since it was opened."""
        self.claimed = False
        """True if the root is a data directory in use, which has to stay at its path."""
        self._close_descriptor: weakref.finalize[[int], Syncing] | None = None
        self._opening = threading.Lock()
        self._everything = threading.Lock()
        self._directories = tuple(threading.Lock() for _ in range(_DIRECTORY_LOCKS))

    @property
    def watching(self) -> bool:
        return self._descriptor >= 0

    def watch(self) -> None:
        """Opens the descriptor that hears of lost writes. Called before the first write."""
        with self._opening:
            if not self.watching:
                descriptor = self._open_directory(self._root)
                self._close_descriptor = weakref.finalize(self, os.close, descriptor)
                self._descriptor = descriptor

    def claim(self) -> None:
        """Remembers the directory at the root: no other one takes its place until `close`."""
        self.watch()
        self.claimed = True

    def check_root(self) -> None:
        """Raises SyncFailure, now and for every later sync, if the claimed directory is not at its path any more. The
        open descriptor keeps the inode's number from being given to another directory."""
        if not self.claimed:
            return
        try:
            there = os.path.samestat(os.stat(self._root), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError as error:
            raise StorageFailure(f"cannot look for {self._root}: {error.strerror}") from error
        if not there:
            self._failure = f"{self._root} is gone: it was renamed or removed, or its disk was unmounted"
            raise SyncFailure(self._failure, self._root)

    def close(self) -> None:
        self.claimed = False
        with self._opening:
            if self._close_descriptor is not None:
                self._close_descriptor()
                self._close_descriptor, self._descriptor = None, -1

    def file(self, descriptor: int, path: str) -> None:
        """Syncs the content of a file. The caller makes sure that no other thread syncs this descriptor meanwhile."""
        self._call(os.fdatasync, descriptor, path)

    def directory(self, path: str) -> None:
        """Syncs the names in a directory."""
        # Opened with the lock held: a directory that is opened between another thread's failure and the note of it
        # would not hear of the failure.
        with self._directories[hash(path) % _DIRECTORY_LOCKS]:
            self.check_root()
            descriptor = self._open_directory(path)
            try:
                self._call(os.fsync, descriptor, path)
            finally:
                os.close(descriptor)

    def everything(self) -> None:
        """Syncs all content and names of the filesystem."""
        assert self.watching
        with self._everything:
            self.check_root()
            self._call(_syncfs, self._descriptor, self._root)

    def _call(self, call: Callable[[int], None], descriptor: int, path: str) -> None:
        if self._failure is not None:
            raise SyncFailure(self._failure, self._root)
        try:
            call(descriptor)
        except OSError as error:
            self._failure = f"{call.__name__.lstrip('_')} of {path} failed: {error.strerror}"
            raise SyncFailure(self._failure, self._root) from error
