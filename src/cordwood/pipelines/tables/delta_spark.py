"""Merges a batch into a Delta table with Delta's own jars, on the executors, if the Spark session has them.

A session has Delta if its `spark.sql.extensions` name it. Only a merge shows that the jars were built for another
Spark: `JarsDoNotFit` is raised, and nothing was written unless the log of the table says so. Small tables are merged
faster in the driver.

Merges run in a session of their own, beside the pipeline's, so that settings for the merge do not touch the pipeline.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.latest_rows import is_told_to_merge
from cordwood.pipelines.tables.merge_rules import PartitionScope, merge_rules, quoted
from cordwood.spark.options.quantities import size_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

MIN_BYTES: Final = "spark.cordwood.delta.merge.minBytes"
"""Spark's setting for the least size of a table that Spark merges."""
_DEFAULT_MIN_BYTES: Final = 4 << 30
"""`deltalake` needs a sixth of the processor's time, so only a large merge gains by being spread."""
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"
_APPLICATION: Final = "spark.databricks.delta.write.txnAppId"
_BATCH: Final = "spark.databricks.delta.write.txnVersion"
_SETTINGS: Final = {
    # Makes delta.`path` the name of a table.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The type that all other files of the table have. Spark's default, nanoseconds in 64 bits, ends in the year 2262
    # for other readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Staged files do not change: they need not be copied before they are read twice.
    "spark.databricks.delta.merge.materializeSource": "none",
    # Hadoop would put a checksum file beside each file, which nothing but Hadoop removes.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


class JarsDoNotFit(Exception):
    """Delta's jars are missing, or were built for another version of Spark."""


class SparkMerge:
    """Merges batches into one table."""

    def __init__(self, spark: "SparkSession", directory: Path, table: Table) -> None:
        self._spark = _session_beside(spark)
        self._directory = directory
        self._table = table

    def execute(self, files: Sequence[Path], within: PartitionScope, application: str, batch_id: int) -> bool:
        """Merges staged rows, in one commit with the batch's number. Returns False if the table had the batch
        already. Rows outside of `within` are other rows."""
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(pq.read_schema(files[0]), prefer_timestamp_ntz=True)
        rows = self._spark.read.schema(schema).parquet(*(_uri(file) for file in files))
        columns = [name for name in schema.names if not is_told_to_merge(name)]
        view = f"staged_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        self._spark.conf.set(_APPLICATION, application)
        self._spark.conf.set(_BATCH, batch_id)
        try:
            # The statement returns the number of changed rows, or nothing if the table's log has this batch of this
            # application.
            return bool(self._spark.sql(self._statement(view, columns, within)).collect())
        except Exception as failure:
            if (misfit := _misfit(failure, self._spark)) is not None:
                raise JarsDoNotFit(misfit) from failure
            raise
        finally:
            self._spark.catalog.dropTempView(view)

    def _statement(self, view: str, columns: Sequence[str], within: PartitionScope) -> str:
        rules = merge_rules(self._table, "`")
        same_row = " and ".join(filter(None, [rules.same_key, within.condition("`")]))
        names = [quoted(name, "`") for name in columns]
        return (
            f"merge into delta.{quoted(_uri(self._directory), '`')} t using {view} s on {same_row} "
            f"when matched and {rules.delete} then delete "
            f"when matched and {rules.update} then update set {', '.join(f't.{name} = s.{name}' for name in names)} "
            f"when not matched and {rules.insert} then "
            f"insert ({', '.join(names)}) values ({', '.join(f's.{name}' for name in names)})"
        )


def is_for_spark(spark: "SparkSession", table_bytes: int) -> bool:
    """True if Spark is to merge into a table of this size, provided its jars work."""
    told = spark.conf.get(MIN_BYTES, None)
    min_bytes = _DEFAULT_MIN_BYTES if told is None else _parse_min_bytes(told)
    extensions = (spark.conf.get("spark.sql.extensions", None) or "").split(",")
    if _EXTENSION not in map(str.strip, extensions) or table_bytes < min_bytes:
        return False
    # Executors within the driver add nothing, unless the setting asks for them.
    return told is not None or not str(spark.sparkContext.master).startswith("local")


def _parse_min_bytes(text: str) -> int:
    try:
        return 0 if text.strip() == "0" else size_bytes(text)
    except ValueError as error:
        raise WrongState(f"the setting {MIN_BYTES}: {error}", "0 has Spark merge into all tables") from None


def may_be_null_inside(schema: "StructType") -> bool:
    """True if everything inside of arrays, maps and structs may be null. Otherwise Spark refuses to merge rows that
    were read from files, since it assumes nulls there; tables of earlier versions can be like that."""
    return all(field.dataType == nullable.dataType for field, nullable in zip(schema, schema.toNullable(), strict=True))


def _session_beside(spark: "SparkSession") -> "SparkSession":
    beside = spark.newSession()
    for name, value in _SETTINGS.items():
        beside.conf.set(name, value)
    width = spark.conf.get(_SHUFFLE_PARTITIONS)
    assert width is not None
    beside.conf.set(_SHUFFLE_PARTITIONS, width)
    if beside.conf.get(_SNAPSHOT_PARTITIONS, None) is None:
        # Delta's default is 50 tasks to read a log of any length.
        beside.conf.set(_SNAPSHOT_PARTITIONS, width)
    return beside


def _uri(path: Path) -> str:
    """The file as a `file:` URI: files are on disks that all processes share, whatever Hadoop's default file system
    is."""
    return f"file:{path.absolute()}"


def _misfit(failure: Exception, spark: "SparkSession") -> str | None:
    """The missing class or method that the jars were compiled against; None for other failures."""
    from py4j.java_gateway import is_instance_of

    gateway: Any = spark.sparkContext._gateway
    cause: Any = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    while cause is not None:
        for kind in ("java.lang.LinkageError", "java.lang.ClassNotFoundException"):
            if is_instance_of(gateway, cause, kind):
                return str(cause.toString()).partition("(")[0]
        cause = cause.getCause()
    return None
