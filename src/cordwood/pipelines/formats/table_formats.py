"""The formats of tables: how each is written, and how its rows are read.

A read takes the files of one moment, however long it takes and whatever is written meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.definition.table_output import Table, TableFormat
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.postgresql.batches import PostgresBatches
from cordwood.pipelines.postgresql.copying import unstorable_rows
from cordwood.pipelines.postgresql.reading import postgres_snapshot
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.delta import DeltaBatches, delta_snapshot
from cordwood.pipelines.tables.iceberg import IcebergBatches, iceberg_snapshot
from cordwood.pipelines.tables.latest_rows import null_key_rows
from cordwood.pipelines.tables.staged import BatchTable, Snapshot
from cordwood.pipelines.tables.stores import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class _Format(NamedTuple):
    writer: Callable[[Any, Table, Path], BatchTable]
    """Takes the place of a table of this format, its declaration, and a directory for rows that wait to be merged."""
    snapshot: Callable[[Any], Snapshot | None]
    log: str = ""
    """The directory of its log, without which there is no table; a table of a database has none."""
    unwritable: "Callable[[DataFrame, Table], DataFrame]" = null_key_rows
    """The rows that keep a batch from being written, as (`_record`, `error`)."""


_FORMATS: Final[Mapping[TableFormat, _Format]] = {
    TableFormat.DELTA: _Format(DeltaBatches, delta_snapshot, "_delta_log"),
    TableFormat.ICEBERG: _Format(IcebergBatches, iceberg_snapshot, "metadata"),
    TableFormat.POSTGRESQL: _Format(PostgresBatches, postgres_snapshot, unwritable=unstorable_rows),
}


def writer(place: TablePlace, table: Table, staging: Path) -> BatchTable:
    return _FORMATS[table.format].writer(place, table, staging)


def unwritable_rows(rows: "DataFrame", table: Table) -> "DataFrame":
    return _FORMATS[table.format].unwritable(rows, table)


def snapshot(place: TablePlace, format_: TableFormat) -> Snapshot | None:
    """The table as it is now; None if nothing was ever written to it."""
    return _FORMATS[format_].snapshot(place)


def is_there(directory: Path, format_: TableFormat) -> bool:
    return (directory / _FORMATS[format_].log).is_dir()


def rows_of(spark: "SparkSession", found: Snapshot) -> "DataFrame":
    if not found.files:
        return spark.createDataFrame([], found.schema)
    if found.remote is not None:
        return _remote_rows(spark, found, found.remote)
    if found.partitions is not None:
        return _parted_rows(spark, found, found.partitions)
    return spark.read.schema(found.schema).parquet(*(str(path) for path in found.files))


def _parted_rows(spark: "SparkSession", found: Snapshot, partitions: "pa.Table") -> "DataFrame":
    """Rows of files that lack the columns of their partition. Names of files are unique, so that each finds its own
    values; the directories that a file is in are not asked."""
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    name = "_file_"
    names = pa.array([path.name for path in found.files], pa.string())
    values = spark.createDataFrame(partitions.append_column(name, names))
    kept = StructType([each for each in found.schema if each.name not in partitions.column_names])
    files = (str(path) for path in found.files)
    read = spark.read.schema(kept).option("recursiveFileLookup", True).parquet(*files)
    rows = read.select("*", F.col("_metadata.file_name").alias(name))
    columns = [F.col("`" + each.name.replace("`", "``") + "`").cast(each.dataType) for each in found.schema]
    named = (column.alias(each.name) for column, each in zip(columns, found.schema, strict=True))
    return rows.join(F.broadcast(values), name).select(*named)


def _remote_rows(spark: "SparkSession", found: Snapshot, store: ObjectStore) -> "DataFrame":
    """Rows of an object store, read with the options that wrote them: Spark itself would need Hadoop's jars for the
    store."""
    schema, partitions = arrow_schema(found.schema), found.partitions
    numbers = [(number, str(name)) for number, name in enumerate(found.files)]
    names = spark.createDataFrame(numbers, "number int, name string")

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.dataset as ds

        filesystem = store.filesystem()
        for batch in batches:
            for number, name in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows = ds.dataset(name, schema=schema, format="parquet", filesystem=filesystem)
                for read in rows.to_batches(batch_size=16_384):
                    yield read if partitions is None else _with_partition(read, partitions, number)

    return names.repartition(len(found.files)).mapInArrow(read, found.schema)


def _with_partition(rows: "pa.RecordBatch", partitions: "pa.Table", number: int) -> "pa.RecordBatch":
    import pyarrow as pa

    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name in partitions.column_names:
        value = partitions.column(name)[number].cast(rows.schema.field(name).type)
        columns[name] = pa.repeat(value, rows.num_rows)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
