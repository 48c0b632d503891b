"""Delta tables, written without Spark's Delta jars: files by the executors, the log by the `deltalake` package.

The batch's number is Delta's application transaction, in the same commit as the batch. `deltalake` refuses a commit if
another one of the same application came first, so even two writers that both believe in their turn write a batch once.

Rows with a key are staged in files beside the table and merged from there by `deltalake` in the driver's process: it
reads them as a stream and rewrites the files that hold replaced rows. Memory is bounded by `MERGE_MEMORY_BYTES`, beyond
which it spills to disk; the time it takes grows with the files that a batch touches.
"""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition import Table
from cordwood.pipelines.errors import InvalidRows
from cordwood.pipelines.state_files import StateFiles
from cordwood.pipelines.tables.data_files import DataFile, arrow_schema, write_data_files
from cordwood.pipelines.tables.latest_rows import DELETED, ROWS, latest_rows
from cordwood.pipelines.tables.staged import TARGET_FILE_BYTES, Snapshot, Staged, is_time_to_compact

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MERGE_MEMORY_BYTES: Final = 512 << 20
_CLEANING_INTERVAL_MS: Final = 24 * 3_600_000


class DeltaBatches:
    """`staging` is a directory of its own for rows that wait to be merged."""

    def __init__(self, directory: Path, table: Table, staging: Path) -> None:
        self._directory = directory
        self._table = table
        self._staging = staging
        self._cleaned_at_ms: int | None = None
        self._opened: DeltaTable | None = None

    def last_batch(self, application: str) -> int | None:
        opened = self._open()
        if opened is None:
            return None
        version: int | None = opened.transaction_version(application)
        return version

    def stage(self, rows: "DataFrame") -> Staged:
        if not self._table.key:
            written = rows.drop("_record")
            self._prepare(written.schema)
            return _staged(write_data_files(written, self._directory))
        latest, has_order = latest_rows(rows, self._table)
        self._prepare(_without(latest.schema, DELETED, ROWS))
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        files = write_data_files(latest, self._staging)
        told = [json.loads(file.statistics) for file in files]
        if not has_order and any(each["maxValues"][ROWS] > 1 for each in told):
            keys = ", ".join(self._table.key)
            raise InvalidRows(
                f"table {self._table.name}: a batch has several rows of one {keys}, and nothing says which is the last",
                "keep the column _record, or declare latest_by=",
            )
        null_keys = sum(each["nullCount"][key] for each in told for key in self._table.key)
        return _staged(files, null_keys)

    def commit(self, staged: Staged, application: str, batch_id: int) -> None:
        if staged.rows == 0:
            return
        opened = self._open()
        assert opened is not None, "staging makes the table"
        before = opened.version()
        properties = _transaction(application, batch_id)
        if self._table.key:
            self._merge(opened, staged, properties)
        else:
            actions = [_added(file) for file in staged.files]
            opened.create_write_transaction(actions, "append", opened.schema(), commit_properties=properties)
        self._make_durable(before + 1)
        if self._table.key:
            self.discard(staged)

    def discard(self, staged: Staged) -> None:
        parent = self._staging if self._table.key else self._directory
        for file in staged.files:
            (parent / file.name).unlink(missing_ok=True)

    def tidy(self, now_ms: int) -> str | None:
        opened = self._open()
        if opened is None:
            return None
        sizes: Any = opened.get_add_actions(flatten=True).column("size_bytes")
        if not is_time_to_compact([int(size.as_py()) for size in sizes]):
            return None
        before = opened.version()
        done = opened.optimize.compact(
            target_size=TARGET_FILE_BYTES, max_concurrent_tasks=1, max_spill_size=MERGE_MEMORY_BYTES
        )
        self._make_durable(before + 1)
        if self._cleaned_at_ms is None or now_ms - self._cleaned_at_ms > _CLEANING_INTERVAL_MS:
            self._cleaned_at_ms = now_ms
            # Files that left the table longer ago than its retention, a week, and files that no commit ever named.
            opened.vacuum(dry_run=False, full=True)
        return f"{done['numFilesRemoved']} files of table {self._table.name} made {done['numFilesAdded']}"

    def _open(self) -> "DeltaTable | None":
        """As it is now: others may have compacted it, or written to it under another application."""
        from deltalake import DeltaTable

        if self._opened is not None:
            self._opened.update_incremental()
        elif DeltaTable.is_deltatable(str(self._directory)):
            self._opened = DeltaTable(self._directory)
        return self._opened

    def _prepare(self, schema: "StructType") -> None:
        """The table has all columns of these rows; new ones are added, none changes its type."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
        from pyspark.sql.types import StructType

        wanted = arrow_schema(schema)
        opened = self._open()
        if opened is None:
            StateFiles().make_directory(self._directory)
            try:
                DeltaTable.create(str(self._directory), wanted, name=self._table.name)
            except DeltaError as error:
                raise InvalidRows(f"table {self._table.name}: its columns do not fit into Delta: {error}") from error
            self._make_durable(0)
            return
        there = {each.name: each for each in StructType.fromJson(json.loads(opened.schema().to_json()))}
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
            self._make_durable(before + 1)

    def _merge(self, opened: "DeltaTable", staged: Staged, properties: "CommitProperties") -> None:
        import pyarrow.dataset as ds

        files = [str(self._staging / file.name) for file in staged.files]
        rows = ds.dataset(files, format="parquet").scanner(batch_size=16_384).to_reader()
        columns = [name for name in rows.schema.names if name not in (DELETED, ROWS)]
        values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
        same_key = " and ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in self._table.key)
        (
            opened.merge(
                rows,
                same_key,
                source_alias="s",
                target_alias="t",
                streamed_exec=True,
                max_spill_size=MERGE_MEMORY_BYTES,
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{_quoted(DELETED)} and {_comes_after(self._table.latest_by, deletes=True)}")
            .when_matched_update(
                values, predicate=f"not s.{_quoted(DELETED)} and {_comes_after(self._table.latest_by)}"
            )
            .when_not_matched_insert(values, predicate=f"not s.{_quoted(DELETED)}")
            .execute()
        )

    def _make_durable(self, first_version: int) -> None:
        """The package leaves its files to the system's cache: a power cut could take back what Spark counts as done."""
        log = self._directory / "_delta_log"
        version = first_version
        while (entry := log / f"{version:020}.json").exists():
            _sync(self._directory / path for path in _paths_added(entry))
            _sync([entry])
            # Every so often all entries are put together, and readers begin with that.
            checkpoint = log / f"{version:020}.checkpoint.parquet"
            if checkpoint.exists():
                _sync([checkpoint, log / "_last_checkpoint"])
            version += 1
        _sync([log, self._directory])


