"""The rows of a table of PostgreSQL at one moment, in a file of this machine: to compare two editions."""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cordwood.pipelines.postgresql.place import Database, connected, named
from cordwood.pipelines.postgresql.relations import Columns, columns_of
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.staged import Snapshot

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SPARK_TYPES: Final = {
    "boolean": "boolean",
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "real": "float",
    "double precision": "double",
    "date": "date",
}
"""Values of all other types are read as text."""
_AS_TEXT: Final = {
    "bytea": "encode({}, 'hex')",
    "timestamp with time zone": "to_char({} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    "timestamp without time zone": "to_char({}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')",
}


def postgres_snapshot(place: Database) -> Snapshot | None:
    """The table as it is now, None if it was never made. The file is removed when this process ends."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    directory = Path(tempfile.mkdtemp(prefix="cordwood-compare-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with connected(place.for_tasks()) as connection:
        connection.execute("set datestyle to iso")
        columns = columns_of(connection, place.relation)
        if columns is None:
            return None
        told = (_AS_TEXT.get(kind, "{}").format(named(name)) for name, kind in columns.items())
        command = f"copy (select {', '.join(told)} from {named(place.relation)}) to stdout (format csv)"
        with open(directory / "rows.csv", "wb") as file, connection.cursor().copy(command) as rows:
            for chunk in rows:
                file.write(chunk)
    schema = _schema(columns)
    expected = arrow_schema(schema)
    options = csv.ConvertOptions(
        column_types=dict(zip(expected.names, expected.types, strict=True)),
        true_values=["t"],
        false_values=["f"],
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    path = directory / "rows.parquet"
    count = 0
    with pq.ParquetWriter(path, expected) as writer:
        if (directory / "rows.csv").stat().st_size:
            reading = csv.ReadOptions(column_names=expected.names)
            parsing = csv.ParseOptions(newlines_in_values=True)
            for batch in csv.open_csv(directory / "rows.csv", reading, parsing, options):
                writer.write_batch(batch)
                count += batch.num_rows
    (directory / "rows.csv").unlink()
    return Snapshot(schema, (path,), count, 0)


def _schema(columns: Columns) -> "StructType":
    from pyspark.sql.types import StructField, StructType

    plain = {"nullable": True, "metadata": {}}
    fields = [{"name": name, "type": _SPARK_TYPES.get(kind, "string"), **plain} for name, kind in columns.items()]
    return StructType([StructField.fromJson(each) for each in fields])
