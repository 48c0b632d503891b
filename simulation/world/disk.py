"""The disk of the made-up machine: a `CrashingFilesystem` with a process in front of it that can die at any write.

Every change of a file or a name is an operation with a number. At the number that the seed picked the process dies
(`ProcessDied`): the operation has happened, has not, or, if it was an append, has happened in part. The kind of death
decides about the writes: a killed process leaves all its writes in the page cache, a power cut leaves those that the
`CrashingFilesystem` picks. As with `OsFilesystem`, handles are closed and opened behind the scenes: a file is found
again by its path.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from cordwood.broker.storage.cluster_witness import Seen
from cordwood.cluster.metadata.known_epochs import KnownEpochs
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.records.batch import Buffer
from cordwood.segments.filesystem import File


class ProcessDied(BaseException):
    """The process is gone. The exception is a BaseException: no code of the process may catch it."""

    def __init__(self, what: str, broker_id: int = 1) -> None:
        super().__init__(what)
        self.broker_id = broker_id


class Pausable(Protocol):
    """A thread that the simulator can stop before each of its operations."""

    def pause(self) -> None: ...


class SimulatedFile:
    __slots__ = ("_disk", "_file", "_life", "_size", "_unsynced", "path")

    def __init__(self, disk: "SimulatedDisk", file: File, *, keep_open: bool) -> None:
        self.path = file.path
        self._disk = disk
        self._life = disk.life
        self._file: File | None = file if keep_open else None
        self._size = file.size
        self._unsynced = False
        disk.handles.append(self)

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        file = self._handle()
        self._unsynced = True
        if self._disk.operation(f"append to {self.path}"):
            self._disk.append_in_part(file, data)
        file.append(data)
        self._size = file.size
        self._disk.operation_done()

    def read(self, position: int, length: int) -> bytes:
        self._disk.pause_point()
        self._disk.check_readable(self.path)
        return self._handle().read(position, min(length, max(0, self._size - position)))

    def peek(self, position: int, length: int) -> bytes:
        """The file's content for checkers, whatever faults the disk has now."""
        return self._handle().read(position, min(length, max(0, self._size - position)))

    def read_now(self, position: int, into: memoryview) -> int:
        return self._handle().read_now(position, into[: max(0, self._size - position)])

    def send_now(self, socket: int, position: int, length: int) -> int:
        return 0

    def read_cold(self, position: int, into: memoryview) -> int:
        self._disk.check_readable(self.path)
        return self._handle().read_cold(position, into[: max(0, self._size - position)])

    def truncate(self, size: int) -> None:
        file = self._handle()
        self._disk.operation(f"truncate {self.path} to {size}")
        self._unsynced = True
        file.truncate(size)
        self._size = size
        self._disk.operation_done()

    def reserve(self, total_bytes: int) -> None:
        """Does nothing: reserved bytes are no content."""

    def sync(self) -> None:
        file = self._handle()
        self._disk.operation(f"sync {self.path}")
        self._disk.check_syncs(self.path)
        file.sync()
        self._unsynced = False
        self._disk.operation_done()

    def forget_cached(self) -> None:
        """Does nothing: reads always see the last write."""

    def close(self) -> None:
        self._file = None

    def give_up(self) -> None:
        """Closes the handle, unless the file has unsynced writes, as `OsFilesystem` does when handles run short."""
        if not self._unsynced:
            self._file = None

    def synced_with_the_rest(self) -> None:
        self._unsynced = False

    def _handle(self) -> File:
        assert self._life == self._disk.life, f"{self.path} was opened by a process that is dead"
        if self._file is None:
            try:
                self._file = self._disk.platter.open(self.path)
            except FileNotFoundError as error:
                raise StorageFailure(f"cannot open {self.path}: no such file") from error
        return self._file


