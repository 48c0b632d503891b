"""The declaration of a table that a pipeline writes: its key, its order, its partitions, its format, its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cordwood.model.quantities import duration_ms
from cordwood.pipelines.definition.errors import InvalidDefinition, Site, calling_site
from cordwood.pipelines.definition.expectations import Expectation, expectations
from cordwood.pipelines.definition.names import MAX_NAME_LENGTH, NAME
from cordwood.pipelines.definition.partitions import Partition, PartitionBy, Transform
from cordwood.pipelines.definition.storage_options import SCHEMES


class TableFormat(StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"
    POSTGRESQL = "postgresql"
    """A table of a database, declared by `jdbc()`."""


OF_FILES: Final = (TableFormat.DELTA, TableFormat.ICEBERG)


@dataclass(frozen=True)
class Table:
    """A table to write to. With a key, a row replaces the row of the same key; without, rows are added."""

    name: str
    key: tuple[str, ...]
    latest_by: tuple[str, ...]
    delete_when: str | None
    format: TableFormat
    replayable: bool
    site: Site = field(compare=False)
    location: str | None = None
    """The place of an object store below which the table is, or a database; None: in the pipelines' directory."""
    storage_options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Options of `deltalake` or of a database, which may include credentials."""
    partition_by: tuple[Partition, ...] = ()
    remember_deletes_ms: int | None = None
    """How long deletes are remembered; None: not at all."""
    expect: tuple[Expectation, ...] = ()
    """The rules that rows are judged by, in this order."""

    def __str__(self) -> str:
        return f"table {self.name}"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.column for each in self.partition_by))


def table(
    name: str,
    *,
    key: str | Sequence[str] = (),
    latest_by: str | Sequence[str] = (),
    delete_when: str | None = None,
    remember_deletes: str | None = None,
    partition_by: PartitionBy = (),
    format: str = "delta",
    replayable: bool = True,
    location: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    expect: Expectation | Sequence[Expectation] = (),
) -> Table:
    """Declares a table, kept in the pipelines' directory and found by its name: `read_table(spark, name)`.

    With `key`, one column or several, a row replaces the row of the same key, and a record without a value (a
    tombstone) deletes it. If a batch has several rows of one key, the last one counts: by the columns `latest_by` if
    they are given, else by partition and offset of the record, which the column `_record` carries. `delete_when` is an
    SQL condition for deletes of your own. `remember_deletes`, "7d" for example, is the time for which a deleted key is
    remembered: an older row by `latest_by` that comes after the delete is then dropped. `format` is delta; for tables
    without a key also iceberg.

    `partition_by` names columns: rows that differ in them are in different files, so a reader that asks for some
    values reads only their files. An Iceberg table takes transforms, too: `days("at")`, `bucket(16, "id")`.

    `location` is a place of an object store, `s3://bucket/lake`, below which every edition has a table of its own;
    `storage_options` go to the `deltalake` package. Credentials are better left to the environment. `expect` are the
    rules that the table's rows must meet.
    """
    site = calling_site()
    checked_name(name, site)
    if format not in OF_FILES:
        hint = f"{' or '.join(OF_FILES)}, both of which keep their rows in Parquet files; jdbc() is for a database"
        raise InvalidDefinition(f"table {name}: there is no format {format!r}", site, hint)
    keys, latest = checked_keys(name, key, latest_by, delete_when, site)
    if format != TableFormat.DELTA and keys:
        hint = "leave out key=, or use format='delta'"
        raise InvalidDefinition(f"table {name}: rows of format {format} are not replaced by key", site, hint)
    options = dict(storage_options or {})
    _check_location(name, location, options, replayable, site)
    return Table(
        name,
        keys,
        latest,
        delete_when,
        TableFormat(format),
        replayable,
        site,
        None if location is None else location.rstrip("/"),
        options,
        _partitions(name, partition_by, TableFormat(format), site),
        checked_remember_deletes_ms(name, remember_deletes, latest, site),
        expectations(expect, f"table {name}", site),
    )


def checked_name(name: str, site: Site) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise InvalidDefinition(f"{name!r} cannot be a table's name", site, "letters, digits, dashes, underscores")


def checked_keys(
    name: str, key: str | Sequence[str], latest_by: str | Sequence[str], delete_when: str | None, site: Site
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a table's key, and those that order its rows."""
    keys = _columns(key)
    dotted = next((each for each in keys if "." in each), None)
    if dotted is not None:
        hint = "select it under another name: a dot leads into a struct"
        raise InvalidDefinition(f"table {name}: {dotted!r} cannot be a key", site, hint)
    if not keys and (latest_by or delete_when):
        raise InvalidDefinition(f"table {name}: latest_by and delete_when are for tables with a key", site, "give key=")
    return keys, _columns(latest_by)


def checked_remember_deletes_ms(name: str, text: str | None, latest_by: tuple[str, ...], site: Site) -> int | None:
    if text is None:
        return None
    if not latest_by:
        hint = "latest_by= names the columns that say which rows are older than a delete"
        raise InvalidDefinition(f"table {name}: remember_deletes is for tables with latest_by=", site, hint)
    try:
        kept_ms = duration_ms(text)
    except (ValueError, AttributeError) as error:
        raise InvalidDefinition(f"table {name}: remember_deletes={text!r}: {error}", site, "'7d', '12h'") from error
    if kept_ms <= 0:
        raise InvalidDefinition(f"table {name}: remember_deletes={text!r} is no time", site, "'7d', '12h'")
    return kept_ms


def _partitions(name: str, given: PartitionBy, format_: TableFormat, site: Site) -> tuple[Partition, ...]:
    found: list[Partition] = []
    for each in [given] if isinstance(given, str | Partition) else given:
        if not isinstance(each, str | Partition) or not each:
            hint = "names of columns; for an Iceberg table also days(…), bucket(…) and the like of cordwood.pipelines"
            raise InvalidDefinition(f"table {name}: partition_by={each!r}", site, hint)
        found.append(Partition(each) if isinstance(each, str) else each)
    for each in found:
        if "." in each.column:
            hint = "select it under another name: a dot leads into a struct"
            raise InvalidDefinition(f"table {name}: {each.column!r} cannot be partitioned by", site, hint)
        if found.count(each) > 1:
            raise InvalidDefinition(f"table {name}: partition_by has {each} twice", site, "once will do")
        if each.transform is not Transform.IDENTITY and format_ is TableFormat.DELTA:
            hint = "select a column for it, to_date(at) as day for example, and partition_by= that; or format='iceberg'"
            raise InvalidDefinition(f"table {name}: Delta partitions by columns only, not by {each}", site, hint)
    return tuple(found)


def _check_location(name: str, location: str | None, options: Mapping[str, str], replayable: bool, site: Site) -> None:
    if location is None:
        if options:
            raise InvalidDefinition(f"table {name}: storage_options are for a location=", site, "'s3://bucket/lake'")
        return
    if not location.startswith(SCHEMES) or len(location.split("//", 1)[1].strip("/")) == 0:
        hint = f"a URL such as 's3://bucket/lake', of {', '.join(SCHEMES)}"
        raise InvalidDefinition(f"table {name}: location={location!r} is no place in an object store", site, hint)
    if not replayable:
        hint = "leave out location=, or let every edition have its own: replayable=True"
        raise InvalidDefinition(f"table {name}: a table that all editions share has no location", site, hint)
    wrong = next((key for key, value in options.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise InvalidDefinition(f"table {name}: the storage option {wrong} is no text", site, "'true', not True")


def _columns(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
