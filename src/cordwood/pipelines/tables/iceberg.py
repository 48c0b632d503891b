"""Iceberg tables for rows that are only added, written with `pyiceberg`: no Spark jars, no rows in the driver.

    catalog.db                  a catalog of one table, `cordwood.<name>`, in SQLite
    metadata/                   Iceberg's own files
    metadata/version-hint.text  the number of the present v<number>.metadata.json, for readers that know the place alone
    data/part-….parquet         written by the executors; those that no manifest names are no part of the table

In an object store there is all but the catalog, which stays in the pipelines' directory: only its writer asks it. The
catalog decides; the copies that readers find by `version-hint.text` are written after it, and again by the next run if
a crash came between.

A batch is one commit: its files and, as a property of the table, its number. Properties stay when snapshots expire.
`pyiceberg` repeats a commit that lost a race, on top of the winner's: two writers of one batch would both add it. So
tables are made with `commit.retry.num-retries=0`, and the second writer is refused.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import arrow_schema, write_data_files
from cordwood.pipelines.tables.iceberg_partitions import (
    IcebergParting,
    check_transforms,
    data_file,
    name_of,
    transform_of,
)
from cordwood.pipelines.tables.parted_files import write_parted_files
from cordwood.pipelines.tables.staged import Change, Snapshot, Staged, staged_as
from cordwood.pipelines.tables.steps import TableStep
from cordwood.pipelines.tables.stores import FilePlace, LocalStore, ObjectStore, store_of
from cordwood.spark.sink.steps import reached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NAMESPACE: Final = "cordwood"
_BATCH: Final = "cordwood.batch."
_SCHEMA: Final = "cordwood.schema"
"""Spark's schema: Iceberg has fewer types, and a change between types that it merges would go unseen."""
_PARTITIONS: Final = "cordwood.partition_by"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_KEPT_COPIES: Final = 20
_HINT: Final = "version-hint.text"
_COPY: Final = re.compile(r"v(\d+)\.metadata\.json")
_TIDYING_INTERVAL_MS: Final = 24 * 3_600_000
_KEPT_MS: Final = 7 * _TIDYING_INTERVAL_MS


class IcebergBatches:
    def __init__(self, place: FilePlace, table: Table, staging: Path) -> None:
        assert not table.key, "rows of an Iceberg table are only added"
        self._place = place
        self._table = table
        self._metadata = store_of(place).below("metadata")
        self.store = store_of(place).below("data")
        self._opened: Any = None
        self._published: str | None = None
        self._tidied_at_ms: int | None = None

    def last_batch(self, application: str) -> int | None:
        opened = self.open()
        told = None if opened is None else opened.properties.get(f"{_BATCH}{application}")
        return None if told is None else int(told)

    def stage(self, rows: "DataFrame") -> Staged:
        written = rows.drop("_record")
        self.prepare(written.schema.toNullable())
        if not self._table.partition_by:
            return staged_as(write_data_files(written, self.store))
        parting = IcebergParting(self._table.partition_by)
        return staged_as(write_parted_files(written, self.store, self._table, parting))

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change:
        if staged.rows == 0:
            return Change()
        opened = self.open()
        assert opened is not None, "staging makes the table"
        # Names of files are durable before the catalog names the files.
        self.store.sync()
        with opened.transaction() as transaction:
            transaction.set_properties({f"{_BATCH}{application}": str(batch_id)})
            metadata = transaction.table_metadata
            added = [
                data_file(metadata, opened.io, self.store.location(file.name), file.values) for file in staged.files
            ]
            with transaction.update_snapshot().merge_append() as append:
                for each in added:
                    append.append_data_file(each)
        reached(TableStep.ENTERED)
        self._publish(opened)
        return Change(len(staged.files), sum(file.size_bytes for file in staged.files))

    def discard(self, staged: Staged) -> None:
        for file in staged.files:
            self.store.remove(file.name)

    def tidy(self, now_ms: int) -> str | None:
        """Once a day, removes snapshots older than a week and files of interrupted batches. Small files stay:
        `pyiceberg` can compact them only through the driver's memory."""
        if self._tidied_at_ms is not None and now_ms - self._tidied_at_ms <= _TIDYING_INTERVAL_MS:
            return None
        self._tidied_at_ms = now_ms
        opened = self.open()
        if opened is None:
            return None
        old = [each for each in opened.snapshots() if each.timestamp_ms < now_ms - _KEPT_MS]
        current = opened.current_snapshot()
        expired = [each.snapshot_id for each in old if current is None or each.snapshot_id != current.snapshot_id]
        if expired:
            opened.maintenance.expire_snapshots().by_ids(expired).commit()
        named = {Path(task.file.file_path).name for task in opened.scan().plan_files()}
        for name, written_ms in list(self.store.listed()):
            if name not in named and now_ms - written_ms > _TIDYING_INTERVAL_MS:
                self.store.remove(name)
        last = _number_of(opened.metadata_location)
        for name, _ in list(self._metadata.listed()):
            copied = _COPY.fullmatch(name)
            if copied is not None and int(copied[1]) <= last - _KEPT_COPIES:
                self._metadata.remove(name)
        return None

    def open(self) -> Any:
        """The table as it is now; None if there is none."""
        if self._opened is None:
            self._opened = _load(self._place)
        else:
            self._opened.refresh()
        if self._opened is not None:
            self._publish(self._opened)
        return self._opened

    def _publish(self, opened: Any) -> None:
        """Copies the present metadata to where readers without the catalog look for it."""
        location = opened.metadata_location
        if location == self._published:
            return
        number = _number_of(location)
        with opened.io.new_input(location).open() as file:
            content = bytes(file.read())
        self._metadata.replace(f"v{number}.metadata.json", content)
        self._metadata.replace(_HINT, str(number).encode())
        self._metadata.remove(f"v{number - _KEPT_COPIES}.metadata.json")
        self._published = location

    def prepare(self, schema: "StructType") -> None:
        """Makes sure that the table has all columns of these rows: adds new ones, refuses another type."""
        from pyspark.sql.types import StructType

        opened = self.open()
        self._check_partitions(schema, opened)
        self.store.make()
        if opened is None:
            self._opened = self._create(schema)
            reached(TableStep.MADE)
            self._map_names(self._opened)
            return
        known = StructType.fromJson(json.loads(opened.properties[_SCHEMA]))
        there = {each.name: each.dataType.simpleString() for each in known}
        for each in schema:
            was, now = there.get(each.name), each.dataType.simpleString()
            if was is not None and was != now:
                raise InvalidRows(
                    f"table {self._table.name}: the column {each.name} was {was} and is now {now}",
                    "a change of types is a new version: replay it beside the live table, and swap",
                )
        added = [each for each in schema if each.name not in there]
        if added:
            whole = StructType([*known, *added])
            with opened.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(arrow_schema(StructType(added)))
                transaction.set_properties({_SCHEMA: json.dumps(whole.jsonValue())})
        self._map_names(opened)

    def _check_partitions(self, schema: "StructType", opened: Any) -> None:
        declared = ", ".join(map(str, self._table.partition_by))
        there = declared if opened is None else opened.properties.get(_PARTITIONS, "")
        if there != declared:
            raise InvalidRows(
                f"table {self._table.name}: it is partitioned by {there or 'nothing'}, and declared with "
                f"{declared or 'nothing'}",
                "other partitions are a new version: replay it beside the live table, and swap",
            )
        check_transforms(schema, self._table)

    def _map_names(self, opened: Any) -> None:
        """Has readers find columns by name: the executors' files do not number them."""
        if opened.metadata.name_mapping() is None:
            mapping = opened.metadata.schema().name_mapping.model_dump_json()
            with opened.transaction() as transaction:
                transaction.set_properties({_NAME_MAPPING: mapping})

    def _create(self, schema: "StructType") -> Any:
        _catalog_file(self._place).parent.mkdir(parents=True, exist_ok=True)
        catalog = _catalog(self._place)
        catalog.create_namespace_if_not_exists(NAMESPACE)
        partitions = ", ".join(map(str, self._table.partition_by))
        try:
            with catalog.create_table_transaction(
                f"{NAMESPACE}.{self._table.name}",
                arrow_schema(schema),
                location=_location(self._place),
                properties={**_PROPERTIES, _SCHEMA: json.dumps(schema.jsonValue()), _PARTITIONS: partitions},
            ) as transaction:
                if self._table.partition_by:
                    with transaction.update_spec() as update:
                        for each in self._table.partition_by:
                            update.add_field(each.column, transform_of(each), name_of(each))
            return catalog.load_table(f"{NAMESPACE}.{self._table.name}")
        except (TypeError, ValueError, NotImplementedError) as error:
            raise InvalidRows(f"table {self._table.name}: its columns do not fit into Iceberg: {error}") from error


