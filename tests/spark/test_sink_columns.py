"""Columns of a DataFrame to be written, checked before any task starts, in the words of Spark's Kafka sink."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.spark.sink.columns import SinkColumns, SinkSchemaError, check_columns
from cordwood.spark.sink.options import parse_sink_options

pytestmark = pytest.mark.landing


def entries(*fields: tuple[str, DataType]) -> ArrayType:
    return ArrayType(StructType([StructField(name, kind) for name, kind in fields]))


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), BinaryType()),
    "headers": entries(("key", StringType()), ("value", BinaryType())),
    "text-headers": entries(("key", StringType()), ("value", StringType())),
    "turned-headers": entries(("value", BinaryType()), ("key", StringType())),
}


def schema_of(text: str) -> StructType:
    """`name kind, name kind`. Spark's own parser needs a JVM."""
    fields = [field.split() for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def check(ddl: str, **options: str) -> SinkColumns:
    parsed = parse_sink_options({"kafka.bootstrap.servers": "localhost:9092"} | options, streaming=False)
    return check_columns(schema_of(ddl), parsed)


def refusal(ddl: str, **options: str) -> str:
    with pytest.raises(SinkSchemaError) as caught:
        check(ddl, **options)
    return str(caught.value)


def test_all_columns_are_found_wherever_they_stand() -> None:
    ddl = "partition int, headers headers, topic string, value binary, key string, timestamp timestamp"
    assert check(ddl) == SinkColumns(value=3, key=4, headers=1, topic=2, partition=0, timestamp=5)


def test_a_value_is_enough_where_the_option_names_the_topic() -> None:
    assert check("value string", topic="orders") == SinkColumns(value=0)


def test_the_option_wins_over_the_column() -> None:
    assert check("value string, topic string", topic="orders").topic is None


def test_what_the_source_reads_can_be_written_back() -> None:
    ddl = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
        "headers headers"
    )
    assert check(ddl) == SinkColumns(value=1, key=0, headers=7, topic=2, partition=3, timestamp=5)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "Required attribute 'value' not found"),
        ("value int", "value attribute unsupported type int. value must be a(n) string or binary"),
        ("value string, key bigint", "key attribute unsupported type bigint. key must be a(n) string or binary"),
        ("value string, partition bigint", "partition attribute unsupported type bigint. partition must be a(n) int"),
        ("value string, topic binary", "topic attribute unsupported type binary. topic must be a(n) string"),
        (
            "value string, headers map",
            "headers attribute unsupported type map<string,binary>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
        ("value string, headers text-headers", "headers attribute unsupported type"),
        ("value string, headers turned-headers", "headers attribute unsupported type"),
        ("value string, timestamp string", "timestamp attribute unsupported type string"),
        ("value string, amount double", "Column 'amount' means nothing to a record"),
        ("Value string", "Column 'Value' means nothing to a record"),
        ("value string, value string", "two columns 'value'"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused_by_column(ddl: str, message: str) -> None:
    assert message in refusal(ddl, topic="orders")


def test_without_a_topic_nothing_is_written() -> None:
    assert "topic option required when no 'topic' attribute is present" in refusal("value string")


def test_headers_that_are_not_to_be_included_have_no_column() -> None:
    ddl = "value string, headers headers"
    message = refusal(ddl, topic="orders", includeHeaders="false")
    assert "includeHeaders=false" in message
    assert "headers" in message
