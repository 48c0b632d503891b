"""The metadata files of an Iceberg table, synced before the catalog names them.

`pyiceberg` writes manifests and metadata and then changes the catalog, which is durable. Without a sync between the two
a power cut could leave a catalog that names a file without content, and no table at all.
"""

import os
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from cordwood.pipelines.definition.state_files import StateFiles


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
