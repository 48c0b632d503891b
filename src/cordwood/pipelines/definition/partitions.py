"""Partitions of tables: the columns, or what is made of them, that rows of one file have in common.

table("clicks", partition_by="day")                                          # Delta and Iceberg
table("clicks", format="iceberg", partition_by=[days("at"), bucket(16, "id")])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cordwood.pipelines.definition.errors import InvalidDefinition, calling_site


class Transform(StrEnum):
    """What is made of a column's values; the names are Iceberg's, but for the plural that SQL has."""

    IDENTITY = "identity"
    YEARS = "years"
    MONTHS = "months"
    DAYS = "days"
    HOURS = "hours"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


@dataclass(frozen=True)
class Partition:
    """A column, or a transform of it."""

    column: str
    transform: Transform = Transform.IDENTITY
    width: int = 0
    """The number of buckets, or the length that values are cut to."""

    def __str__(self) -> str:
        """The text that SQL has for it: `day`, `days(at)`, `bucket(16, id)`."""
        if self.transform is Transform.IDENTITY:
            return self.column
        return f"{self.transform}({self.width}, {self.column})" if self.width else f"{self.transform}({self.column})"


PartitionBy = str | Partition | Sequence[str | Partition]
_MAX_WIDTH: Final = 1 << 20


def years(column: str) -> Partition:
    """Partitions of an Iceberg table by the year of a date or a timestamp."""
    return _of(column, Transform.YEARS)


def months(column: str) -> Partition:
    """Partitions of an Iceberg table by the month of a date or a timestamp."""
    return _of(column, Transform.MONTHS)


def days(column: str) -> Partition:
    """Partitions of an Iceberg table by the day of a date or a timestamp, in UTC."""
    return _of(column, Transform.DAYS)


def hours(column: str) -> Partition:
    """Partitions of an Iceberg table by the hour of a timestamp, in UTC."""
    return _of(column, Transform.HOURS)


def bucket(count: int, column: str) -> Partition:
    """Partitions of an Iceberg table by a hash of the column, in this many buckets."""
    return _of(column, Transform.BUCKET, _width("bucket", count))


def truncate(width: int, column: str) -> Partition:
    """Partitions of an Iceberg table by the first characters of a text, or by numbers rounded down to a multiple."""
    return _of(column, Transform.TRUNCATE, _width("truncate", width))


def _of(column: str, transform: Transform, width: int = 0) -> Partition:
    if not isinstance(column, str) or not column:
        hint = f'{transform}({f"{width}, " if width else ""}"a_column")'
        raise InvalidDefinition(f"{transform}: {column!r} is no name of a column", calling_site(), hint)
    return Partition(column, transform, width)


def _width(name: str, width: int) -> int:
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= _MAX_WIDTH:
        hint = f'{name}(16, "a_column")'
        raise InvalidDefinition(f"{name}: {width!r} is not a number from 1 to {_MAX_WIDTH}", calling_site(), hint)
    return width
