"""Stages rows with a key: one pass over the batch, then one row for each key.

Every task writes its rows, and keeps only the last row of every key in each row group. The driver then reads the
columns of the key and of the order, and rewrites the files with rows that are not the last of their key: small files if
keys repeat, and none if they do not.
"""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import DataFile, copy_rows, write_data_files
from cordwood.pipelines.tables.latest_rows import Ordered, last_by_spark, last_of_each_key
from cordwood.pipelines.tables.staged import Staged
from cordwood.pipelines.tables.stores import LocalStore

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

MAX_DRIVER_ROWS: Final = 4_000_000
"""The most rows whose keys the driver holds in memory, at some hundred bytes each. Spark takes larger batches."""


def stage_keyed(ordered: Ordered, table: Table, directory: Path) -> Staged:
    """Writes one row for each key into files of `directory`, which is emptied first."""
    empty(directory)
    keys, order = table.key, ordered.order
    # Only a merge reads these files: after a power cut they are staged again.
    store = LocalStore(directory, durably=False)

    def reduce(rows: "pa.Table") -> "pa.Table":
        chosen = last_of_each_key(rows, keys, order)
        return rows if chosen is None else rows.filter(chosen)

    written = write_data_files(ordered.rows, store, reduce=reduce if order else None)
    began_s, files = time.monotonic(), written.files
    null_keys = sum(json.loads(file.statistics)["nullCount"][key] for file in files for key in keys)
    if not null_keys:
        files = _one_row_of_each_key(files, ordered, table, store)
    write_ms = written.write_ms + round((time.monotonic() - began_s) * 1000)
    return Staged(files, sum(file.rows for file in files), null_keys, written.input_ms, write_ms)


def empty(directory: Path) -> None:
    """Makes the directory, without the files of earlier batches. A task of a batch that was cancelled may still write
    one: its name is its own, and the next batch removes it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)


def _one_row_of_each_key(
    files: tuple[DataFile, ...], ordered: Ordered, table: Table, store: LocalStore
) -> tuple[DataFile, ...]:
    import pyarrow as pa

    if sum(file.rows for file in files) > MAX_DRIVER_ROWS and ordered.order:
        rows = ordered.rows.sparkSession.read.schema(ordered.rows.schema).parquet(
            *(f"file:{store.directory.absolute() / file.name}" for file in files)
        )
        reduced = write_data_files(last_by_spark(rows, table.key, ordered.order), store)
        _remove(store, files)
        return reduced.files
    if not files:
        return ()
    columns = [*table.key, *ordered.order]
    chosen = last_of_each_key(pa.concat_tables(_read(store.directory, files, columns)), table.key, ordered.order)
    if chosen is None:
        return files
    if not ordered.order:
        raise InvalidRows(
            f"table {table.name}: a batch has several rows of one {', '.join(table.key)}, "
            "and nothing says which is the last",
            "keep the column _record, or declare latest_by=",
        )
    return rewritten(files, chosen, store)


def rewritten(files: Sequence[DataFile], chosen: "NDArray[np.bool_]", store: LocalStore) -> tuple[DataFile, ...]:
    """Files with the chosen ones of the rows alone, in the place of these files."""
    kept: list[DataFile] = []
    begin = 0
    for file in files:
        of_file = chosen[begin : begin + file.rows]
        begin += file.rows
        if of_file.all():
            kept.append(file)
            continue
        if of_file.any():
            kept.append(copy_rows(store.directory / file.name, store, of_file))
        _remove(store, [file])
    return tuple(kept)


def _read(directory: Path, files: Sequence[DataFile], columns: Sequence[str]) -> "list[Any]":
    import pyarrow.parquet as pq

    return [pq.read_table(directory / file.name, columns=list(columns), partitioning=None) for file in files]


def _remove(store: LocalStore, files: Sequence[DataFile]) -> None:
    for file in files:
        store.remove(file.name)