def delta_snapshot(directory: Path) -> Snapshot | None:
    """The table as it is now; None if nothing was ever written to it."""
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    if not DeltaTable.is_deltatable(str(directory)):
        return None
    opened = DeltaTable(directory)
    schema = StructType.fromJson(json.loads(opened.schema().to_json()))
    return Snapshot(schema, tuple(Path(uri) for uri in opened.file_uris()), opened.count(), opened.version())


def _staged(files: list[DataFile], null_keys: int = 0) -> Staged:
    return Staged(tuple(files), sum(file.rows for file in files), null_keys)


def _added(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(file.name, file.size_bytes, {}, file.modified_ms, True, file.statistics)


def _transaction(application: str, batch_id: int) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(application, batch_id)])


def _without(schema: "StructType", *names: str) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType([each for each in schema if each.name not in names])


def _comes_after(latest_by: Sequence[str], *, deletes: bool = False) -> str:
    """Whether a row of the batch is not older than the one in the table, by these columns; as SQL. Null is before
    everything, as it is within a batch. A tombstone has none of them and deletes what is there."""
    after = "true"
    for name in reversed(latest_by):
        ours, theirs = f"s.{_quoted(name)}", f"t.{_quoted(name)}"
        same = f"({ours} = {theirs} or ({ours} is null and {theirs} is null))"
        after = f"(({ours} is not null and {theirs} is null) or {ours} > {theirs} or ({same} and {after}))"
    if deletes and latest_by:
        after = f"({' and '.join(f's.{_quoted(name)} is null' for name in latest_by)} or {after})"
    return after


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _paths_added(entry: Path) -> Iterable[str]:
    with open(entry, encoding="utf-8") as lines:
        for line in lines:
            action = json.loads(line)
            if "add" in action:
                yield action["add"]["path"]


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
