"""From the rows of the source to the columns that a pipeline declared, each row with what went wrong with it.

No row is dropped and no row fails the query: a record that cannot be decoded comes out with `_error` set, its bytes in
`_poison`, and null in its columns. A null value is no error: it is a tombstone, and `_record.tombstone` says so.
"""

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from cordwood.pipelines.definition import RECORD, Pipeline, Topic
from cordwood.pipelines.errors import InvalidDefinition
from cordwood.pipelines.formats import Format, Json, ParsedBy, Raw, Text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

ERROR: Final = "_error"
POISON: Final = "_poison"
_RESERVED: Final = frozenset({RECORD, ERROR, POISON})
_CORRUPT: Final = "_corrupt"
_LAST: Final = uuid4().hex
_MAX_ERROR_LENGTH: Final = 500


def inputs_of(pipeline: Pipeline, rows: "DataFrame") -> "dict[str, DataFrame]":
    """The rows of each input, decoded, from the rows of all its topics as the source gives them (with headers)."""
    from pyspark.sql import functions as F

    if len(pipeline.inputs) == 1:
        return {name: decoded(rows, topic) for name, topic in pipeline.inputs.items()}
    return {
        name: decoded(rows.where(F.col("topic") == F.lit(topic.name)), topic) for name, topic in pipeline.inputs.items()
    }


def decoded(rows: "DataFrame", topic: Topic) -> "DataFrame":
    """The declared columns, then `_record`, `_error` and `_poison`."""
    from pyspark.sql import functions as F

    value, key = topic.value, topic.key
    assert value is not None
    assert not isinstance(key, str)
    # Parsed once, into a column of its own: every declared column is then a field of it.
    parsed = rows.select(
        "*",
        *([_parsed("key", key, topic).alias("_parsed_key")] if key is not None else []),
        _parsed("value", value, topic).alias("_parsed_value"),
    )
    columns = _columns_of("value", value, topic)
    if key is not None:
        columns = {**_columns_of("key", key, topic, whole=True), **columns}
        if len(columns) != len(_columns_of("value", value, topic)) + 1:
            raise InvalidDefinition(f"input {topic.name}: both key and value make a column key", topic.site)
    errors = [F.col("_parsed_value.error")]
    if key is not None:
        errors.insert(0, F.col("_parsed_key.error"))
    error = F.left(F.coalesce(*errors), F.lit(_MAX_ERROR_LENGTH))
    return parsed.select(
        *(column.alias(name) for name, column in columns.items()),
        F.struct(
            F.col("topic"),
            F.col("partition"),
            F.col("offset"),
            F.col("timestamp"),
            F.col("key"),
            F.col("value").isNull().alias("tombstone"),
        ).alias(RECORD),
        error.alias(ERROR),
        F.when(error.isNotNull(), F.struct(F.col("value"), F.col("headers"))).alias(POISON),
    )


def _parsed(part: str, format_: Format, topic: Topic) -> "Column":
    """A struct of the parsed `content` and of the `error`; both are null where the part is null."""
    from pyspark.sql import functions as F

    data = F.col(part)
    missing = data.isNull()
    text = data.cast("string")
    not_text = F.when(~F.is_valid_utf8(text), F.lit(f"the {part} is not UTF-8"))
    match format_:
        case Raw():
            return F.struct(data.alias("content"), F.lit(None).cast("string").alias("error"))
        case Text():
            error = F.when(~missing, not_text)
            return F.struct(F.when(error.isNull(), text).alias("content"), error.alias("error"))
        case Json():
            return _parsed_json(part, text, not_text, _schema(format_.schema, topic))
        case ParsedBy():
            return _parsed_by(part, data, format_, _schema(format_.schema, topic))


def _parsed_json(part: str, text: "Column", not_text: "Column", schema: "StructType") -> "Column":
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    optional = StructType([StructField(field.name, field.dataType, True) for field in schema])
    # Spark stops reading at the end of the first object, whatever follows it. As a field of another object the value is
    # read to its end, so that `{"id": 1}{"id": 2}` is an error and not half of what was sent. If that object has other
    # fields than its own two, the value has ended early and gone on: the last one has a name that no value knows.
    envelope = StructType([StructField("content", optional), StructField(_CORRUPT, StringType())])
    wrapped = F.concat(F.lit('{"content":'), text, F.lit(f',"{_LAST}":0}}'))
    is_one = F.coalesce(F.json_object_keys(wrapped) == F.array(F.lit("content"), F.lit(_LAST)), F.lit(False))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(wrapped, envelope, options)
    content = read["content"]
    wrong = F.coalesce(
        not_text,
        F.when(
            read[_CORRUPT].isNotNull() | content.isNull() | ~is_one,
            F.concat(F.lit(f"the {part} is no JSON object of the declared types: "), F.left(text, F.lit(120))),
        ),
        *(
            F.when(content[field.name].isNull(), F.lit(f"{field.name} is missing or null"))
            for field in schema
            if not field.nullable
        ),
    )
    error = F.when(text.isNotNull(), wrong)
    return F.struct(F.when(error.isNull(), content).alias("content"), error.alias("error"))


def _parsed_by(part: str, data: "Column", format_: ParsedBy, schema: "StructType") -> "Column":
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    from cordwood.pipelines.guarding import results_row_by_row

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
    from pyspark.sql import functions as F

    content = F.col(f"_parsed_{part}.content")
    if whole or not isinstance(format_, Json | ParsedBy):
        return {part: content}
    columns = {}
    for field in _schema(format_.schema, topic):
        if field.name in _RESERVED:
            raise InvalidDefinition(f"input {topic.name}: {field.name} is a reserved name", topic.site)
        columns[field.name] = content[field.name]
    return columns


def _schema(text: str | None, topic: Topic) -> "StructType":
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
