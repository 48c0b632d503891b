"""The metadata files of an Iceberg table: on a disk synced before the catalog names them, or in an object store.

`pyiceberg` writes manifests and metadata and then changes the catalog, which is durable. Without a sync between the two
a power cut could leave a catalog that names a file without content, and no table at all.
"""

import os
from pathlib import Path
from typing import Any

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.tables.stores import ObjectStore, write_in_slices

_URL = "cordwood.store"
_OPTION = "cordwood.option."


class SyncedFileIO(PyArrowFileIO):
    """Files of a local file system that are durable once they are closed. Loaded by its name, `py-io-impl`."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        return _SyncedFile(made.location, made._path, made._filesystem)


class _SyncedFile(PyArrowFile, OutputFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        StateFiles().make_directory(path.parent)
        return _SyncedStream(open(path, "wb" if overwrite else "xb"))


class _StoreFile(PyArrowFile, OutputFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _SlicedStream(super().create(overwrite))


class _SlicedStream(OutputStream):
    def __init__(self, file: OutputStream) -> None:
        self._file = file

    def write(self, b: bytes) -> int:
        write_in_slices(self._file, b)
        return len(b)

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "_SlicedStream":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _SyncedStream(OutputStream):
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, b: bytes) -> int:
        return int(self._file.write(b))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        StateFiles().sync_directory(Path(self._file.name).parent)

    def __enter__(self) -> "_SyncedStream":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def io_properties(place: Path | ObjectStore) -> dict[str, str]:
    """The properties with which `pyiceberg` makes the files of a table's place. They are the catalog's, not the
    table's: the credentials among them are written down nowhere."""
    if isinstance(place, Path):
        return {"py-io-impl": f"{__name__}.{SyncedFileIO.__name__}"}
    given = {f"{_OPTION}{name}": value for name, value in place.given}
    return {"py-io-impl": f"{__name__}.{StoreFileIO.__name__}", _URL: place.url, **given}


class StoreFileIO(PyArrowFileIO):
    """Files of an object store, through the file system and with the options that executors write data files with."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._url = properties[_URL]
        given = tuple((name.removeprefix(_OPTION), value) for name, value in properties.items() if _OPTION in name)
        self._store_filesystem = ObjectStore(self._url, given).filesystem()

    def new_input(self, location: str) -> PyArrowFile:
        return PyArrowFile(location, self._name(location), self._store_filesystem)

    def new_output(self, location: str) -> PyArrowFile:
        return _StoreFile(location, self._name(location), self._store_filesystem)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._store_filesystem.delete_file(self._name(location if isinstance(location, str) else location.location))

    def _name(self, location: str) -> str:
        assert location.startswith(f"{self._url}/"), f"{location} is not below {self._url}"
        return location.removeprefix(f"{self._url}/")
