"""Declares how the bytes of a record's key or value become columns; `decoding.py` has Spark do it.

A format is a plain value, so that a definition can be made, compared and checked without Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parse = Callable[[bytes], Mapping[str, Any]]


@dataclass(frozen=True)
class Raw:
    """The bytes themselves, in one column."""


@dataclass(frozen=True)
class Text:
    """UTF-8, as one column of strings. Bytes that are not UTF-8 are a poison record."""


@dataclass(frozen=True)
class Json:
    """One JSON object, read by a schema. Without a schema it can be written but not read."""

    schema: str | None = None


@dataclass(frozen=True)
class ParsedBy:
    """A Python function from bytes to a mapping of columns. If it raises, the record is a poison record."""

    function: Parse
    schema: str


Format = Raw | Text | Json | ParsedBy


def raw() -> Raw:
    """Bytes as they are."""
    return Raw()


def text() -> Text:
    """UTF-8 text."""
    return Text()


def json(schema: str | None = None) -> Json:
    """JSON objects. `schema` names the columns in Spark's words: `"id string not null, amount double"`.

    A field that is missing or null is a null column, or a poison record where the schema says `not null`. A value that
    is not a JSON object, or has a field of another type, is a poison record. Fields that the schema does not name are
    ignored.
    """
    return Json(schema)


def parsed_by(function: Parse, schema: str) -> ParsedBy:
    """Any format: a function that takes the bytes of one record and returns its columns."""
    return ParsedBy(function, schema)
