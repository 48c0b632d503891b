"""Encodes the rows of an output as records: the columns of Spark's Kafka sink.

The order of a key has the scope of the input partition of its records, and is kept. Rows are in that order already if
the function keeps the order and the tasks of the source and no partition was read by two tasks. Otherwise rows of one
key are brought together and sorted before they are written.
"""

from typing import TYPE_CHECKING, Final

from cordwood.pipelines.definition.definition import RECORD, Topic
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.record_formats import Json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JSON_OPTIONS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Timestamps keep Spark's full precision; by default Spark writes milliseconds."""


def records(rows: "DataFrame", topic: Topic, *, in_order: bool = False) -> "DataFrame":
    """`key` and `value` of each row. A row made from a tombstone becomes a tombstone: a record without a value.

    `in_order`: rows of one partition are in one task, in the order of their offsets.
    """
    from pyspark.sql import functions as F

    columns = [name for name in rows.columns if name != RECORD]
    if isinstance(topic.value, Json):
        value = F.to_json(F.struct(*(F.col(_quoted(name)) for name in columns)), JSON_OPTIONS)
    else:
        if "value" not in columns:
            hint = "or declare value=json()"
            raise InvalidRows(f"topic {topic.name}: its rows have no column value, only {', '.join(columns)}", hint)
        value = _bytes_or_text(rows, "value")
    if RECORD in rows.columns:
        # A row without a record, from an outer join for example, is not made from a tombstone.
        value = F.when(~F.coalesce(F.col(f"{RECORD}.tombstone"), F.lit(False)), value)
    key = F.lit(None).cast("binary")
    if topic.key is not None:
        assert isinstance(topic.key, str)
        if topic.key not in columns:
            raise InvalidRows(f"topic {topic.name}: its rows have no column {topic.key}, only {', '.join(columns)}")
        key = _bytes_or_text(rows, topic.key)
        if RECORD in rows.columns:
            key = F.coalesce(key.cast("binary"), F.when(F.col(f"{RECORD}.tombstone"), F.col(f"{RECORD}.key")))
    encoded = [key.cast("binary").alias("key"), value.cast("binary").alias("value")]
    if topic.key is None or RECORD not in rows.columns or in_order:
        return rows.select(*encoded)
    # Several rows may come from one record: they keep their order.
    place = [F.col(f"{RECORD}.{name}").alias(f"_{name}") for name in ("topic", "partition", "offset")]
    placed = rows.select(*encoded, *place, F.monotonically_increasing_id().alias("_nth"))
    ordered = placed.repartition("key").sortWithinPartitions("_topic", "_partition", "_offset", "_nth")
    return ordered.select("key", "value")


def _bytes_or_text(rows: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as F

    column = F.col(_quoted(name))
    return column if rows.schema[name].dataType.simpleString() in ("binary", "string") else column.cast("string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
