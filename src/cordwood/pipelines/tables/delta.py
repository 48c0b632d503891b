"""Delta tables, written without Spark's Delta jars: files by the executors, the log by the `deltalake` package.

The batch's number is Delta's application transaction, in the same commit as the batch. `deltalake` refuses a commit if
another one of the same application came first, so even two writers that both try write a batch once.

Rows with a key are staged in files beside the table and merged from there by `deltalake` in the driver's process: it
reads them as a stream and rewrites the files that hold replaced rows. Memory is bounded by `MERGE_MEMORY_BYTES`, beyond
which it spills to disk; the time it takes grows with the files that may hold a key of the batch (`merge_scope`). If the
Spark session has Delta itself, and its jars fit this Spark, Delta merges large tables, on the executors.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import DataFile, Written, arrow_schema, write_data_files
from cordwood.pipelines.tables.delta_partitions import (
    DeltaParting,
    check_partitions,
    check_values,
    filters_of,
    partitions_of,
    values_of,
)
from cordwood.pipelines.tables.delta_spark import JarsDoNotFit, SparkMerge, is_for_spark, may_be_null_inside
from cordwood.pipelines.tables.keyed_rows import stage_keyed
from cordwood.pipelines.tables.latest_rows import DELETED, is_told_to_merge, ordered_rows
from cordwood.pipelines.tables.merge_rules import (
    FileBounds,
    MergeScope,
    PartitionScope,
    merge_rules,
    merge_scope,
    quoted,
)
from cordwood.pipelines.tables.parted_files import write_parted_files
from cordwood.pipelines.tables.remembered_deletes import BELOW, RememberedDeletes
from cordwood.pipelines.tables.staged import (
    ADDED_TO,
    KEYED,
    Change,
    FileSizes,
    Snapshot,
    Staged,
    is_time_to_compact,
    staged_as,
)
from cordwood.pipelines.tables.steps import TableStep
from cordwood.pipelines.tables.stores import FilePlace, LocalStore, ObjectStore, store_of
from cordwood.spark.sink.steps import reached

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MERGE_MEMORY_BYTES: Final = 512 << 20
_CLEANING_INTERVAL_MS: Final = 24 * 3_600_000


class DeltaBatches:
    """A Delta table for batches. `staging` is a directory of its own for rows that wait to be merged."""

    def __init__(self, place: FilePlace, table: Table, staging: Path) -> None:
        self._place = place
        self._store = store_of(place)
        self._table = table
        self._staging = staging
        self._cleaned_at_ms: int | None = None
        self._opened: DeltaTable | None = None
        self._spark: SparkSession | None = None
        self._on_spark: SparkMerge | None = None
        self._jars_fit = True  # stays True until a merge shows the opposite
        self._untold: str | None = None
        self._deletes: RememberedDeletes | None = None
        if table.remember_deletes_ms is not None:
            below = place / BELOW if isinstance(place, Path) else place.below(BELOW)
            kept = replace(table, delete_when=None, partition_by=(), remember_deletes_ms=None)
            self._deletes = RememberedDeletes(table, staging, DeltaBatches(below, kept, staging / BELOW))

    def last_batch(self, application: str) -> int | None:
        opened = self.open()
        if opened is None:
            return None
        version: int | None = opened.transaction_version(application)
        return version

    def stage(self, rows: "DataFrame") -> Staged:
        if not self._table.key:
            written = rows.drop("_record")
            self.prepare(written.schema)
            return staged_as(self._write(written))
        ordered = ordered_rows(rows, self._table)
        self.prepare(rows.drop("_record").schema)
        if self._deletes is not None:
            self._deletes.prepare(rows.schema)
        self._spark = rows.sparkSession
        return stage_keyed(ordered, self._table, self._staging)

    def _write(self, rows: "DataFrame") -> Written:
        columns = self._table.partition_columns
        if not columns:
            return write_data_files(rows, self._store)
        written = write_parted_files(rows, self._store, self._table, DeltaParting(columns))
        check_values(self._table, {file.values for file in written.files})
        return written

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change:
        if self._deletes is not None and staged.rows:
            staged = self._deletes.applied(staged, application, batch_id, int(time.time() * 1000))
        if staged.rows == 0:
            return Change()
        opened = self.open()
        assert opened is not None, "staging makes the table"
        before = opened.version()
        properties = _transaction(application, batch_id)
        if self._table.key:
            change = self._replace_rows(opened, staged, application, batch_id)
        else:
            columns = self._table.partition_columns
            actions = [_added(file, columns) for file in staged.files]
            opened.create_write_transaction(
                actions, "append", opened.schema(), partition_by=list(columns), commit_properties=properties
            )
            change = Change(len(staged.files), sum(file.size_bytes for file in staged.files))
        reached(TableStep.ENTERED)
        self._store.make_durable(before + 1)
        if self._table.key:
            self.discard(staged)
        return change

    def _replace_rows(self, opened: "DeltaTable", staged: Staged, application: str, batch_id: int) -> Change:
        import pyarrow.compute as pc

        rows = self._staged_rows(staged)
        columns = self._table.partition_columns
        searched = next((name for name in self._table.key if name not in columns), None)
        told = rows.scanner(columns=[*filter(None, [searched]), *columns, DELETED]).to_table()
        if columns:
            parts = told.filter(pc.invert(told.column(DELETED))).select(columns).group_by(list(columns)).aggregate([])
            check_values(self._table, values_of(parts))
        actions = _actions(opened)
        within = PartitionScope.of(told, [name for name in columns if name in self._table.key])
        near = within.near(actions)
        scope = MergeScope(near.num_rows, None)
        if searched is not None:
            scope = merge_scope(told.column(searched), _bounds(near, searched))
        before = _sizes(actions)
        if not self._merged_on_spark(opened, staged, within, application, batch_id):
            deletes = bool(pc.any(told.column(DELETED)).as_py())
            conditions = [within.condition('"'), None if searched is None else scope.condition(searched, '"')]
            self._merge(opened, rows, conditions, _transaction(application, batch_id), deletes=deletes)
        opened.update_incremental()
        return _change(before, _sizes(_actions(opened)), scope.files)

    def _staged_rows(self, staged: Staged) -> Any:
        import pyarrow.dataset as ds

        return ds.dataset([str(self._staging / file.name) for file in staged.files], format="parquet")

    def discard(self, staged: Staged) -> None:
        store = LocalStore(self._staging) if self._table.key else self._store
        for file in staged.files:
            store.remove(file.name)

    def rows_near(self, keys: "pa.Array", columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        """Rows of the files that may hold one of these keys."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        opened = self.open()
        if opened is None or not len(keys):
            return
        actions, ends = _actions(opened), pc.min_max(keys).as_py()
        for path, bounds in zip(actions.column("path").to_pylist(), _bounds(actions, self._table.key[0]), strict=True):
            is_known = bounds.least is not None and bounds.greatest is not None
            if is_known and (bounds.least > ends["max"] or bounds.greatest < ends["min"]):
                continue
            with self._store.open(unquote(path)) as opened_file, pq.ParquetFile(opened_file) as file:
                yield from file.iter_batches(columns=list(columns))

    def remove_rows(self, condition: str) -> None:
        """Removes rows in a commit that belongs to no batch."""
        opened = self.open()
        if opened is not None:
            before = opened.version()
            opened.delete(condition)
            self._store.make_durable(before + 1)

    def tidy(self, now_ms: int) -> str | None:
        untold, self._untold = self._untold, None
        opened = self.open()
        if opened is None:
            return untold
        if self._deletes is not None:
            self._deletes.tidy(now_ms)
        before = opened.version()
        compacted = self._compact(opened)
        if self._clean(opened, now_ms):
            self._store.make_durable(before + 1)
        return "; ".join(filter(None, (untold, compacted))) or None

    def _compact(self, opened: "DeltaTable") -> str | None:
        sizes, columns = KEYED if self._table.key else ADDED_TO, self._table.partition_columns
        before, removed, added = opened.version(), 0, 0
        for filters in _partitions_to_compact(_actions(opened), columns, sizes):
            done = opened.optimize.compact(
                partition_filters=filters or None,
                target_size=sizes.target_bytes,
                max_concurrent_tasks=1,
                max_spill_size=MERGE_MEMORY_BYTES,
            )
            removed, added = removed + done["numFilesRemoved"], added + done["numFilesAdded"]
        if not removed:
            return None
        self._store.make_durable(before + 1)
        return f"{removed} files of table {self._table.name} made {added}"

    def _clean(self, opened: "DeltaTable", now_ms: int) -> bool:
        """Removes files that left the table longer ago than its retention, a week, or that no commit ever named.
        Returns True if there were any. Merges replace files without ever making many small ones, so cleaning does not
        wait for compaction."""
        if self._cleaned_at_ms is not None and now_ms - self._cleaned_at_ms <= _CLEANING_INTERVAL_MS:
            return False
        self._cleaned_at_ms = now_ms
        return bool(opened.vacuum(dry_run=False, full=True))

    def open(self) -> "DeltaTable | None":
        """The table as it is now: others may have compacted it, or written to it under another application."""
        from deltalake import DeltaTable

        if self._opened is not None:
            self._opened.update_incremental()
        elif DeltaTable.is_deltatable(self._store.uri, self._store.options):
            self._opened = DeltaTable(self._store.uri, storage_options=self._store.options)
            # The writer of the last entries may have been killed before it synced them, and their batches are not
            # repeated. No step writes more than the two entries of a cleaning.
            self._store.make_durable(max(0, self._opened.version() - 1))
        return self._opened

    def prepare(self, schema: "StructType") -> None:
        """Makes sure that the table has all columns of these rows: adds new ones, refuses another type."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
        from pyspark.sql.types import StructType

        # A column without nulls in this batch may have some in the next.
        schema = schema.toNullable()
        opened = self.open()
        check_partitions(schema, self._table, opened)
        if opened is None:
            self._store.make()
            try:
                DeltaTable.create(
                    self._store.uri,
                    arrow_schema(schema),
                    name=self._table.name,
                    partition_by=list(self._table.partition_columns) or None,
                    storage_options=self._store.options,
                    configuration={"delta.targetFileSize": str(KEYED.target_bytes)} if self._table.key else None,
                )
            except DeltaError as error:
                raise InvalidRows(f"table {self._table.name}: its columns do not fit into Delta: {error}") from error
            reached(TableStep.MADE)
            self._store.make_durable(0)
            return
        there = {each.name: each for each in _columns(opened)}
        added = []
        for each in schema:
            known = there.get(each.name)
            if known is None:
                added.append(each)
            elif known.dataType.simpleString() != each.dataType.simpleString():
                was, now = known.dataType.simpleString(), each.dataType.simpleString()
                raise InvalidRows(
                    f"table {self._table.name}: the column {each.name} was {was} and is now {now}",
                    "a change of types is a new version: replay it beside the live table, and swap",
                )
        if added:
            from deltalake import Schema

            fields = Schema.from_arrow(arrow_schema(StructType(added))).fields
            before = opened.version()
            opened.alter.add_columns(fields)
            self._store.make_durable(before + 1)

    def _merged_on_spark(
        self, opened: "DeltaTable", staged: Staged, within: PartitionScope, application: str, batch_id: int
    ) -> bool:
        from deltalake.exceptions import CommitFailedError

        if self._spark is None or not isinstance(self._place, Path):
            return False  # Delta's jars would need Hadoop's for the store, and options of their own
        is_wanted = self._jars_fit and is_for_spark(self._spark, sum(_sizes(_actions(opened)).values()))
        if not is_wanted or not may_be_null_inside(_columns(opened)):
            return False
        if self._on_spark is None:
            self._on_spark = SparkMerge(self._spark, self._place, self._table)
        try:
            files = [self._staging / file.name for file in staged.files]
            done = self._on_spark.execute(files, within, application, batch_id)
        except JarsDoNotFit as misfit:
            self._jars_fit = False
            self._untold = f"table {self._table.name} is merged in the driver: Delta's jars do not fit Spark ({misfit})"
            # The failed merge may have committed.
            opened.update_incremental()
            last: int | None = opened.transaction_version(application)
            return last is not None and last >= batch_id
        if not done:
            raise CommitFailedError(f"table {self._table.name}: another writer has committed batch {batch_id}")
        return True

    def _merge(
        self,
        opened: "DeltaTable",
        staged: Any,
        within: Sequence[str | None],
        properties: "CommitProperties",
        *,
        deletes: bool,
    ) -> None:
        """Merges staged rows in the driver. `within`: conditions that hold for all rows of the table that have a key of
        the batch. `deletes`: some of the rows delete. Without them the merge does not test for deletion."""
        rows = staged.scanner(batch_size=16_384).to_reader()
        columns = [quoted(name, '"') for name in rows.schema.names if not is_told_to_merge(name)]
        values = {name: f"s.{name}" for name in columns}
        rules = merge_rules(self._table, '"')
        merge = opened.merge(
            rows,
            " and ".join([rules.same_key, *filter(None, within)]),
            source_alias="s",
            target_alias="t",
            streamed_exec=True,
            max_spill_size=MERGE_MEMORY_BYTES,
            commit_properties=properties,
        )
        if deletes:
            merge = merge.when_matched_delete(rules.delete)
        is_asked = deletes or bool(self._table.latest_by)
        (
            merge.when_matched_update(values, predicate=rules.update if is_asked else None)
            .when_not_matched_insert(values, predicate=rules.insert if deletes else None)
            .execute()
        )


def delta_snapshot(place: FilePlace) -> Snapshot | None:
    from deltalake import DeltaTable

    store = store_of(place)
    if not DeltaTable.is_deltatable(store.uri, store.options):
        return None
    opened = DeltaTable(store.uri, storage_options=store.options)
    actions, columns = _actions(opened), opened.metadata().partition_columns
    names = [unquote(name) for name in actions.column("path").to_pylist()]
    return Snapshot(
        _columns(opened),
        tuple(place / name if isinstance(place, Path) else Path(name) for name in names),
        opened.count(),
        opened.version(),
        place if isinstance(place, ObjectStore) else None,
        partitions_of(actions, columns) if columns and names else None,
    )


def _added(file: DataFile, columns: Sequence[str]) -> Any:
    from deltalake.transaction import AddAction

    values = dict(zip(columns, file.values, strict=True))
    return AddAction(file.name, file.size_bytes, values, file.modified_ms, True, file.statistics)


def _transaction(application: str, batch_id: int) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(application, batch_id)])


def _actions(opened: "DeltaTable") -> "pa.Table":
    """A row for each file of the table."""
    import pyarrow as pa

    return pa.table(opened.get_add_actions(flatten=True))


def _sizes(actions: "pa.Table") -> dict[str, int]:
    """The table's files, and the bytes of each."""
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def _bounds(actions: "pa.Table", key: str) -> list[FileBounds]:
    ends: list[Sequence[Any]] = []
    for name in (f"min.{key}", f"max.{key}"):
        there = name in actions.schema.names
        ends.append(actions.column(name).to_pylist() if there else [None] * actions.num_rows)
    return [FileBounds(*each) for each in zip(*ends, strict=True)]


def _partitions_to_compact(
    actions: "pa.Table", columns: Sequence[str], sizes: FileSizes
) -> list[list[tuple[str, str, Any]]]:
    """A filter for each partition with many small files; an empty one if the table has no partitions."""
    found = actions.column("size_bytes").to_pylist()
    if not columns or not found:
        return [[]] if is_time_to_compact(found, sizes) else []
    of_partition: dict[tuple[str | None, ...], list[int]] = {}
    for values, size in zip(values_of(partitions_of(actions, columns)), found, strict=True):
        of_partition.setdefault(values, []).append(size)
    due = [values for values, found in of_partition.items() if is_time_to_compact(found, sizes)]
    return [filters_of(columns, values) for values in due]


def _change(before: Mapping[str, int], after: Mapping[str, int], searched: int) -> Change:
    added = [size for path, size in after.items() if path not in before]
    removed = [size for path, size in before.items() if path not in after]
    return Change(len(added), sum(added), searched, len(removed), sum(removed))


def _columns(opened: "DeltaTable") -> "StructType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(opened.schema().to_json()))
