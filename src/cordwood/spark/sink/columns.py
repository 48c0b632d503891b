"""Maps columns of a DataFrame to parts of a record, and checks them on the driver before any task starts.

The columns and the wording are those of Spark's Kafka sink, with one difference: a column that means nothing to a
record is refused by name instead of dropped. Only the source's own `offset` and `timestampType` are ignored, so that
rows can be written back as they were read.
"""

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from cordwood.spark.sink.options import SinkOptions

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TEXT = "string or binary"
_ALLOWED = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": HEADERS_TYPE,
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp or double",
}
_PASSED_OVER = ("offset", "timestampType")


class SinkSchemaError(ValueError):
    """A DataFrame cannot be written as records; the message names the column."""


@dataclass(frozen=True)
class SinkColumns:
    """Positions in every Arrow batch; None if the DataFrame has no such column, or it is not used."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def check_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """Raises SinkSchemaError, in the words of Spark's Kafka sink, for a DataFrame that cannot be written."""
    positions: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        if field.name in _PASSED_OVER:
            continue
        if field.name not in _ALLOWED:
            raise SinkSchemaError(
                f"Column '{field.name}' means nothing to a record: drop it or put it into 'value'. A record has "
                f"{', '.join(_ALLOWED)}"
            )
        if field.name in positions:
            raise SinkSchemaError(f"There are two columns '{field.name}': rename or drop one of them")
        if not _fits(field.name, field.dataType):
            raise SinkSchemaError(
                f"{field.name} attribute unsupported type {field.dataType.simpleString()}. {field.name} must be a(n) "
                f"{_ALLOWED[field.name]}"
            )
        positions[field.name] = position
    if "value" not in positions:
        raise SinkSchemaError("Required attribute 'value' not found")
    if options.topic is not None:
        positions.pop("topic", None)
    elif "topic" not in positions:
        raise SinkSchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "headers" in positions and not options.include_headers:
        raise SinkSchemaError("Option 'includeHeaders=false' and the column 'headers' contradict each other: drop one")
    return SinkColumns(**positions)


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, (StringType, BinaryType))
    if name == "headers":
        return _is_headers(kind)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    return isinstance(kind, (TimestampType, DoubleType))


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
