"""The promise of all tables to writers of batches.

A batch goes in two steps. `stage` does the work, invisibly, and may fail at any time. `commit` makes the batch visible
as a whole, with the batch's number in the same entry of the table's log; a batch whose number is there already is not
committed again. The number belongs to an application: one query, that is one checkpoint.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cordwood.pipelines.tables.data_files import DataFile, Written
from cordwood.pipelines.tables.stores import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MANY_SMALL_FILES: Final = 24


class FileSizes(NamedTuple):
    small_bytes: int
    """Smaller files are compacted once there are many."""
    target_bytes: int


ADDED_TO: Final = FileSizes(16 << 20, 128 << 20)
KEYED: Final = FileSizes(4 << 20, 16 << 20)
"""Files are small, because a change of one row rewrites its whole file."""


@dataclass(frozen=True)
class Staged:
    """A batch that is written and not yet visible."""

    files: tuple[DataFile, ...]
    rows: int
    null_keys: int = 0
    """Rows with a null key; a batch that has any is not committed."""
    input_ms: int = 0
    """How long the task that waited longest waited for its rows."""
    write_ms: int = 0
    """How long the task that wrote longest wrote, plus the driver's work after it."""


@dataclass(frozen=True)
class Change:
    """The change of a table's files by a commit."""

    files_added: int = 0
    bytes_added: int = 0
    files_searched: int = 0
    """Files that may have held a key of the batch."""
    files_rewritten: int = 0
    """Files that did hold one, and were replaced."""
    bytes_rewritten: int = 0


def staged_as(written: Written) -> Staged:
    """The staged batch that the tasks have written."""
    rows = sum(file.rows for file in written.files)
    return Staged(written.files, rows, input_ms=written.input_ms, write_ms=written.write_ms)


class BatchTable(Protocol):
    """A table that one process at a time writes batches to."""

    def last_batch(self, application: str) -> int | None:
        """The number of the last batch that this application committed."""

    def stage(self, rows: "DataFrame") -> Staged: ...

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change: ...

    def discard(self, staged: Staged) -> None:
        """Removes a staged batch that will not be committed."""

    def tidy(self, now_ms: int) -> str | None:
        """Compacts many small files into few large ones when it is time to. Returns a line about it, or None."""


@dataclass(frozen=True)
class Snapshot:
    """The files of a table at one moment. They stay for at least a day, whatever is written meanwhile."""

    schema: "StructType"
    files: tuple[Path, ...]
    """For an object store: names below it."""
    rows: int
    version: int
    remote: ObjectStore | None = None
    partitions: "pa.Table | None" = None
    """The columns that the files lack, because all rows of a file have one value of them: a row for each file."""


def is_time_to_compact(found_bytes: Iterable[int], sizes: FileSizes = ADDED_TO) -> bool:
    return sum(size < sizes.small_bytes for size in found_bytes) >= MANY_SMALL_FILES
