"""Plain Parquet files with a manifest, for rows that are only added and readers that know nothing but Parquet.

    _manifest.json      which files the table has, and the last batch of every application: replaced as a whole
    part-….parquet      data files; those that the manifest does not name are no part of the table

The manifest is the table's log: a batch is visible once it is replaced, with all its files and its number. A reader
that lists the directory instead sees files before they are committed, and those that compaction has replaced.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import Table
from cordwood.pipelines.definition.errors import DamagedState, InvalidRows
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.tables.data_files import DataFile, arrow_schema, write_data_files
from cordwood.pipelines.tables.staged import ADDED_TO, Change, Snapshot, Staged, is_time_to_compact, staged_as
from cordwood.pipelines.tables.stores import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MANIFEST: Final = "_manifest.json"
_FORMAT: Final = 1
_KEPT_MS: Final = 24 * 3_600_000
"""How long a file stays after compaction replaced it: a reader may have just listed it."""


class ParquetBatches:
    def __init__(self, directory: Path, table: Table, files: StateFiles | None = None) -> None:
        assert not table.key, "plain Parquet has no rows to replace"
        self._directory = directory
        self._table = table
        self._files = files or StateFiles()
        self._swept_at_ms: int | None = None

    def last_batch(self, application: str) -> int | None:
        manifest = _read(self._files, self._directory)
        batch: int | None = None if manifest is None else manifest["batches"].get(application)
        return batch

    def stage(self, rows: "DataFrame") -> Staged:
        written = rows.drop("_record")
        manifest = _read(self._files, self._directory)
        if manifest is None:
            self._files.make_directory(self._directory)
            schema = json.loads(written.schema.toNullable().json())
            self._write({"schema": schema, "files": [], "replaced": [], "batches": {}})
        else:
            self._check(written.schema, manifest)
        staged = staged_as(write_data_files(written, LocalStore(self._directory)))
        self._files.sync_directory(self._directory)
        return staged

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change:
        if staged.rows == 0:
            return Change()
        manifest = _read(self._files, self._directory)
        assert manifest is not None, "staging makes the manifest"
        last = manifest["batches"].get(application)
        assert last is None or batch_id > last, f"batch {batch_id} of {application} after {last}"
        manifest["files"] += [_entry(file) for file in staged.files]
        manifest["batches"][application] = batch_id
        self._write(manifest)
        return Change(files_added=len(staged.files), bytes_added=sum(file.size_bytes for file in staged.files))

    def discard(self, staged: Staged) -> None:
        for file in staged.files:
            (self._directory / file.name).unlink(missing_ok=True)

    def tidy(self, now_ms: int) -> str | None:
        manifest = _read(self._files, self._directory)
        if manifest is None:
            return None
        gone = [entry for entry in manifest["replaced"] if now_ms - entry["replaced_at_ms"] > _KEPT_MS]
        if gone:
            manifest["replaced"] = [entry for entry in manifest["replaced"] if entry not in gone]
            self._write(manifest)
            for entry in gone:
                (self._directory / entry["name"]).unlink(missing_ok=True)
        self._sweep(manifest, now_ms)
        if not is_time_to_compact([entry["size_bytes"] for entry in manifest["files"]]):
            return None
        return self._compact(manifest, now_ms)

    def _sweep(self, manifest: dict[str, Any], now_ms: int) -> None:
        """Removes files that the manifest does not name, which failed tasks and interrupted batches leave."""
        if self._swept_at_ms is not None and now_ms - self._swept_at_ms <= _KEPT_MS:
            return
        self._swept_at_ms = now_ms
        named = {entry["name"] for entry in (*manifest["files"], *manifest["replaced"])}
        for path in self._directory.glob("part-*.parquet"):
            if path.name not in named and now_ms - path.stat().st_mtime * 1000 > _KEPT_MS:
                path.unlink()

    def _compact(self, manifest: dict[str, Any], now_ms: int) -> str:
        import pyarrow.parquet as pq

        from cordwood.pipelines.tables.data_files import rewrite_data_files

        small: list[dict[str, Any]] = []
        for entry in manifest["files"]:
            # Files are taken in the order of their commits, up to one large file: the rest waits for the next time.
            gathered_bytes = sum(each["size_bytes"] for each in small)
            if entry["size_bytes"] < ADDED_TO.small_bytes and gathered_bytes < ADDED_TO.target_bytes:
                small.append(entry)
        names = [str(self._directory / entry["name"]) for entry in small]
        schema = pq.read_schema(names[-1])
        made = rewrite_data_files(names, LocalStore(self._directory), schema)
        self._files.sync_directory(self._directory)
        replaced = {entry["name"] for entry in small}
        manifest["files"] = [_entry(made)] + [each for each in manifest["files"] if each["name"] not in replaced]
        manifest["replaced"] += [{**entry, "replaced_at_ms": now_ms} for entry in small]
        self._write(manifest)
        return f"{len(small)} files of table {self._table.name} made 1"

    def _check(self, schema: "StructType", manifest: dict[str, Any]) -> None:
        from pyspark.sql.types import StructType

        there = StructType.fromJson(manifest["schema"])
        if arrow_schema(there) != arrow_schema(schema):
            raise InvalidRows(
                f"table {self._table.name}: its rows were {there.simpleString()} and are now {schema.simpleString()}",
                "other columns are a new version: replay it beside the live table, and swap",
            )

    def _write(self, manifest: dict[str, Any]) -> None:
        self._files.replace(self._directory / _MANIFEST, {**manifest, "format": _FORMAT})


def parquet_snapshot(directory: Path) -> Snapshot | None:
    """The table as it is now; None if nothing was ever written to it."""
    from pyspark.sql.types import StructType

    manifest = _read(StateFiles(), directory)
    if manifest is None:
        return None
    files = tuple(directory / entry["name"] for entry in manifest["files"])
    rows = sum(entry["rows"] for entry in manifest["files"])
    return Snapshot(StructType.fromJson(manifest["schema"]), files, rows, max(manifest["batches"].values(), default=-1))


def _read(files: StateFiles, directory: Path) -> dict[str, Any] | None:
    manifest = files.read(directory / _MANIFEST)
    if manifest is not None and manifest.get("format") != _FORMAT:
        raise DamagedState(f"{directory / _MANIFEST} is of format {manifest.get('format')!r}")
    return manifest


def _entry(file: DataFile) -> dict[str, Any]:
    return {"name": file.name, "size_bytes": file.size_bytes, "rows": file.rows}
