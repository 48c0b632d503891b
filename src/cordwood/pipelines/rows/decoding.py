"""Decodes the source's rows into the columns that a pipeline declared, each row with the error it met.

No row is dropped and no row fails the query: a record that cannot be decoded comes out with `_error` set, its bytes in
`_poison`, and meaningless columns. A null value is no error: it is a tombstone, and `_record.tombstone` says so. A row
that breaks a rule of the input has the rule's name in `_rule`, and an error if its record goes to quarantine for it.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from cordwood.pipelines.definition.definition import ERROR, POISON, RECORD, RULE, Pipeline, Topic
from cordwood.pipelines.definition.errors import InvalidDefinition
from cordwood.pipelines.definition.record_formats import Format, Json, ParsedBy, Raw, Text
from cordwood.pipelines.rows.rules import error_of, marked, sets_aside

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_RESERVED: Final = frozenset({RECORD, ERROR, POISON, RULE})
_CORRUPT: Final = "_corrupt"
_LAST: Final = uuid4().hex
_MAX_ERROR_LENGTH: Final = 500


def inputs_of(pipeline: Pipeline, rows: "DataFrame") -> "dict[str, DataFrame]":
    """The decoded rows of each input, from the source's rows of all topics (with headers)."""
    from pyspark.sql import functions as F

    if len(pipeline.inputs) == 1:
        return {name: decoded(rows, topic) for name, topic in pipeline.inputs.items()}
    return {
        name: decoded(rows.where(F.col("topic").isin(topic.name, *topic.left)), topic)
        for name, topic in pipeline.inputs.items()
    }


def decoded(rows: "DataFrame", topic: Topic) -> "DataFrame":
    """The declared columns, then `_record`, `_error` and `_poison`, and for an input with rules `_rule`."""
    from pyspark.sql import functions as F

    value, key = topic.value, topic.key
    assert value is not None
    assert not isinstance(key, str)
    columns = _columns_of("value", value, topic)
    parts = {"value": value}
    if key is not None:
        of_key = _columns_of("key", key, topic, whole=True)
        if of_key.keys() & columns.keys():
            raise InvalidDefinition(f"input {topic.name}: both key and value make a column key", topic.site)
        columns = {**of_key, **columns}
        parts = {"key": key, "value": value}
    # Each part is parsed once, into a column of its own. Spark shares no work between the branches of a condition:
    # within one expression, a part would be parsed once for each use.
    for part, format_ in parts.items():
        rows = rows.withColumn(f"_parsed_{part}", _parsed(part, format_, topic))
    errors = [_error_of(part, format_, topic) for part, format_ in parts.items()]
    error = F.left(F.coalesce(*errors), F.lit(_MAX_ERROR_LENGTH))
    bytes_ = F.struct(F.col("value"), F.col("headers"))
    keeps_bytes = any(map(sets_aside, topic.expect))
    found = rows.withColumn(ERROR, error).select(
        *(column.alias(name) for name, column in columns.items()),
        F.struct(
            F.col("topic"),
            F.col("partition"),
            F.col("offset"),
            F.col("timestamp"),
            F.col("key"),
            F.col("value").isNull().alias("tombstone"),
        ).alias(RECORD),
        F.col(ERROR),
        (bytes_ if keeps_bytes else F.when(F.col(ERROR).isNotNull(), bytes_)).alias(POISON),
    )
    if not topic.expect:
        return found
    judged = marked(found, f"input {topic.name}", topic.expect, [f"{ERROR} IS NOT NULL", f"{RECORD}.tombstone"])
    if not keeps_bytes:
        return judged
    error = F.coalesce(F.col(ERROR), error_of(topic.expect))
    return judged.withColumns({ERROR: error, POISON: F.when(error.isNotNull(), F.col(POISON))})


def parsed_once(rows: "DataFrame", name: str) -> "DataFrame":
    """Decoded rows of an input, for queries that are not counted. Spark pushes no filter below an observed node: a
    filter on `_error` would have every record parsed again for each condition (three times the CPU)."""
    from pyspark.sql import functions as F

    return rows.observe(f"cordwood {name}", F.count(F.lit(1)).alias("rows"), F.count(ERROR).alias("failed"))


def _parsed(part: str, format_: Format, topic: Topic) -> "Column":
    """The parsed part, from which `_content_of` and `_error_of` read; null if the part is null or cannot be parsed."""
    from pyspark.sql import functions as F

    match format_:
        case Raw():
            return F.col(part)
        case Text():
            return F.col(part).cast("string")
        case Json():
            return _parsed_json(F.col(part).cast("string"), _schema(format_.schema, topic))
        case ParsedBy():
            return _parsed_by(part, F.col(part), format_, _schema(format_.schema, topic))


def _content_of(part: str, format_: Format) -> "Column":
    from pyspark.sql import functions as F

    parsed = F.col(f"_parsed_{part}")
    match format_:
        case Json():
            return F.get(parsed["content"], F.lit(0))
        case ParsedBy():
            return parsed["content"]
        case _:
            return parsed


