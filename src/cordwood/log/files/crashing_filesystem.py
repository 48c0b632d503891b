"""A disk that forgets, tears, reorders and fails as real disks do, by a seed: for tests of recovery.

`crash` is a power cut. Each file keeps some of its unsynced writes, independently of the other files: none, all, the
writes up to some moment with the last one torn, or a random choice of sectors with zeros in place of the rest. A
directory keeps its synced names plus a prefix of the changes since. Every File opened before the crash is dead.
"""

import random

from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.records.batch import Buffer
from cordwood.segments.filesystem import File

SECTOR_SIZE = 512


class _Inode:
    """The content of a file: as programs see it, as the platter has it, and the writes in between."""

    __slots__ = ("content", "durable", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []
        """Unsynced writes: (position, bytes), or (size, None) for a cut."""

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()

    def after_crash(self, chance: random.Random) -> bytes:
        if not self.pending:
            return self.durable
        match chance.randrange(4):
            case 0:
                return self.durable
            case 1:
                return bytes(self.content)
            case 2:
                return self._torn(chance)
            case _:
                return self._some_sectors(chance)

    def _torn(self, chance: random.Random) -> bytes:
        content = bytearray(self.durable)
        kept = chance.randrange(len(self.pending))
        for position, data in self.pending[:kept]:
            _apply(content, position, data)
        position, data = self.pending[kept]
        if data is not None:
            _apply(content, position, data[: chance.randrange(len(data) + 1)])
        return bytes(content)

    def _some_sectors(self, chance: random.Random) -> bytes:
        """Keeps the new size and some of the data: missing sectors read as zeros."""
        final = bytes(self.content)
        old = self.durable[: len(final)].ljust(len(final), b"\0")
        first_change = min(position for position, _ in self.pending)
        content = bytearray(final)
        for start in range(first_change - first_change % SECTOR_SIZE, len(final), SECTOR_SIZE):
            if chance.random() < 0.5:
                content[start : start + SECTOR_SIZE] = old[start : start + SECTOR_SIZE]
        return bytes(content)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class _Directory:
    """The names in a directory: as programs see them, as the platter has them, and the changes in between."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[dict[str, _Inode | _Directory | None]] = []
        """Unsynced changes of names: a rename removes one name and sets another at once."""

    def change(self, changes: dict[str, "_Inode | _Directory | None"]) -> None:
        self._apply(self.names, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        names = dict(self.durable)
        for changes in self.pending[: chance.randrange(len(self.pending) + 1)]:
            self._apply(names, changes)
        self.names = names
        self.sync()
        for name in sorted(names):
            node = names[name]
            if isinstance(node, _Directory):
                node.crash(chance)
            else:
                node.content = bytearray(node.after_crash(chance))
                node.sync()

    @staticmethod
    def _apply(names: dict[str, "_Inode | _Directory"], changes: dict[str, "_Inode | _Directory | None"]) -> None:
        for name, node in changes.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class CrashingFile:
    __slots__ = ("_filesystem", "_inode", "_life", "path")

    def __init__(self, filesystem: "CrashingFilesystem", path: str, inode: _Inode) -> None:
        self.path = path
        self._filesystem = filesystem
        self._inode = inode
        self._life = filesystem.crashes

    @property
    def size(self) -> int:
        return len(self._inode.content)

    def append(self, data: Buffer) -> None:
        self._check_alive()
        self._filesystem.take(len(data), self.path)
        self._inode.pending.append((len(self._inode.content), bytes(data)))
        self._inode.content += data

    def read(self, position: int, length: int) -> bytes:
        self._check_alive()
        return bytes(self._inode.content[position : position + length])

    def read_now(self, position: int, into: memoryview) -> int:
        self._check_alive()
        if self._filesystem.nothing_cached:
            return 0
        return self.read_cold(position, into)

    def send_now(self, socket: int, position: int, length: int) -> int:
        return 0

    def read_cold(self, position: int, into: memoryview) -> int:
        part = self.read(position, len(into))
        into[: len(part)] = part
        return len(part)

    def truncate(self, size: int) -> None:
        self._check_alive()
        assert size <= len(self._inode.content), f"{self.path}: {size} is beyond {len(self._inode.content)}"
        self._inode.pending.append((size, None))
        del self._inode.content[size:]

    def reserve(self, total_bytes: int) -> None:
        """Does nothing: reserved bytes are no content."""

    def sync(self) -> None:
        self._check_alive()
        self._filesystem.count_sync(self.path)
        self._inode.sync()

    def forget_cached(self) -> None:
        """Does nothing: reads always see the last write."""

    def close(self) -> None:
        """Does nothing: there is no handle."""

    def _check_alive(self) -> None:
        assert self._life == self._filesystem.crashes, f"{self.path} was opened before the crash"


class CrashingFilesystem:
    """One tree in memory with a platter behind it."""

    def __init__(self, seed: int = 0) -> None:
        self.crashes = 0
        self.syncs = 0
        self.nothing_cached = False
        """True if every read that must not block finds nothing."""
        self.free_for_appends: int | None = None
        """The bytes that can be appended before the disk is full; None: no limit."""
        self.fail_sync_at: int | None = None
        """The number of the first failing sync; all later syncs fail, too."""
        self._chance = random.Random(seed)
        self._root = _Directory()

    def boot_number(self) -> int:
        return self.crashes

    def crash(self) -> None:
        """Cuts the power."""
        self.crashes += 1
        self._root.crash(self._chance)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Changes bytes on the platter, as a bad disk does: no sync brings the old bytes back."""
        inode = self._inode(path)
        for content in (inode.content, durable := bytearray(inode.durable)):
            content[position : position + len(data)] = data
        inode.durable = bytes(durable)

    def cut(self, path: str, size: int) -> None:
        """Shortens a file on the platter."""
        inode = self._inode(path)
        del inode.content[size:]
        inode.sync()

    def take(self, count: int, path: str) -> None:
        if self.free_for_appends is not None:
            if count > self.free_for_appends:
                raise DiskFull(f"cannot append to {path}: no space left")
            self.free_for_appends -= count

    def count_sync(self, path: str) -> None:
        self.syncs += 1
        if self.fail_sync_at is not None and self.syncs >= self.fail_sync_at:
            raise SyncFailure(f"fdatasync of {path} failed: Input/output error")

    def open(self, path: str, *, create: bool = False) -> File:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            node = _Inode()
            directory.change({name: node})
        assert isinstance(node, _Inode), f"{path} is a directory"
        return CrashingFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list_directories(self, directory: str) -> list[str]:
        node = self._find(directory)
        names = node.names if isinstance(node, _Directory) else {}
        return sorted(name for name, each in names.items() if isinstance(each, _Directory))

    def list(self, directory: str) -> list[str]:
        node = self._find(directory)
        return sorted(node.names) if isinstance(node, _Directory) else []

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.names.get(name)
            if node is None:
                node = _Directory()
                directory.change({name: node})
            assert isinstance(node, _Directory), f"{path} goes through a file"
            directory = node

    def check_present(self, path: str) -> None:
        """Does nothing: no other program can take a directory away."""

    def rename(self, old: str, new: str) -> None:
        old_directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        if old_name not in old_directory.names:
            raise FileNotFoundError(old)
        node = old_directory.names[old_name]
        if old_directory is new_directory:
            old_directory.change({old_name: None, new_name: node})
        else:
            new_directory.change({new_name: node})
            old_directory.change({old_name: None})

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        if name not in directory.names:
            raise FileNotFoundError(path)
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        if self.exists(path):
            self.remove(path)

    def sync_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise StorageFailure(f"no such directory: {path}")
        self.count_sync(path)
        node.sync()

    def sync_everything(self) -> None:
        self.count_sync("/")
        todo = [self._root]
        while todo:
            directory = todo.pop()
            directory.sync()
            for node in directory.names.values():
                if isinstance(node, _Directory):
                    todo.append(node)
                else:
                    node.sync()

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._inode(path).content)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(path.rpartition("/")[0])

    def free_bytes(self) -> tuple[int, int]:
        free = 2**40 if self.free_for_appends is None else self.free_for_appends
        return 2**40, free

    def _find(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory) or name not in node.names:
                return None
            node = node.names[name]
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        node = self._find(directory)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(f"no such directory: {directory}")
        return node, name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
