"""Rows as Parquet files, written by the executors beside the table's other files: nothing refers to them yet.

A task that is repeated writes another file of another name; only the names that Spark reports count. A file that no log
names is invisible to readers, and is removed when the table is cleaned. No row passes through the driver.
"""

import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from cordwood.pipelines.rows.watching import collected
from cordwood.pipelines.tables.steps import TableStep
from cordwood.pipelines.tables.stores import TableStore
from cordwood.spark.sink.steps import reached

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MAX_FILE_BYTES: Final = 256 << 20
ROW_GROUP_ROWS: Final = 256 << 10
ROW_GROUP_BYTES: Final = 32 << 20
"""The rows that a task gathers in memory: Spark hands over ten thousand rows at a time, too few for a row group."""
_MAX_STATISTIC_LENGTH: Final = 64
_REPORT: Final = "report"


class DataFile(NamedTuple):
    name: str
    size_bytes: int
    rows: int
    statistics: str
    """Delta's statistics: the number of rows, and by column the least, the greatest and the nulls."""
    modified_ms: int
    values: tuple[Any, ...] = ()
    """The values of the partition that all rows belong to, in the form of the table's format."""


class Written(NamedTuple):
    """The files that a task has written, or all tasks of a job together."""

    files: tuple[DataFile, ...]
    input_ms: int
    """How long the task waited for its rows; for a job, the longest wait of a task."""
    write_ms: int
    """How long the task wrote; for a job, the longest write of a task."""
    is_cut_off: bool = False
    """True if a task found more partitions than a batch may have, and stopped writing."""


class TaskFiles(Protocol):
    """The new files of one task."""

    is_full: bool
    """True if the files do not have all rows."""

    def write(self, batch: "pa.RecordBatch") -> None: ...

    def close(self) -> tuple[DataFile, ...]: ...


MakeFiles = Callable[[TableStore, "pa.Schema"], TaskFiles]


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """The Arrow schema of Spark's rows: timestamps in UTC, as table formats want them, and every column nullable: a
    later batch may have nulls where this one has none."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema.toNullable(), timezone="UTC")


Reduce = Callable[["pa.Table"], "pa.Table"]
"""Reduces the rows that were gathered for a row group to those that it keeps."""


def write_data_files(
    rows: "DataFrame", store: TableStore, *, reduce: Reduce | None = None, files: MakeFiles | None = None
) -> Written:
    """Writes the rows into new files of a store, and lists the files. `files` makes the files of a task, if they are to
    be others than large ones with any rows."""
    schema = arrow_schema(rows.schema)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        made = RolledFiles(lambda: FileWriter(store, schema, reduce)) if files is None else files(store, schema)
        written = write_partition(batches, made)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(written)], pa.binary())], names=[_REPORT])

    reported = collected(rows.mapInArrow(write, f"{_REPORT} binary"))
    tasks: list[Written] = [pickle.loads(row[_REPORT]) for row in reported]
    return Written(
        tuple(file for task in tasks for file in task.files),
        max((task.input_ms for task in tasks), default=0),
        max((task.write_ms for task in tasks), default=0),
        any(task.is_cut_off for task in tasks),
    )


def write_partition(batches: "Iterator[pa.RecordBatch]", files: TaskFiles) -> Written:
    """Writes the rows of one task."""
    began_ns, write_ns = time.monotonic_ns(), 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        writing_ns = time.monotonic_ns()
        files.write(batch)
        write_ns += time.monotonic_ns() - writing_ns
    writing_ns = time.monotonic_ns()
    written = files.close()
    reached(TableStep.FILES_WRITTEN)
    ended_ns = time.monotonic_ns()
    write_ns += ended_ns - writing_ns
    return Written(written, (ended_ns - began_ns - write_ns) // 1_000_000, write_ns // 1_000_000, files.is_full)


class RolledFiles:
    """Files of at most about `MAX_FILE_BYTES`, and none without rows."""

    is_full = False

    def __init__(self, begin: "Callable[[], FileWriter]") -> None:
        self._begin = begin
        self._writer: FileWriter | None = None
        self._files: list[DataFile] = []

    def write(self, batch: "pa.RecordBatch") -> None:
        if self._writer is None:
            self._writer = self._begin()
        self._writer.write(batch)
        if self._writer.size_bytes > MAX_FILE_BYTES:
            self._close_writer()

    def close(self) -> tuple[DataFile, ...]:
        self._close_writer()
        return tuple(self._files)

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._files.append(self._writer.close())
            self._writer = None


class FileWriter:
    """One new file of a store. `close` makes it durable, and describes it."""

    def __init__(self, store: TableStore, schema: "pa.Schema", reduce: Reduce | None = None) -> None:
        import pyarrow.parquet as pq

        self._store = store
        self._schema = schema
        self._reduce = reduce
        self._name = f"part-{uuid.uuid4()}.parquet"
        self._file = store.create(self._name)
        self._written: list[Any] = []
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            use_deprecated_int96_timestamps=False,
            metadata_collector=self._written,
        )
        self._rows = 0
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    @property
    def size_bytes(self) -> int:
        return int(self._file.tell())

    def write(self, batch: "pa.RecordBatch") -> None:
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered_rows >= ROW_GROUP_ROWS or self._gathered_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def _write_row_group(self) -> None:
        import pyarrow as pa

        if self._gathered:
            table = pa.Table.from_batches(self._gathered).cast(self._schema)
            self.write_row_group(table if self._reduce is None else self._reduce(table))
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0

    def write_row_group(self, rows: "pa.Table") -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows

    def close(self) -> DataFile:
        self._write_row_group()
        self._writer.close()
        size_bytes = self._store.close(self._file)
        statistics = _statistics(self._written[0], self._rows)
        return DataFile(self._name, size_bytes, self._rows, statistics, int(time.time() * 1000))


def _statistics(metadata: Any, rows: int) -> str:
    """Statistics that let readers and merges skip a file. Columns whose bounds are not plain to write down are left
    out."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    incomplete: set[str] = set()
    without_nulls: set[str] = set()
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name = column.path_in_schema
            statistics = column.statistics
            if "." in name or statistics is None or not statistics.has_null_count:
                incomplete.add(name)
                without_nulls.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            if not statistics.has_min_max:
                if statistics.null_count < column.num_values:
                    incomplete.add(name)
                continue
            try:
                low, high = statistics.min, statistics.max
            except (OverflowError, ValueError):
                # Spark has times after the year 9999 and text that is not UTF-8; Python does not.
                incomplete.add(name)
                continue
            if not (_is_plain(low) and _is_plain(high)):
                incomplete.add(name)
                continue
            least[name] = min(least.get(name, low), low)
            greatest[name] = max(greatest.get(name, high), high)
    told = [name for name in least if name not in incomplete]
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: _written(least[name]) for name in told},
            "maxValues": {name: _written(greatest[name]) for name in told},
            "nullCount": {name: count for name, count in nulls.items() if name not in without_nulls},
        }
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_STATISTIC_LENGTH
    return isinstance(value, int | date) and not isinstance(value, bool | datetime)


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def copy_rows(path: Path, store: TableStore, chosen: "NDArray[np.bool_]") -> DataFile:
    """Writes one new file with the chosen rows of another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        writer = FileWriter(store, file.schema_arrow)
        begin = 0
        for batch in file.iter_batches(batch_size=65_536):
            writer.write(batch.filter(pa.array(chosen[begin : begin + batch.num_rows])))
            begin += batch.num_rows
    return writer.close()