def _error_of(part: str, format_: Format, topic: Topic) -> "Column":
    from pyspark.sql import functions as F

    text = F.col(part).cast("string")
    not_text = F.when(~F.is_valid_utf8(text), F.lit(f"the {part} is not UTF-8"))
    match format_:
        case Raw():
            return F.lit(None).cast("string")
        case Text():
            return not_text
        case Json():
            return F.when(text.isNotNull(), _wrong_json(part, text, not_text, format_, topic))
        case ParsedBy():
            return F.col(f"_parsed_{part}.error")


# Spark stops reading at the end of the first object and ignores the rest: `{"id": 1}{"id": 2}` would pass as half of
# what was sent. So the value is wrapped as the only element of an array in an outer object, and is read to its end.
# Only a value with a `]` can close that array early. Such a value is an error unless the outer object still has exactly
# its own fields, the last of which has a name that no value knows.


def _parsed_json(text: "Column", schema: "StructType") -> "Column":
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    optional = StructType([StructField(field.name, field.dataType, True) for field in schema])
    envelope = StructType([StructField("content", ArrayType(optional)), StructField(_CORRUPT, StringType())])
    return F.from_json(_wrapped(text), envelope, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})


def _wrong_json(part: str, text: "Column", not_text: "Column", format_: Json, topic: Topic) -> "Column":
    from pyspark.sql import functions as F

    parsed = F.col(f"_parsed_{part}")
    content = _content_of(part, format_)
    fields = F.array(F.lit("content"), F.lit(_LAST))
    is_more = F.contains(text, F.lit("]")) & ~F.coalesce(F.json_object_keys(_wrapped(text)) == fields, F.lit(False))
    is_one = parsed[_CORRUPT].isNull() & (F.size(parsed["content"]) == 1) & content.isNotNull() & ~is_more
    return F.coalesce(
        not_text,
        F.when(
            ~F.coalesce(is_one, F.lit(False)),
            F.concat(
                F.lit(f"the {part} is no JSON object of the declared types"),
                _misfits(text, _schema(format_.schema, topic)),
                F.lit(": "),
                F.left(text, F.lit(120)),
            ),
        ),
        *(
            F.when(content[field.name].isNull(), F.lit(f"{field.name} is missing or null"))
            for field in _schema(format_.schema, topic)
            if not field.nullable
        ),
    )


def _misfits(text: "Column", schema: "StructType") -> "Column":
    """The fields of an object that have a value of another type, in words: ` (amount is no double)`. Spark parses a
    record again for it, which happens only for those that are set aside; and the expression is no larger for more
    fields, because each batch is planned anew."""
    from pyspark.sql import functions as F

    texts = "map<string, string>"
    there = F.from_json(text, texts)
    fits = F.from_json(F.to_json(F.from_json(text, _all_nullable(schema))), texts)
    fields = F.array(*(F.struct(F.lit(each.name), F.lit(each.dataType.simpleString())) for each in schema))
    misfits = F.filter(
        fields, lambda each: there[each["col1"]].isNotNull() & F.coalesce(fits, F.create_map())[each["col1"]].isNull()
    )
    words = F.array_join(
        F.transform(misfits, lambda each: F.concat(each["col1"], F.lit(" is no "), each["col2"])), ", "
    )
    return F.when(words != "", F.concat(F.lit(" ("), words, F.lit(")"))).otherwise("")


def _wrapped(text: "Column") -> "Column":
    from pyspark.sql import functions as F

    return F.concat(F.lit('{"content":['), text, F.lit(f'],"{_LAST}":0}}'))


def _parsed_by(part: str, data: "Column", format_: ParsedBy, schema: "StructType") -> "Column":
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    from cordwood.pipelines.rows.guarding import results_row_by_row

    returned = StructType([StructField("content", schema), StructField("error", StringType())])
    arrow_type = pa.struct(to_arrow_schema(_all_nullable(schema), timezone="UTC"))
    required = [field.name for field in schema if not field.nullable]
    function = format_.function

    def parse(values: Any) -> Any:
        return results_row_by_row(values.to_pylist(), function, arrow_type, required)

    parse.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return F.arrow_udf(parse, _all_nullable(returned))(data)  # type: ignore[attr-defined, no-any-return]


def _columns_of(part: str, format_: Format, topic: Topic, *, whole: bool = False) -> "dict[str, Column]":
    """The columns that a part becomes: the fields of a value, else one column with the part's name."""
    content = _content_of(part, format_)
    if whole or not isinstance(format_, Json | ParsedBy):
        return {part: content}
    columns = {}
    for field in _schema(format_.schema, topic):
        if field.name in _RESERVED:
            raise InvalidDefinition(f"input {topic.name}: {field.name} is a reserved name", topic.site)
        columns[field.name] = content[field.name]
    return columns


@lru_cache
def _schema(text: str | None, topic: Topic) -> "StructType":
    """The parsed schema, cached: a batch needs it several times, and only Spark can parse it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    assert text is not None
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise InvalidDefinition(f"input {topic.name}: {text!r} is no schema: {reason}", topic.site) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidDefinition(f"input {topic.name}: {text!r} names no columns", topic.site, "'id string, n int'")
    return schema


def _all_nullable(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(
                field.name,
                _all_nullable(field.dataType) if isinstance(field.dataType, StructType) else field.dataType,
                True,
            )
            for field in schema
        ]
    )