class SimulatedDisk:
    def __init__(self, seed: int, broker_id: int = 1) -> None:
        self.broker_id = broker_id
        self.platter = CrashingFilesystem(seed)
        self.life = 0
        self.handles: list[SimulatedFile] = []
        self.operations = 0
        self.last_operation = ""
        self.die_at: int | None = None
        """The number of the operation at which the process dies."""
        self.died = False
        self.unreadable = False
        """True if every read of the platter fails (EIO)."""
        self.syncs_fail = False
        self.failing = ""
        """A data directory in which every read, write and sync fails (EIO); empty: none does."""
        self.vanished = ""
        """A data directory that was renamed: only files that are open can be used; empty: none was."""
        self.only_syncs_fail = False
        """True if reads and writes of the failing directory succeed."""
        self.refuses: Callable[[str], bool] = lambda what: False
        """Returns True if an operation, which is described in words, fails (EIO)."""
        self.loss_not_noted = False
        """True if the power failed without a clean stop, and the controller of the cluster does not know yet."""
        self.platter_witness: Seen | None = None
        """The state of the cluster's metadata that the broker of this platter has seen."""
        self.platter_epochs: KnownEpochs | None = None
        """The epochs of partitions and brokers that it has seen there."""
        self.running: Pausable | None = None
        """The thread that runs now; None: the event loop."""
        self._undivided = 0
        self._chance = random.Random(seed + 1)

    # Faults

    def begin_life(self) -> None:
        """Begins a new process. Handles of the former process are dead."""
        self.life += 1
        self._undivided = 0
        self.handles.clear()
        self.died = False
        self.die_at = None
        self.unreadable = self.syncs_fail = False
        self.failing, self.vanished, self.only_syncs_fail = "", "", False
        self.refuses = lambda what: False

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Lets no directory fail meanwhile: a checker looks at the disk before the broker has noticed its failure."""
        failing, self.failing = self.failing, ""
        try:
            yield
        finally:
            self.failing = failing

    def lose_power(self) -> None:
        self.platter.crash()

    def replace_platter(self) -> None:
        """Puts an empty disk in the place of the old one."""
        self.platter = CrashingFilesystem(self._chance.getrandbits(32))
        self.loss_not_noted = False
        self.platter_witness = self.platter_epochs = None

    def boot_number(self) -> int:
        return self.platter.boot_number()

    def die_within(self, operations: int) -> None:
        """Lets the process die at one of its next operations."""
        self.die_at = self.operations + self._chance.randint(1, operations)

    def give_up_handles(self) -> None:
        """Closes handles, as if other files needed them: a file is opened again, by path, at its next use."""
        for file in self.handles:
            file.give_up()

    def operation(self, what: str) -> bool:
        """Counts an operation; the process may die before it, or (see operation_done) after it. True: in the middle."""
        self.pause_point()
        if self.died:
            raise ProcessDied(f"{what} by a process that is dead", self.broker_id)
        fails = self.failing and not self.only_syncs_fail and f"{self.failing}/" in what
        if self.refuses(what) or (fails and not what.startswith("sync")):
            raise StorageFailure(f"cannot {what}: Input/output error")
        self.operations += 1
        self.last_operation = what
        if self.die_at is None or self.operations < self.die_at:
            return False
        moment = self._chance.randrange(3)
        if moment == 0:
            self._die()
        return moment == 1 and what.startswith("append")

    def pause_point(self) -> None:
        if self.running is not None and not self._undivided:
            self.running.pause()

    def operation_done(self) -> None:
        if self.die_at is not None and self.operations >= self.die_at:
            self._die()

    def append_in_part(self, file: File, data: Buffer) -> None:
        file.append(bytes(data[: self._chance.randrange(len(data) + 1)]))
        self._die()

    def _die(self) -> None:
        self.died = True
        raise ProcessDied(self.last_operation, self.broker_id)

    def check_readable(self, path: str) -> None:
        if self.unreadable or (self._is_failing(path) and not self.only_syncs_fail):
            raise StorageFailure(f"cannot read {path}: Input/output error")

    def _is_failing(self, path: str) -> bool:
        return bool(self.failing) and f"{path}/".startswith(f"{self.failing}/")

    def check_present(self, path: str) -> None:
        if self.vanished and f"{path}/".startswith(f"{self.vanished}/"):
            raise SyncFailure(f"{self.vanished} is gone: it was renamed", self.vanished)

    def check_syncs(self, path: str) -> None:
        if self._is_failing(path):
            raise SyncFailure(f"fdatasync of {path} failed: Input/output error", self.failing)
        if self.syncs_fail:
            raise SyncFailure(f"fdatasync of {path} failed: Input/output error")

    # Filesystem

    def open(self, path: str, *, create: bool = False) -> File:
        self.check_present(path)
        self.pause_point()
        created = create and not self.platter.exists(path)
        if created:
            self.operation(f"create {path}")
        file = SimulatedFile(self, self.platter.open(path, create=create), keep_open=create)
        if created:
            self.operation_done()
        return file

    def exists(self, path: str) -> bool:
        return self.platter.exists(path)

    def list_directories(self, directory: str) -> list[str]:
        self.check_present(directory)
        return self.platter.list_directories(directory)

    def list(self, directory: str) -> list[str]:
        self.check_present(directory)
        return self.platter.list(directory)

    def make_directory(self, path: str) -> None:
        self.check_present(path)
        self.operation(f"make directory {path}")
        self.platter.make_directory(path)
        self.operation_done()

    def rename(self, old: str, new: str) -> None:
        self.check_present(old)
        self.operation(f"rename {old} to {new}")
        self.platter.rename(old, new)
        self.operation_done()

    def remove(self, path: str) -> None:
        self.check_present(path)
        self.operation(f"remove {path}")
        self.platter.remove(path)
        self.operation_done()

    def remove_tree(self, path: str) -> None:
        self.check_present(path)
        self.operation(f"remove tree {path}")
        self.platter.remove_tree(path)
        self.operation_done()

    def sync_directory(self, path: str) -> None:
        self.check_present(path)
        if not self.platter.exists(path):
            raise StorageFailure(f"cannot open directory {path}: no such directory")
        self.operation(f"sync directory {path}")
        self.check_syncs(path)
        self.platter.sync_directory(path)
        self.operation_done()

    def sync_everything(self) -> None:
        self.operation("sync everything")
        self.check_syncs("/")
        self.platter.sync_everything()
        for file in self.handles:
            file.synced_with_the_rest()
        self.operation_done()

    def read_bytes(self, path: str) -> bytes:
        self.check_present(path)
        self.pause_point()
        self.check_readable(path)
        return self.platter.read_bytes(path)

    def replace(self, path: str, data: bytes) -> None:
        """Replaces a file. Other threads do not interrupt it, for a lock may be held; but the process can die in it."""
        self._undivided += 1
        try:
            temporary = path + ".tmp"
            file = self.open(temporary, create=True)
            if file.size:
                file.truncate(0)
            file.append(data)
            file.sync()
            file.close()
            self.rename(temporary, path)
            self.sync_directory(path.rpartition("/")[0])
        finally:
            self._undivided -= 1

    def free_bytes(self) -> tuple[int, int]:
        return self.platter.free_bytes()
