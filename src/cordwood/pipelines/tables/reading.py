"""Reads a table as Spark rows: the files of one moment, however long it takes and whatever is written meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordwood.pipelines.definition.definition import TableFormat
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.delta import delta_snapshot
from cordwood.pipelines.tables.iceberg import iceberg_snapshot
from cordwood.pipelines.tables.parquet import parquet_snapshot
from cordwood.pipelines.tables.staged import Snapshot
from cordwood.pipelines.tables.stores import ObjectStore, TablePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def snapshot(place: TablePlace, format_: TableFormat) -> Snapshot | None:
    if format_ is TableFormat.DELTA:
        return delta_snapshot(place)
    assert isinstance(place, Path), "only Delta tables are in object stores"
    return parquet_snapshot(place) if format_ is TableFormat.PARQUET else iceberg_snapshot(place)


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
