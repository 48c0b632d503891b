"""The columns of a read: those of Spark's Kafka source, or a user's selection of them.

Spark does not tell a Python source which columns a query needs. `.schema("value binary, offset long")` does: columns
that are not named are neither decoded nor sent to the JVM.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.spark.options.names import EXTRA_COLUMNS, did_you_mean
from cordwood.spark.releases.capabilities import running

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
    "producerId": LongType(),
    "producerEpoch": IntegerType(),
    "sequence": IntegerType(),
    "transactional": BooleanType(),
    "control": BooleanType(),
}
_NULLABLE = ("key", "value")
"""Columns that may be null. Spark believes a schema that says otherwise: it would find no tombstones, and fail when it
meets one."""
_OPTION_OF = {column: option for option, columns in EXTRA_COLUMNS.items() for column in columns}


class SchemaError(ValueError):
    """The source cannot have a schema like this. The message has one line for each problem."""


def source_schema(extra_columns: Collection[str] = ()) -> StructType:
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if name not in _OPTION_OF or name in extra_columns]
    )


def check_schema(schema: StructType, extra_columns: Collection[str]) -> None:
    """Checks that a user's schema has some of the columns, under their names and with their types, in any order."""
    problems = []
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            problems.append(f"{field.name} is not a column of format cordwood.{did_you_mean(field.name, COLUMNS)}")
        elif not _same_type(field.dataType, kind):
            problems.append(
                f"{field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}: read it as it is and"
                " use a cast."
            )
        elif field.name in _NULLABLE and not field.nullable:
            problems.append(f"{field.name} is null where a record has none: leave out NOT NULL.")
        elif field.name in _OPTION_OF and field.name not in extra_columns:
            problems.append(f"{field.name} is read only with the option {_OPTION_OF[field.name]}=true.")
    if not schema.fields:
        problems.append("it has no columns.")
    if problems:
        raise SchemaError("\n".join(["the schema does not fit the records of a log:", *problems]))


def arrow_schema(schema: StructType) -> "pa.Schema":
    """The schema with which Spark compares the first batch, field by field."""
    # Imported here: the planner of a stream, which does not read, needs neither Arrow nor NumPy.
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, **running().arrow_utc)  # type: ignore[arg-type]


def _same_type(given: DataType, kind: DataType) -> bool:
    # Types are compared as text: nullability, on which a schema from DDL differs from ours, does not matter here.
    return given.simpleString() == kind.simpleString()
