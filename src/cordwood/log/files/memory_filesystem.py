"""A filesystem in memory: for embedded brokers that need no disk, and for tests.

Files are as durable as the process, and `sync` costs nothing. Appends beyond `capacity_bytes` raise DiskFull.
"""

from cordwood.model.errors import DiskFull
from cordwood.records.batch import Buffer
from cordwood.segments.filesystem import File

UNBOUNDED_BYTES = 2**63 - 1


class MemoryFile:
    """A file in one growing buffer. No view of the buffer is handed out: a view would forbid it to grow."""

    __slots__ = ("_content", "_filesystem", "path")

    def __init__(self, filesystem: "MemoryFilesystem", path: str) -> None:
        self.path = path
        self._filesystem = filesystem
        self._content = bytearray()

    @property
    def size(self) -> int:
        return len(self._content)

    def append(self, data: Buffer) -> None:
        self._filesystem.take(len(data), self.path)
        self._content += data

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._content[position : position + length])

    def read_now(self, position: int, into: memoryview) -> int:
        part = self._content[position : position + len(into)]
        into[: len(part)] = part
        return len(part)

    def send_now(self, socket: int, position: int, length: int) -> int:
        return 0

    def read_cold(self, position: int, into: memoryview) -> int:
        return self.read_now(position, into)

    def truncate(self, size: int) -> None:
        assert size <= len(self._content), f"{self.path}: {size} is beyond the end at {len(self._content)}"
        self._filesystem.give_back(len(self._content) - size)
        del self._content[size:]

    def reserve(self, total_bytes: int) -> None:
        """Does nothing: memory is taken when it is needed."""

    def sync(self) -> None:
        """Does nothing: memory has no second, durable copy."""

    def forget_cached(self) -> None:
        """Does nothing: there is no cache."""

    def close(self) -> None:
        """Does nothing: there is no handle."""


class MemoryFilesystem:
    """A filesystem of files by path, with directories as sets of names."""

    def __init__(self, *, capacity_bytes: int = UNBOUNDED_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._files: dict[str, MemoryFile] = {}
        self._directories: dict[str, set[str]] = {}

    def take(self, count: int, path: str) -> None:
        """Counts bytes that are about to be written."""
        if self.used_bytes + count > self.capacity_bytes:
            raise DiskFull(f"cannot append to {path}: {self.capacity_bytes} bytes of memory are used up")
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        self.used_bytes -= count

    def open(self, path: str, *, create: bool = False) -> File:
        file = self._files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(path)
            self._enter(path)
            file = self._files[path] = MemoryFile(self, path)
        return file

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def list_directories(self, directory: str) -> list[str]:
        return [name for name in self.list(directory) if f"{directory}/{name}" in self._directories]

    def list(self, directory: str) -> list[str]:
        return sorted(self._directories.get(directory, ()))

    def make_directory(self, path: str) -> None:
        if not path or path in self._directories:
            return
        self.make_directory(path.rpartition("/")[0])
        self._directories[path] = set()
        self._enter(path)

    def check_present(self, path: str) -> None:
        """Does nothing: no other program can take a directory away."""

    def rename(self, old: str, new: str) -> None:
        if old in self._directories:
            self._rename_directory(old, new)
            return
        file = self._files.pop(old, None)
        if file is None:
            raise FileNotFoundError(old)
        self._leave(old)
        replaced = self._files.get(new)
        if replaced is not None:
            self.give_back(replaced.size)
        file.path = new
        self._files[new] = file
        self._enter(new)

    def _rename_directory(self, old: str, new: str) -> None:
        names = self._directories.pop(old)
        self._leave(old)
        self._directories[new] = names
        self._enter(new)
        for name in names:
            inner_old, inner_new = f"{old}/{name}", f"{new}/{name}"
            if inner_old in self._directories:
                self._rename_directory(inner_old, inner_new)
            else:
                file = self._files.pop(inner_old)
                file.path = inner_new
                self._files[inner_new] = file

    def remove(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is None:
            raise FileNotFoundError(path)
        self._leave(path)
        self.give_back(file.size)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inner = f"{path}/{name}"
            if inner in self._directories:
                self.remove_tree(inner)
            else:
                self.remove(inner)
        if self._directories.pop(path, None) is not None:
            self._leave(path)

    def sync_directory(self, path: str) -> None:
        """Does nothing: memory has no second, durable copy."""

    def sync_everything(self) -> None:
        """Does nothing: memory has no second, durable copy."""

    def read_bytes(self, path: str) -> bytes:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(path)
        return file.read(0, file.size)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        self.rename(temporary, path)

    def free_bytes(self) -> tuple[int, int]:
        return self.capacity_bytes, max(self.capacity_bytes - self.used_bytes, 0)

    def _enter(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        names = self._directories.get(directory)
        if names is None:
            if directory:
                raise FileNotFoundError(f"no such directory: {directory}")
            names = self._directories[""] = set()
        names.add(name)

    def _leave(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        names = self._directories.get(directory)
        if names is not None:
            names.discard(name)
