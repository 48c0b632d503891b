"""Partitions of Delta tables: their values as text, as the log keeps them, and what files of a log have which.

The files of a partition lack its columns: readers take the values from the log, and no meaning from where a file is.
Files that the executors write are all in the table's directory, whatever characters a value has. `deltalake` puts those
that it writes itself, by merges and compaction, into directories that are named after the values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.parted_files import check_partition_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

_MAX_NAME_BYTES: Final = 240
"""The name of a directory on a disk has at most 255 bytes."""
PREFIX: Final = "partition."


@dataclass(frozen=True)
class DeltaParting:
    columns: tuple[str, ...]

    def values(self, rows: "pa.Table") -> "list[pa.ChunkedArray]":
        return [_text(rows.column(name)) for name in self.columns]

    def kept(self, schema: "pa.Schema") -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([each for each in schema if each.name not in self.columns])


def _text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Values as Delta's log has them. An empty text is null there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def check_partitions(schema: "StructType", table: Table, opened: "DeltaTable | None") -> None:
    """Refuses rows that cannot be parted as the table declares, and a table that is parted otherwise."""
    from pyspark.sql.types import BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampType

    columns = table.partition_columns
    if opened is not None and tuple(opened.metadata().partition_columns) != columns:
        there = ", ".join(opened.metadata().partition_columns) or "nothing"
        raise InvalidRows(
            f"table {table.name}: it is partitioned by {there}, and declared with {', '.join(columns) or 'nothing'}",
            "other partitions are a new version: replay it beside the live table, and swap",
        )
    check_partition_columns(schema, table)
    if columns and set(schema.names) == set(columns):
        raise InvalidRows(f"table {table.name}: its rows have no column but those that it is partitioned by")
    for name in columns:
        kind = schema[name].dataType
        if isinstance(kind, StringType | IntegralType | DateType | BooleanType | DecimalType):
            continue
        hint = "text, whole numbers, dates, true and false, and decimals part rows"
        if "timestamp" in kind.simpleString() or isinstance(kind, TimestampType):
            hint = (
                f"readers of Delta disagree about its time zone: select to_date({name}) as day, and partition_by= that"
            )
        raise InvalidRows(
            f"table {table.name}: rows cannot be partitioned by {name}, which is {kind.simpleString()}", hint
        )


def check_values(table: Table, values: Iterable[Sequence[str | None]]) -> None:
    """Refuses values that are too long to be the name of a directory."""
    for each in values:
        for name, value in zip(table.partition_columns, each, strict=True):
            if value is not None and len(quote(f"{name}={value}", safe="")) > _MAX_NAME_BYTES:
                raise InvalidRows(
                    f"table {table.name}: rows cannot be partitioned by a {name} of {len(value)} characters: "
                    f"{value[:40]}…",
                    f"select a shorter column, xxhash64({name}) for example, and partition_by= that",
                )


def partitions_of(actions: "pa.Table", columns: Sequence[str]) -> "pa.Table":
    """The values of each file's partition, from the actions of a log."""
    return actions.select([f"{PREFIX}{name}" for name in columns]).rename_columns(list(columns))


def values_of(partitions: "pa.Table") -> list[tuple[str | None, ...]]:
    """The values of partitions, one row each, as text."""
    return list(zip(*(_text(column).to_pylist() for column in partitions.columns), strict=True))


def filters_of(columns: Sequence[str], values: Sequence[str | None]) -> list[tuple[str, str, Any]]:
    """`deltalake`'s filter for the files of one partition; an empty text stands for null."""
    return [(name, "=", value or "") for name, value in zip(columns, values, strict=True)]
