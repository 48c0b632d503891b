"""The store of a table's files: a directory of a shared file system, or a place in an object store.

A store is a small value: it goes to the executors, which write data files with it. For an object store it carries the
options of the `deltalake` package, including any credentials of the definition. Nothing here prints them.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from cordwood.model.durable_files import sync
from cordwood.pipelines.definition.state_files import StateFiles

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COLOURS: Final = re.compile(r"\x1b\[\d+m")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
"""The message in an answer of an S3 server."""


_SLICE_BYTES: Final = 64 << 10


class TableStore(Protocol):
    """The files of one table, by names below it."""

    @property
    def uri(self) -> str:
        """The store's address in the form that `deltalake` takes."""

    @property
    def options(self) -> dict[str, str] | None:
        """`deltalake`'s storage options."""

    def make(self) -> None:
        """Makes the place where files go, if it needs making."""

    def create(self, name: str) -> Any:
        """Opens a new file for writing. In an object store it is invisible until it is closed."""

    def close(self, file: Any) -> int:
        """Closes a new file durably and returns its size in bytes."""

    def open(self, name: str) -> Any:
        """Opens a file for reading, as pyarrow takes it."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    def below(self, name: str) -> "TableStore":
        """The files below a name of this store."""

    def location(self, name: str) -> str:
        """A file's address, as Iceberg's metadata has it."""

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file whole, in the place of one that may be there."""

    def listed(self) -> "Iterator[tuple[str, int]]":
        """The names of files, and when each was written, in milliseconds."""

    def sync(self) -> None:
        """Makes the names of the files survive a power cut."""

    def make_durable(self, first_version: int) -> None:
        """Makes entries of Delta's log from `first_version` on, and the files that they name, survive a power cut."""


@dataclass(frozen=True)
class LocalStore:
    """A directory. With `durably=False` files need not survive a power cut, because nothing of them is promised yet."""

    directory: Path
    durably: bool = True

    @property
    def uri(self) -> str:
        return str(self.directory)

    @property
    def options(self) -> dict[str, str] | None:
        return None

    def make(self) -> None:
        StateFiles().make_directory(self.directory)

    def create(self, name: str) -> Any:
        return open(self.directory / name, "xb")

    def close(self, file: Any) -> int:
        file.flush()
        if self.durably:
            os.fsync(file.fileno())
        size_bytes = int(file.tell())
        file.close()
        return size_bytes

    def open(self, name: str) -> Any:
        from pyarrow import OSFile

        return OSFile(str(self.directory / name))

    def remove(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    def below(self, name: str) -> "LocalStore":
        return replace(self, directory=self.directory / name)

    def location(self, name: str) -> str:
        return f"file://{self.directory / name}"

    def replace(self, name: str, content: bytes) -> None:
        StateFiles().replace_bytes(self.directory / name, content)

    def listed(self) -> "Iterator[tuple[str, int]]":
        for path in self.directory.iterdir():
            if path.is_file():
                yield path.name, path.stat().st_mtime_ns // 1_000_000

    def sync(self) -> None:
        _sync([self.directory])

    def make_durable(self, first_version: int) -> None:
        """Syncs the log, which neither writer of Delta does: a power cut could take back what Spark counts as done."""
        log = self.directory / "_delta_log"
        version = first_version
        while (entry := log / f"{version:020}.json").exists():
            added = [self.directory / path for path in _paths_added(entry)]
            # `deltalake` makes a directory for each partition, and one in another if several columns part the rows.
            below = {parent for path in added for parent in path.parents if self.directory in parent.parents}
            _sync([*added, *below])
            # The entry, its checksum, and now and then a checkpoint of all entries, with which readers begin.
            _sync(log.glob(f"{version:020}.*"))
            version += 1
        # Hadoop's checksum, from a checkpoint that Delta's jars wrote: it would be wrong for one that `deltalake` wrote
        # since.
        (log / "._last_checkpoint.crc").unlink(missing_ok=True)
        _sync([*log.glob("_last_checkpoint"), log, self.directory])


@dataclass(frozen=True)
class ObjectStore:
    """A place in an object store. An object exists whole or not at all, and stays once the store has confirmed it.
    Delta's log is written with conditional puts, so two writers cannot both write one entry."""

    url: str
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    catalog: Path | None = None
    """The file that says which of an Iceberg table's metadata is the present one."""

    def __str__(self) -> str:
        return self.url

    @property
    def uri(self) -> str:
        return self.url

    @property
    def options(self) -> dict[str, str] | None:
        return dict(self.given)

    def filesystem(self) -> "FileSystem":
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.url, self.options))

    def make(self) -> None:
        pass

    def create(self, name: str) -> Any:
        return self.filesystem().open_output_stream(name)

    def close(self, file: Any) -> int:
        size_bytes = int(file.tell())
        file.close()
        return size_bytes

    def open(self, name: str) -> Any:
        return self.filesystem().open_input_file(name)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem().delete_file(name)

    def below(self, name: str) -> "ObjectStore":
        return replace(self, url=f"{self.url}/{name}")

    def location(self, name: str) -> str:
        return f"{self.url}/{name}"

    def replace(self, name: str, content: bytes) -> None:
        with self.filesystem().open_output_stream(name, buffer_size=2 * _SLICE_BYTES) as file:
            write_in_slices(file, content)

    def listed(self) -> "Iterator[tuple[str, int]]":
        from pyarrow.fs import FileSelector, FileType

        for found in self.filesystem().get_file_info(FileSelector("", allow_not_found=True)):
            if found.type is FileType.File:
                yield found.path, (found.mtime_ns or 0) // 1_000_000

    def sync(self) -> None:
        pass

    def make_durable(self, first_version: int) -> None:
        pass

    def names(self) -> Iterator[str]:
        """The names of all objects below the place."""
        from pyarrow.fs import FileSelector, FileType

        for found in self.filesystem().get_file_info(FileSelector("", recursive=True, allow_not_found=True)):
            if found.type is FileType.File:
                yield found.path

    def with_options(self, more: Mapping[str, str]) -> "ObjectStore":
        return replace(self, given=tuple({**dict(self.given), **more}.items()))


def write_in_slices(file: Any, content: bytes) -> None:
    """Writes to a buffered file of an object store. A slice that is larger than the file's buffer would go to
    `deltalake` as a buffer of Arrow's, which it refuses."""
    for begin in range(0, len(content), _SLICE_BYTES):
        file.write(content[begin : begin + _SLICE_BYTES])


FilePlace = Path | ObjectStore
"""The place of a table that consists of files."""


def store_of(place: FilePlace) -> TableStore:
    return LocalStore(place) if isinstance(place, Path) else place


def reason_of(error: Exception) -> str:
    """The cause of a store's failure, which `deltalake` gives in the last lines of a long text."""
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines()]
    told = [line for line in lines if line and not line.startswith("<")]
    in_words = _MESSAGE.search(str(error))
    return ": ".join([*dict.fromkeys([*told[:1], *told[-1:]]), *([in_words[1]] if in_words else [])])


def _paths_added(entry: Path) -> Iterator[str]:
    with open(entry, encoding="utf-8") as lines:
        for line in lines:
            action = json.loads(line)
            if "add" in action:
                yield unquote(action["add"]["path"])


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        # An older entry may name a file that has since left the table and was removed.
        with suppress(FileNotFoundError):
            sync(path)