def iceberg_snapshot(place: FilePlace) -> Snapshot | None:
    from pyspark.sql.types import StructType

    opened = _load(place)
    if opened is None:
        return None
    tasks = [task.file for task in opened.scan().plan_files()]
    before = "file://" if isinstance(place, Path) else f"{place}/"
    files = tuple(Path(file.file_path.removeprefix(before)) for file in tasks)
    schema = StructType.fromJson(json.loads(opened.properties[_SCHEMA]))
    rows = sum(file.record_count for file in tasks)
    return Snapshot(schema, files, rows, len(opened.history()), place if isinstance(place, ObjectStore) else None)


def _load(place: FilePlace) -> Any:
    name = _location(place).rpartition("/")[2]
    if not _catalog_file(place).exists():
        if any(found == _HINT for found in _metadata_names(place)):
            raise WrongState(
                f"the catalog of table {name}, {_catalog_file(place)}, is gone, and the table at {place} is not: what "
                "was committed last is not known",
                "bring the file back from a copy, or build the table anew: `cordwood pipeline replay`",
            )
        return None
    catalog = _catalog(place)
    identifier = f"{NAMESPACE}.{name}"
    return catalog.load_table(identifier) if catalog.table_exists(identifier) else None


def _metadata_names(place: FilePlace) -> list[str]:
    metadata = store_of(place).below("metadata")
    if isinstance(metadata, LocalStore) and not metadata.directory.exists():
        return []
    return [name for name, _ in metadata.listed()]


def _location(place: FilePlace) -> str:
    return f"file://{place}" if isinstance(place, Path) else place.url


def _catalog_file(place: FilePlace) -> Path:
    if isinstance(place, Path):
        return place / "catalog.db"
    assert place.catalog is not None, "an edition's table has a catalog"
    return place.catalog


def _number_of(metadata_location: str) -> int:
    """The number of a metadata file: `00003-<uuid>.metadata.json`."""
    return int(metadata_location.rpartition("/")[2].partition("-")[0])


def _catalog(place: FilePlace) -> Any:
    try:
        from pyiceberg.catalog.sql import SqlCatalog

        from cordwood.pipelines.tables.iceberg_files import io_properties
    except ImportError as error:
        hint = "in a clone: pip install '.[iceberg]'"
        raise WrongState(f"Iceberg tables need pyiceberg, which is not installed ({error})", hint) from error
    return SqlCatalog(
        NAMESPACE,
        uri=f"sqlite:///{_catalog_file(place)}",
        warehouse=_location(place),
        **io_properties(place),
    )
