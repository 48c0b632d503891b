"""The formats of tables: how each is written, and how its rows are read.

A read takes the files of one moment, however long it takes and whatever is written meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.definition.definition import Table, TableFormat
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.delta import DeltaBatches, delta_snapshot
from cordwood.pipelines.tables.iceberg import IcebergBatches, iceberg_snapshot
from cordwood.pipelines.tables.staged import BatchTable, Snapshot
from cordwood.pipelines.tables.stores import ObjectStore, TablePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Format(NamedTuple):
    writer: Callable[[TablePlace, Table, Path], BatchTable]
    """Takes the place of the table, its declaration, and a directory for rows that wait to be merged."""
    snapshot: Callable[[TablePlace], Snapshot | None]


_FORMATS: Final[Mapping[TableFormat, _Format]] = {
    TableFormat.DELTA: _Format(DeltaBatches, delta_snapshot),
    TableFormat.ICEBERG: _Format(IcebergBatches, iceberg_snapshot),
}


def writer(place: TablePlace, table: Table, staging: Path) -> BatchTable:
    return _FORMATS[table.format].writer(place, table, staging)


def snapshot(place: TablePlace, format_: TableFormat) -> Snapshot | None:
    """The table as it is now; None if nothing was ever written to it."""
    return _FORMATS[format_].snapshot(place)


def rows_of(spark: "SparkSession", found: Snapshot) -> "DataFrame":
    if not found.files:
        return spark.createDataFrame([], found.schema)
    if found.remote is not None:
        return _remote_rows(spark, found, found.remote)
    return spark.read.schema(found.schema).parquet(*(str(path) for path in found.files))


def _remote_rows(spark: "SparkSession", found: Snapshot, store: ObjectStore) -> "DataFrame":
    """Rows of an object store, read with the options that wrote them: Spark itself would need Hadoop's jars for the
    store."""
    schema = arrow_schema(found.schema)
    names = spark.createDataFrame([(str(name),) for name in found.files], "name string")

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.dataset as ds

        filesystem = store.filesystem()
        for batch in batches:
            for name in batch.column("name").to_pylist():
                rows = ds.dataset(name, schema=schema, format="parquet", filesystem=filesystem)
                yield from rows.to_batches(batch_size=16_384)

    return names.repartition(len(found.files)).mapInArrow(read, found.schema)
