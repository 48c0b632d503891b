"""Rows of a batch, copied into a staging table by the tasks, each in one transaction of its own.

Arrow writes the rows as CSV, which PostgreSQL reads: no row becomes a Python object. Each attempt of a task marks its
rows with its number; only the attempts that Spark reports count, and the rows of others stay where they are until the
staging table is dropped.
"""

import io
import pickle
import time
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.postgresql.place import Database, connected
from cordwood.pipelines.postgresql.relations import is_nested
from cordwood.pipelines.rows.encoding import JSON_OPTIONS
from cordwood.pipelines.rows.watching import collected
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.latest_rows import has_null_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

PART: Final = "_cordwood_part"
_REPORT: Final = "report"
_NUL: Final = "\0"
_NUL_IN_JSON: Final = r"(?:^|[^\\])(?:\\\\)*\\u0000"
"""The escape of the character, which a text with a backslash and `u0000` has doubled."""
_YEARS: Final = {
    "date": "{0} between date'0001-01-01' and date'9999-12-31'",
    "timestamp": "{0} between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "{0} between timestamp_ntz'0001-01-01 00:00:00' and timestamp_ntz'9999-12-31 23:59:59.999999'",
}
"""Arrow writes earlier and later years in a way that PostgreSQL does not read."""
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_DAY_US: Final = 86_400_000_000


class Part(NamedTuple):
    """The rows that one attempt of a task has copied."""

    number: int
    rows: int
    unstorable: int
    """Rows with a null key, or with a value that PostgreSQL cannot store. Where tasks have found one they may stop
    counting: nothing of the batch is merged."""
    input_ms: int
    write_ms: int


def plain_rows(rows: "DataFrame") -> "DataFrame":
    """The rows with columns that CSV can carry: nested values as JSON, bytes in PostgreSQL's notation."""
    from pyspark.sql import functions as F

    def plain(name: str, kind: Any) -> "Column":
        column = F.col(_quoted(name))
        if is_nested(kind):
            return F.to_json(column, JSON_OPTIONS).alias(name)
        if kind.typeName() == "binary":
            return F.concat(F.lit("\\x"), F.hex(column)).alias(name)
        return column

    return rows.select(*(plain(each.name, each.dataType) for each in rows.schema))


def unstorable_rows(rows: "DataFrame", table: Table) -> "DataFrame":
    """The rows that no table of PostgreSQL takes, as (`_record`, `error`)."""
    from pyspark.sql import functions as F

    def named(told: str) -> "Column":
        return F.lit(f"table {table.name}: {told}")

    error = F.when(has_null_key(rows, table), F.lit(f"the key of table {table.name} ({', '.join(table.key)}) is null"))
    for each in rows.schema:
        column, kind = F.col(_quoted(each.name)), each.dataType.typeName()
        if each.name == RECORD:
            continue
        if kind == "string" or is_nested(each.dataType):
            text = F.to_json(column, JSON_OPTIONS) if is_nested(each.dataType) else column
            nul = text.rlike(_NUL_IN_JSON) if is_nested(each.dataType) else F.contains(text, F.lit(_NUL))
            error = error.when(nul, named(f"{each.name} has the character U+0000, which PostgreSQL cannot store"))
            error = error.when(~F.is_valid_utf8(text), named(f"{each.name} is no text of UTF-8"))
        elif kind in _YEARS:
            outside = ~F.expr(_YEARS[kind].format(_quoted(each.name)))
            error = error.when(outside, named(f"{each.name} is in no year from 1 to 9999"))
    return rows.select(RECORD, error.alias("error")).where("error is not null")


def copy_rows(
    rows: "DataFrame", nested: Sequence[str], place: Database, staging: str, key: Sequence[str]
) -> tuple[Part, ...]:
    """Copies plain rows into the staging table, and lists the parts that count. `nested` are columns of JSON."""
    schema = arrow_schema(rows.schema)
    keys, of_json = tuple(key), frozenset(nested)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.taskAttemptId()
        part = copy_part(batches, schema, place, staging, number, keys, of_json)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=[_REPORT])

    reported = collected(rows.mapInArrow(write, f"{_REPORT} binary"))
    parts: list[Part] = [pickle.loads(row[_REPORT]) for row in reported]
    return tuple(part for part in parts if part.rows)


def copy_part(
    batches: "Iterator[pa.RecordBatch]",
    schema: "pa.Schema",
    place: Database,
    staging: str,
    number: int,
    key: Sequence[str],
    nested: frozenset[str],
) -> Part:
    """Copies the rows of one attempt of a task in one transaction."""
    import pyarrow as pa
    from psycopg import sql
    from pyarrow import csv

    began_ns, write_ns = time.monotonic_ns(), 0
    count = unstorable = 0
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Part(number, 0, 0, (time.monotonic_ns() - began_ns) // 1_000_000, 0)
    columns = sql.SQL(", ").join(map(sql.Identifier, [*schema.names, PART]))
    command = sql.SQL("copy {} ({}) from stdin (format csv)").format(sql.Identifier(staging), columns)
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    writing_ns = time.monotonic_ns()
    with connected(place) as connection, connection.cursor().copy(command) as copy:
        write_ns += time.monotonic_ns() - writing_ns
        for batch in _from(first, batches):
            writing_ns = time.monotonic_ns()
            table = pa.Table.from_batches([batch]).cast(schema)
            bad = _unstorable(table, key, nested)
            if bad:
                # Nothing of this batch will be merged: the records of these rows are found and quarantined first.
                unstorable += bad
            elif not unstorable:
                text = io.BytesIO()
                numbers = pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
                csv.write_csv(table.append_column(PART, numbers), text, options)
                copy.write(text.getbuffer())
            count += table.num_rows
            write_ns += time.monotonic_ns() - writing_ns
        writing_ns = time.monotonic_ns()
    ended_ns = time.monotonic_ns()
    write_ns += ended_ns - writing_ns
    return Part(number, count, unstorable, (ended_ns - began_ns - write_ns) // 1_000_000, write_ns // 1_000_000)


def _from(first: "pa.RecordBatch", others: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield first
    yield from (batch for batch in others if batch.num_rows)


def _unstorable(table: "pa.Table", key: Sequence[str], nested: frozenset[str]) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return 1  # a text that is not of UTF-8
    found = pa.repeat(False, table.num_rows)
    for name in key:
        found = pc.or_(found, pc.is_null(table.column(name)).combine_chunks())
    for field in table.schema:
        column = table.column(field.name)
        if field.name in nested:
            bad = pc.match_substring_regex(column, _NUL_IN_JSON)
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            bad = pc.match_substring(column, _NUL)
        elif pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            is_date = pa.types.is_date(field.type)
            number, day = column.cast(pa.int32() if is_date else pa.int64()), 1 if is_date else _DAY_US
            bad = pc.or_(pc.less(number, _FIRST_DAY * day), pc.greater_equal(number, (_LAST_DAY + 1) * day))
        else:
            continue
        found = pc.or_(found, pc.fill_null(bad.combine_chunks(), False))
    return int(pc.sum(found).as_py() or 0)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
