"""Deletes that a table remembers for a time, so that an older row that comes late is not taken for a new one.

They are rows of a Delta table of their own, `_deleted` below the table: each has a key, the columns `latest_by` of the
row that deleted it, and when that was. Readers of Delta pass over names that begin with an underscore.

A batch's deletes are remembered before the batch is merged, with the batch's number. If a crash comes between the two,
the batch is repeated: it finds its own deletes remembered, and those are no newer than its rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import FileWriter
from cordwood.pipelines.tables.keyed_rows import rewritten
from cordwood.pipelines.tables.latest_rows import DELETED, last_of_each_key
from cordwood.pipelines.tables.staged import Change, Staged
from cordwood.pipelines.tables.stores import LocalStore

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

BELOW: Final = "_deleted"
AT_MS: Final = "_deleted_at_ms"
_FROM_BATCH: Final = "_from_batch"
_FORGETTING_INTERVAL_MS: Final = 3_600_000


class DeltaMemory(Protocol):
    """The table of deletes, as its writer."""

    def last_batch(self, application: str) -> int | None: ...

    def prepare(self, schema: "StructType") -> None: ...

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change: ...

    def tidy(self, now_ms: int) -> str | None: ...

    def rows_near(self, keys: "pa.Array", columns: Sequence[str]) -> "Iterator[pa.RecordBatch]": ...

    def remove_rows(self, condition: str) -> None: ...


class RememberedDeletes:
    """The deletes of one table. `staging` has the staged rows of the table's batches."""

    def __init__(self, table: Table, staging: Path, memory: DeltaMemory) -> None:
        self._table = table
        self._columns = [*table.key, *table.latest_by]
        self._staging = staging
        self._memory = memory
        self._forgotten_at_ms: int | None = None

    def prepare(self, schema: "StructType") -> None:
        from pyspark.sql.types import LongType, StructField, StructType

        for name in self._table.latest_by:
            if isinstance(schema[name].dataType, StructType):
                raise InvalidRows(
                    f"table {self._table.name}: deletes are remembered by plain values, and latest_by {name} is a "
                    "struct",
                    "select what is in it as columns of their own, and give latest_by= these",
                )
        named = [schema[name] for name in dict.fromkeys(self._columns)]
        self._memory.prepare(StructType([*named, StructField(AT_MS, LongType())]))

    def applied(self, staged: Staged, application: str, batch_id: int, now_ms: int) -> Staged:
        """Remembers the deletes of a batch, and returns the batch without rows that are older than a remembered delete
        of their key."""
        last = self._memory.last_batch(application)
        if last is None or last < batch_id:
            self._memory.commit(self._deletes_of(staged, now_ms), application, batch_id)
        return self._without_late_rows(staged)

    def tidy(self, now_ms: int) -> None:
        """Forgets deletes whose time is over, once an hour."""
        kept_ms = self._table.remember_deletes_ms
        is_time = self._forgotten_at_ms is None or now_ms - self._forgotten_at_ms > _FORGETTING_INTERVAL_MS
        if kept_ms is None or not is_time:
            return
        self._forgotten_at_ms = now_ms
        self._memory.remove_rows(f"{AT_MS} < {now_ms - kept_ms}")
        self._memory.tidy(now_ms)

    def _deletes_of(self, staged: Staged, now_ms: int) -> Staged:
        """Stages a row for each delete that has an order. A tombstone without one is neither older nor newer than any
        row."""
        import numpy as np
        import pyarrow as pa

        rows = self._read(staged)
        ordered = _mask(rows.column(DELETED)) & ~_without_order(rows, self._table.latest_by)
        deletes = rows.filter(pa.array(ordered)).select([*dict.fromkeys(self._columns)])
        count = deletes.num_rows
        if not count:
            return Staged((), 0)
        made = deletes.append_column(AT_MS, pa.array(np.full(count, now_ms), pa.int64()))
        made = made.append_column(DELETED, pa.array(np.zeros(count, np.bool_)))
        into = self._staging / BELOW
        into.mkdir(parents=True, exist_ok=True)
        writer = FileWriter(LocalStore(into, durably=False), made.schema)
        writer.write_row_group(made)
        return Staged((writer.close(),), count)

    def _without_late_rows(self, staged: Staged) -> Staged:
        import numpy as np
        import pyarrow as pa

        rows = self._read(staged)
        remembered = self._remembered(rows)
        if remembered is None:
            return staged
        compared = rows.select([*dict.fromkeys(self._columns)])
        both = pa.concat_tables([compared, remembered])
        # A row of the batch that equals a delete comes after it, as a row that equals the table's does.
        is_row = pa.array((np.arange(both.num_rows) < rows.num_rows).astype(np.int8))
        both = both.append_column(_FROM_BATCH, is_row)
        last = last_of_each_key(both, self._table.key, [*self._table.latest_by, _FROM_BATCH])
        if last is None:
            return staged
        tombstones = _mask(rows.column(DELETED)) & _without_order(rows, self._table.latest_by)
        chosen = last[: rows.num_rows] | tombstones
        files = rewritten(staged.files, chosen, LocalStore(self._staging, durably=False))
        return replace(staged, files=files, rows=sum(file.rows for file in files))

    def _remembered(self, rows: "pa.Table") -> "pa.Table | None":
        """The remembered deletes of keys that a batch has; None if there are none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        key = self._table.key[0]
        keys = pc.unique(rows.column(key))
        schema = rows.select([*dict.fromkeys(self._columns)]).schema
        found = []
        # Batch by batch: the deletes of other keys in between may be many.
        for batch in self._memory.rows_near(keys, schema.names):
            deletes = batch.select(schema.names).cast(schema)
            found.append(deletes.filter(pc.is_in(deletes.column(key), value_set=keys)))
        near = pa.Table.from_batches(found, schema)
        return near if near.num_rows else None

    def _read(self, staged: Staged) -> "pa.Table":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = [*dict.fromkeys([*self._columns, DELETED])]
        return pa.concat_tables(
            pq.read_table(self._staging / file.name, columns=columns, partitioning=None) for file in staged.files
        )


def _mask(column: "pa.ChunkedArray") -> "NDArray[np.bool_]":
    found: NDArray[np.bool_] = column.to_numpy().astype("bool")
    return found


def _without_order(rows: "pa.Table", latest_by: Sequence[str]) -> "NDArray[np.bool_]":
    import numpy as np

    nulls = [_mask(rows.column(name).is_null()) for name in latest_by]
    found: NDArray[np.bool_] = np.logical_and.reduce(nulls)
    return found
