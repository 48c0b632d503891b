"""Rows as files of partitions: all rows of a file have the same values of the columns that the table is partitioned by.

Each task parts the rows that it has gathered for a row group, without a shuffle: most batches have rows of few
partitions, and a shuffle would give nearly all rows of today to one task. If many tasks have rows of many partitions
they write many small files. These are then united, one task for a few partitions, from the files: the batch is not
computed again.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import (
    MAX_FILE_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    DataFile,
    FileWriter,
    RolledFiles,
    Written,
    arrow_schema,
    write_data_files,
)
from cordwood.pipelines.tables.latest_rows import codes_of
from cordwood.pipelines.tables.stores import TableStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MAX_PARTITIONS: Final = 5_000
"""The most partitions that a batch may have rows of: every one is a file, which readers open and the log lists."""
MAX_FILES: Final = 64
"""Batches of more files are united if they have more than two of a partition on average."""
_MAX_OPEN_FILES: Final = 32
"""A file of an object store takes some megabytes of memory while it is written."""


class Parting(Protocol):
    """How the rows of a table are parted: a small value that goes to the executors."""

    def values(self, rows: "pa.Table") -> "list[pa.ChunkedArray]":
        """For each partition column or transform, the value of each row, as the table's format keeps it."""

    def kept(self, schema: "pa.Schema") -> "pa.Schema":
        """The columns that the files have."""


class PartedFiles:
    """The files of one task."""

    def __init__(self, parting: Parting, store: TableStore, schema: "pa.Schema") -> None:
        self.is_full = False
        self._parting = parting
        self._store = store
        self._schema = schema
        self._kept = parting.kept(schema)
        self._open: dict[tuple[Any, ...], FileWriter] = {}
        self._known: set[tuple[Any, ...]] = set()
        self._files: list[DataFile] = []
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    def write(self, batch: "pa.RecordBatch") -> None:
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered_rows >= ROW_GROUP_ROWS or self._gathered_bytes >= ROW_GROUP_BYTES:
            self._write_gathered()

    def close(self) -> tuple[DataFile, ...]:
        self._write_gathered()
        for values in list(self._open):
            self._close(values)
        return tuple(self._files)

    def _write_gathered(self) -> None:
        import pyarrow as pa

        if self._gathered and not self.is_full:
            for values, rows in _parted(pa.Table.from_batches(self._gathered).cast(self._schema), self._parting):
                self._known.add(values)
                if len(self._known) > MAX_PARTITIONS:
                    self.is_full = True
                    break
                writer = self._writer_of(values)
                writer.write_row_group(rows.select(self._kept.names))
                if writer.size_bytes > MAX_FILE_BYTES:
                    self._close(values)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0

    def _writer_of(self, values: tuple[Any, ...]) -> FileWriter:
        writer = self._open.pop(values, None)
        if writer is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            writer = FileWriter(self._store, self._kept)
        # The one that was used last comes last.
        self._open[values] = writer
        return writer

    def _close(self, values: tuple[Any, ...]) -> None:
        self._files.append(self._open.pop(values).close()._replace(values=values))


def _parted(rows: "pa.Table", parting: Parting) -> "Iterator[tuple[tuple[Any, ...], pa.Table]]":
    """The rows of each partition, in the order in which they came."""
    import numpy as np

    columns = parting.values(rows)
    codes, distinct = codes_of(columns)
    if distinct == 1:
        yield tuple(column[0].as_py() for column in columns), rows
        return
    order = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ordered = rows.take(order)
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        yield tuple(column[order[begin]].as_py() for column in columns), ordered.slice(begin, end - begin)


def write_parted_files(rows: "DataFrame", store: TableStore, table: Table, parting: Parting) -> Written:
    """Writes rows into new files of a store: at least one for each partition, and not many more."""
    written = write_data_files(rows, store, files=partial(PartedFiles, parting))
    files = written.files
    partitions = len({file.values for file in files})
    if written.is_cut_off or partitions > MAX_PARTITIONS:
        _remove(store, files)
        by = ", ".join(map(str, table.partition_by))
        raise InvalidRows(
            f"table {table.name}: a batch has rows of more than {MAX_PARTITIONS} partitions by {by}, each a file",
            "partition_by= a coarser column, such as a day; or, for a backfill over many days, take smaller batches: "
            "max_rows_per_batch=",
        )
    if len(files) > MAX_FILES and len(files) > 2 * partitions:
        united = _united(rows.sparkSession, files, store, parting.kept(arrow_schema(rows.schema)))
        return written._replace(files=united)
    return written


def _united(
    spark: "SparkSession", files: Sequence[DataFile], store: TableStore, schema: "pa.Schema"
) -> tuple[DataFile, ...]:
    """One file for each partition that has several, in their place."""
    by_values: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        by_values.setdefault(file.values, []).append(file)
    several = [each for each in by_values.values() if len(each) > 1]
    alone = [each[0] for each in by_values.values() if len(each) == 1]
    groups = [[file.name for file in each] for each in several]
    tasks = min(len(groups), 4 * spark.sparkContext.defaultParallelism)

    def unite(numbers: Iterable[int]) -> Iterable[list[tuple[int, DataFile]]]:
        import pyarrow.parquet as pq

        for number in numbers:
            made = RolledFiles(lambda: FileWriter(store, schema))
            for name in groups[number]:
                with store.open(name) as opened, pq.ParquetFile(opened) as file:
                    for batch in file.iter_batches(batch_size=65_536):
                        made.write(batch)
            yield [(number, file) for file in made.close()]

    # The list of a cluster's tasks is short, and comes back as Python's own objects.
    reported = spark.sparkContext.parallelize(range(len(groups)), tasks).mapPartitions(unite).collect()
    made = [file._replace(values=several[number][0].values) for each in reported for number, file in each]
    _remove(store, [file for each in several for file in each])
    return (*alone, *made)


def _remove(store: TableStore, files: Sequence[DataFile]) -> None:
    for file in files:
        store.remove(file.name)


def check_partition_columns(schema: "StructType", table: Table) -> None:
    """Refuses rows that lack a column that the table is partitioned by."""
    there = [each.name for each in schema if each.name != RECORD]
    missing = next((name for name in table.partition_columns if name not in there), None)
    if missing is not None:
        only = ", ".join(there)
        raise InvalidRows(f"table {table.name}: its rows have no column {missing} to partition by, only {only}")
