"""Of the rows of a batch the last one of every key, and whether it deletes.

The order of a key's rows has the scope of a partition: records of one key come from one partition, where offsets order
them. A key whose records come from several partitions has no order, and whichever row is taken is as good as another.
"""

from typing import TYPE_CHECKING, Final

from cordwood.pipelines.definition import RECORD, Table
from cordwood.pipelines.errors import InvalidRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED: Final = "_deleted"
ROWS: Final = "_rows"
"""How many rows of the batch had this key."""


def latest_rows(rows: "DataFrame", table: Table) -> "tuple[DataFrame, bool]":
    """One row for each key, with `_deleted` and `_rows`; and whether there was an order to tell which is the last."""
    from pyspark.sql import functions as F

    _check_columns(rows, table)
    has_record = RECORD in rows.columns
    order = [F.col(_quoted(name)) for name in table.latest_by]
    if has_record:
        order += [F.col(f"{RECORD}.topic"), F.col(f"{RECORD}.partition"), F.col(f"{RECORD}.offset")]
    columns = {name: F.col(_quoted(name)) for name in rows.columns if name != RECORD}
    if has_record and len(table.key) == 1:
        key = table.key[0]
        columns[key] = _key_of_tombstones(rows, key)
    row = F.struct(
        *(column.alias(name) for name, column in columns.items()), _deleted(table, has_record).alias(DELETED)
    )
    chosen = F.max_by(row, F.struct(*order)) if order else F.any_value(row)
    grouped = rows.groupBy(*(columns[key].alias(f"_key_{index}") for index, key in enumerate(table.key))).agg(
        chosen.alias("_row"), F.count(F.lit(1)).alias(ROWS)
    )
    return grouped.select("_row.*", ROWS), bool(order)


def null_key_rows(rows: "DataFrame", table: Table) -> "DataFrame":
    """The rows that no key finds, as (`_record`, `error`)."""
    from pyspark.sql import functions as F

    nulls = [_key_of_tombstones(rows, key) if len(table.key) == 1 else F.col(_quoted(key)) for key in table.key]
    missing = nulls[0].isNull()
    for each in nulls[1:]:
        missing = missing | each.isNull()
    keys = ", ".join(table.key)
    return rows.where(missing).select(RECORD, F.lit(f"the key of table {table.name} ({keys}) is null").alias("error"))


def _check_columns(rows: "DataFrame", table: Table) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    for name in (*table.key, *table.latest_by):
        if name not in rows.columns:
            there = ", ".join(each for each in rows.columns if each != RECORD)
            raise InvalidRows(f"table {table.name}: its rows have no column {name}, only {there}")
    for name in table.key:
        kind = rows.schema[name].dataType
        if isinstance(kind, ArrayType | MapType | StructType):
            raise InvalidRows(
                f"table {table.name}: the key {name} is {kind.simpleString()}, and rows are found by plain values only",
                "select what is in it as columns of their own, and give key= these",
            )


def _key_of_tombstones(rows: "DataFrame", key: str) -> "Column":
    """A tombstone has nothing but its record's key."""
    from pyspark.sql import functions as F

    kind = rows.schema[key].dataType.simpleString()
    of_record = F.col(f"{RECORD}.key")
    if kind != "binary":
        of_record = of_record.cast("string").try_cast(kind)
    return F.coalesce(F.col(_quoted(key)), F.when(F.col(f"{RECORD}.tombstone"), of_record))


def _deleted(table: Table, has_record: bool) -> "Column":
    from pyspark.sql import functions as F

    deleted = F.lit(False)
    if has_record:
        # A row that came from no record, out of an outer join for example, deletes nothing.
        deleted = F.coalesce(F.col(f"{RECORD}.tombstone"), F.lit(False))
    if table.delete_when is not None:
        deleted = deleted | F.coalesce(F.expr(table.delete_when).cast("boolean"), F.lit(False))
    return deleted


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
