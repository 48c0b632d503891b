"""Where the files of a table are: a directory of a shared file system, or a place in an object store.

A store is a small value: it goes to the executors, which write data files with it. Of an object store it carries the
options of the `deltalake` package, credentials among them where the definition gave any. Nothing here prints them.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.pipelines.errors import WrongState
from cordwood.pipelines.state_files import StateFiles

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COLOURS: Final = re.compile(r"\x1b\[\d+m")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
"""In the answer of an S3 server."""


class TableStore(Protocol):
    """The files of one table, by names below it."""

    @property
    def uri(self) -> str:
        """As `deltalake` takes it."""

    @property
    def options(self) -> dict[str, str] | None:
        """`deltalake`'s storage options."""

    def make(self) -> None:
        """Makes the place where files go, if it needs making."""

    def create(self, name: str) -> Any:
        """A new file to write to. Nobody sees it in an object store before it is closed."""

    def close(self, file: Any) -> int:
        """Closes a new file, durably: how many bytes it has."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    def make_durable(self, first_version: int) -> None:
        """Entries of Delta's log from this one on, and what they name, survive a power cut."""


@dataclass(frozen=True)
class LocalStore:
    """`durably=False`: files that need not survive a power cut, because nothing of them is promised yet."""

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

    def remove(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """The names of its files survive a power cut."""
        _sync([self.directory])

    def make_durable(self, first_version: int) -> None:
        """Neither writer of Delta syncs its files: a power cut could take back what Spark counts as done."""
        log = self.directory / "_delta_log"
        version = first_version
        while (entry := log / f"{version:020}.json").exists():
            _sync(self.directory / path for path in _paths_added(entry))
            # The entry, its checksum, and every so often all entries put together, with which readers begin.
            _sync(log.glob(f"{version:020}.*"))
            version += 1
        # Hadoop's, from when Delta's jars wrote a checkpoint: it would be wrong for one that `deltalake` wrote since.
        (log / "._last_checkpoint.crc").unlink(missing_ok=True)
        _sync([*log.glob("_last_checkpoint"), log, self.directory])


@dataclass(frozen=True)
class ObjectStore:
    """An object is there whole or not at all, and stays once the store has said so. Delta's log is written with
    conditional puts, so two writers cannot both write one entry."""

    url: str
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

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

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem().delete_file(name)

    def make_durable(self, first_version: int) -> None:
        pass

    def names(self) -> Iterator[str]:
        """All objects below it."""
        from pyarrow.fs import FileSelector, FileType

        for found in self.filesystem().get_file_info(FileSelector("", recursive=True, allow_not_found=True)):
            if found.type is FileType.File:
                yield found.path

    def with_options(self, more: Mapping[str, str]) -> "ObjectStore":
        return ObjectStore(self.url, tuple({**dict(self.given), **more}.items()))


TablePlace = Path | ObjectStore
"""How a table's place is told to whoever asks for it."""


def store_of(place: TablePlace) -> TableStore:
    return LocalStore(place) if isinstance(place, Path) else place


@contextmanager
def refusing_failures_of(place: TablePlace, cannot_be: str) -> Iterator[None]:
    """Makes a failure of an object store a refusal, for commands that somebody waits for. A running pipeline tries
    again instead."""
    try:
        yield
    except OSError as error:
        if isinstance(place, Path):
            raise
        hint = "credentials are those of the environment: an edition keeps none"
        raise WrongState(f"{place} cannot be {cannot_be}: {_reason(error)}", hint) from error


def _reason(error: OSError) -> str:
    """What a store's failure is about: `deltalake` says that in the last lines of a long text."""
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines()]
    told = [line for line in lines if line and not line.startswith("<")]
    in_words = _MESSAGE.search(str(error))
    return ": ".join([*dict.fromkeys([*told[:1], *told[-1:]]), *([in_words[1]] if in_words else [])])


def _paths_added(entry: Path) -> Iterator[str]:
    with open(entry, encoding="utf-8") as lines:
        for line in lines:
            action = json.loads(line)
            if "add" in action:
                yield action["add"]["path"]


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # an older entry may name a file that has left the table since, and was removed
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
