"""Finds the last row of every key in a batch, and whether it deletes.

The order of a key's rows has the scope of a partition: records of one key come from one partition, where offsets order
them. A key whose records come from several partitions has no order: any of its rows may count as the last.

Spark only adds the columns that place a row in that order. Tasks reduce the rows that they hold anyway, as Arrow
columns, and the driver reduces the rest, without the shuffle and the sort that Spark's own aggregation of whole rows
needs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

DELETED: Final = "_deleted"
_ORDER: Final = "_order_"


class Ordered(NamedTuple):
    """Rows with `_deleted` and the columns that order them."""

    rows: "DataFrame"
    order: tuple[str, ...]
    """Names of columns; empty if nothing tells which row of a key is the last."""


def ordered_rows(rows: "DataFrame", table: Table) -> Ordered:
    from pyspark.sql import functions as F

    _check_columns(rows, table)
    has_record = RECORD in rows.columns
    order: list[Column] = []
    for name in table.latest_by:
        order += _plain_parts(F.col(_quoted(name)), rows.schema[name].dataType)
    if has_record:
        # Order has no scope across topics: a number for each topic makes the choice the same in every repetition.
        order += [F.hash(F.col(f"{RECORD}.topic")), F.col(f"{RECORD}.partition"), F.col(f"{RECORD}.offset")]
    columns = {name: F.col(_quoted(name)) for name in rows.columns if name != RECORD}
    if has_record and len(table.key) == 1:
        key = table.key[0]
        columns[key] = _key_of_tombstones(rows, key)
    columns[DELETED] = _deleted(table, has_record)
    names = tuple(f"{_ORDER}{index}" for index in range(len(order)))
    columns.update(zip(names, order, strict=True))
    return Ordered(rows.select(*(column.alias(name) for name, column in columns.items())), names)


def is_told_to_merge(name: str) -> bool:
    """True for a column of staged rows that only steers the merge and is no column of the table."""
    return name == DELETED or name.startswith(_ORDER)


def last_by_spark(rows: "DataFrame", keys: Sequence[str], order: Sequence[str]) -> "DataFrame":
    """One row for each key, by a shuffle: for batches with too many keys for the driver's memory."""
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(_quoted(name)) for name in rows.columns))
    chosen = F.max_by(row, F.struct(*order))
    grouped = rows.groupBy(*(F.col(_quoted(key)).alias(f"_key_{index}") for index, key in enumerate(keys)))
    return grouped.agg(chosen.alias("_row")).select("_row.*")


def last_of_each_key(rows: "pa.Table", keys: Sequence[str], order: Sequence[str]) -> "NDArray[np.bool_] | None":
    """A mask of the rows that are the last ones of their keys; None if every key occurs once. Null is a key like any
    other. Without `order` the lowest row is the last."""
    import numpy as np

    codes, distinct = codes_of([rows.column(name) for name in keys])
    if distinct == rows.num_rows:
        return None
    ranks = [_ranks(rows.column(name)) for name in order]
    last = np.empty(distinct, np.int64)
    if _is_ascending(ranks):
        # An index that is assigned several times keeps the last value.
        last[codes] = np.arange(rows.num_rows)
    else:
        ascending = np.lexsort(ranks[::-1])
        last[codes[ascending]] = ascending
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[last] = True
    return chosen


def has_null_key(rows: "DataFrame", table: Table) -> "Column":
    from pyspark.sql import functions as F

    missing = F.lit(False)
    for key in table.key:
        column = _key_of_tombstones(rows, key) if len(table.key) == 1 else F.col(_quoted(key))
        missing = missing | column.isNull()
    return missing


def null_key_rows(rows: "DataFrame", table: Table) -> "DataFrame":
    """The rows with a null key, as (`_record`, `error`)."""
    from pyspark.sql import functions as F

    error = f"the key of table {table.name} ({', '.join(table.key)}) is null"
    return rows.where(has_null_key(rows, table)).select(RECORD, F.lit(error).alias("error"))


def codes_of(keys: "Sequence[pa.ChunkedArray]") -> "tuple[NDArray[np.int64], int]":
    """A number for each row's key, the same for equal keys, and how many keys there are."""
    import numpy as np

    codes, distinct = _encoded(keys[0])[:2]
    for column in keys[1:]:
        more, width = _encoded(column)[:2]
        values, codes = np.unique(codes * width + more, return_inverse=True)
        distinct = len(values)
    return codes, distinct


def _encoded(column: "pa.ChunkedArray") -> "tuple[NDArray[np.int64], int, Any]":
    """The index of each value among the distinct values, how many they are, and these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks()
    if pa.types.is_floating(whole.type):
        whole = pc.add(whole, pa.scalar(0.0, whole.type))  # minus zero is zero
    encoded = pc.dictionary_encode(whole, null_encoding="encode")
    return encoded.indices.to_numpy().astype("int64"), len(encoded.dictionary), encoded.dictionary


def _ranks(column: "pa.ChunkedArray") -> "NDArray[Any]":
    """Numbers in the order of the values, as Spark orders them: null first, NaN last."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy())
    indices, distinct, values = _encoded(column)
    if pa.types.is_floating(values.type):
        plain = np.where(np.asarray(values.is_null()), -np.inf, values.to_numpy(zero_copy_only=False))
        ascending = np.lexsort((plain, np.asarray(values.is_valid())))
    else:
        # Arrow sorts a null last; Spark's order has it first.
        ascending = np.roll(pc.sort_indices(values).to_numpy(), values.null_count)
    ranks = np.empty(distinct, np.int64)
    ranks[ascending] = np.arange(distinct)
    return ranks[indices]


def _is_ascending(ranks: "Sequence[NDArray[Any]]") -> bool:
    """True if rows are in this order already, as those of one partition usually are."""
    in_order: Any = True
    for each in reversed(ranks):
        one, next_one = each[:-1], each[1:]
        in_order = (one < next_one) | ((one == next_one) & in_order)
    return bool(in_order is True or in_order.all())


def _check_columns(rows: "DataFrame", table: Table) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    for name in (*table.key, *table.latest_by):
        if name not in rows.columns:
            there = ", ".join(each for each in rows.columns if each != RECORD)
            raise InvalidRows(f"table {table.name}: its rows have no column {name}, only {there}")
        kind = rows.schema[name].dataType
        if name in table.key and isinstance(kind, ArrayType | MapType | StructType):
            raise InvalidRows(
                f"table {table.name}: the key {name} is {kind.simpleString()}, and rows are found by plain values only",
                "select what is in it as columns of their own, and give key= these",
            )
        if isinstance(kind, ArrayType | MapType):
            raise InvalidRows(
                f"table {table.name}: latest_by {name} is {kind.simpleString()}, which orders no rows",
                "select what is in it as columns of their own, and give latest_by= these",
            )


def _plain_parts(column: "Column", kind: "DataType") -> "list[Column]":
    """The columns that order a value. A struct is ordered by its fields, one after another, and null comes first."""
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        return [column]
    parts = [column.isNotNull()]
    for each in kind:
        parts += _plain_parts(column.getField(each.name), each.dataType)
    return parts


def _key_of_tombstones(rows: "DataFrame", key: str) -> "Column":
    """The key of a tombstone, which has nothing but its record's key."""
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
        # A row without a record, from an outer join for example, deletes nothing.
        deleted = F.coalesce(F.col(f"{RECORD}.tombstone"), F.lit(False))
    if table.delete_when is not None:
        deleted = deleted | F.coalesce(F.expr(table.delete_when).cast("boolean"), F.lit(False))
    return deleted


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
