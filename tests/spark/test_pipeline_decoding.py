"""Decoding records to columns: poison is found, other records pass, and none is lost."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cordwood.pipelines.definition.definition import Topic, topic
from cordwood.pipelines.definition.errors import InvalidDefinition
from cordwood.pipelines.definition.record_formats import Format, json, parsed_by, raw, text
from cordwood.pipelines.rows.decoding import decoded

SOURCE = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def source_rows(spark: SparkSession, pairs: list[tuple[bytes | None, bytes | None]]) -> DataFrame:
    rows = [(key, value, "orders", 0, offset, None, 0, [("trace", b"1")]) for offset, (key, value) in enumerate(pairs)]
    return spark.createDataFrame(rows, SOURCE)


def decode(spark: SparkSession, declared: Topic, pairs: list[tuple[bytes | None, bytes | None]]) -> list[Row]:
    return decoded(source_rows(spark, pairs), declared).orderBy("_record.offset").collect()


def input_topic(value: Format, key: Format | None = None) -> Topic:
    return topic("orders", key=key, value=value)


GOOD = b'{"id": "a", "n": 1, "at": {"x": 1.5}, "more": true}'
JSON_VALUES: Mapping[bytes | None, str | None] = {
    GOOD: None,
    b' {"id": "a"}\n': None,
    None: None,  # a tombstone
    b"": "no JSON object",
    b"  ": "no JSON object",
    b"null": "no JSON object",
    b"3": "no JSON object",
    b"[1, 2]": "no JSON object",
    b'[{"id": "a"}]': "no JSON object",
    b'{"id": "a"': "no JSON object",
    b'{"id": "a"} {"id": "b"}': "no JSON object",
    b'{"id": "a"} more': "no JSON object",
    b'{"id": "a"}}': "no JSON object",
    b'{"id": "a"}, "more": 5': "no JSON object",
    b'{"id": "a"}, "content": {"id": "b"}': "no JSON object",
    b'{"id": "a"}, "_corrupt": "x"': "no JSON object",
    b'{"id": "a"}, {"id": "b"}': "no JSON object",
    b'{"id": "a"}], "more": [{"id": "b"}': "no JSON object",
    b'{"id": "a"}], "content": [{"id": "b"}': "no JSON object",
    b'{"id": "a"}]}': "no JSON object",
    b'{"id": "]", "more": [{"id": "b"}]}': None,
    b'{"id": "a", "n": "x", "at": {"x": 1}}': "no JSON object of the declared types (n is no int): {",
    b'{"id": "a", "n": 99999999999}': "(n is no int): {",
    b'{"id": "a", "n": [1], "at": 5}': "(n is no int, at is no struct<x:double>): {",
    b'{"id": "a", "at": {"x": "y"}}': "no JSON object of the declared types: {",
    b'{"n": 1}': "id is missing or null",
    b'{"id": null}': "id is missing or null",
    b'{"id": "\xff"}': "not UTF-8",
}


@pytest.mark.landing
def test_json_is_decoded_or_told_apart_record_by_record(spark: SparkSession) -> None:
    declared = input_topic(json("id string not null, n int, at struct<x: double>"))
    rows = decode(spark, declared, [(b"k", value) for value in JSON_VALUES])
    for row, (value, error) in zip(rows, JSON_VALUES.items(), strict=True):
        if error is None:
            assert row["_error"] is None, value
            assert row["_poison"] is None
        else:
            assert error in row["_error"], value
            assert bytes(row["_poison"]["value"]) == value
            assert [(header["key"], bytes(header["value"])) for header in row["_poison"]["headers"]] == [
                ("trace", b"1")
            ]
        assert row["_record"]["tombstone"] is (value is None)
        assert bytes(row["_record"]["key"]) == b"k"
    assert (rows[0]["id"], rows[0]["n"], rows[0]["at"]["x"]) == ("a", 1, 1.5)


def test_keys_and_other_formats_have_columns_of_their_own(spark: SparkSession) -> None:
    pairs = [(b"a", b"x"), (b"\xff", b"x"), (None, b"\xfe"), (b"b", None)]
    rows = decode(spark, input_topic(text(), key=text()), pairs)
    assert [(row["key"], row["value"]) for row in rows if row["_error"] is None] == [("a", "x"), ("b", None)]
    assert [row["_error"] for row in rows] == [None, "the key is not UTF-8", "the value is not UTF-8", None]
    rows = decode(spark, input_topic(json("n int"), key=json("id string")), [(b'{"id": "a"}', b'{"n": 1}')])
    assert (rows[0]["key"]["id"], rows[0]["n"]) == ("a", 1)
    rows = decode(spark, input_topic(raw()), pairs)
    assert [row["value"] for row in rows] == [bytearray(b"x"), bytearray(b"x"), bytearray(b"\xfe"), None]
    assert {row["_error"] for row in rows} == {None}


def semicolons(value: bytes) -> Mapping[str, Any]:
    name, amount = value.decode().split(";")
    return {"name": name or None, "amount": float(amount) if amount != "text" else "text"}


def test_a_python_function_decodes_any_format(spark: SparkSession) -> None:
    declared = input_topic(parsed_by(semicolons, "name string not null, amount double"))
    values = [b"a;1.5", b"only one", b";2", b"b;text", None, b"c;x"]
    rows = decode(spark, declared, [(None, value) for value in values])
    assert [(row["name"], row["amount"]) for row in rows] == [("a", 1.5)] + 5 * [(None, None)]
    errors = [row["_error"] for row in rows]
    assert errors[0] is errors[4] is None
    assert errors[1].startswith("ValueError: not enough values to unpack")
    assert errors[2] == "name is missing or null"
    assert "text" in errors[3]
    assert errors[5].startswith("ValueError: could not convert")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (input_topic(json("id strin")), "is no schema"),
        (input_topic(json("_record string")), "reserved name"),
        (input_topic(json("key string"), key=text()), "both key and value"),
    ],
)
def test_a_schema_that_cannot_be_is_told_with_its_line(spark: SparkSession, declared: Topic, said: str) -> None:
    with pytest.raises(InvalidDefinition, match=said) as caught:
        decode(spark, declared, [])
    assert caught.value.site is not None
    assert caught.value.site.file == __file__
