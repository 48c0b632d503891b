"""The places of tables, of files and of databases, and their failures in the words of commands."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.postgresql.place import Database, refusing_failures
from cordwood.pipelines.tables.stores import FilePlace, reason_of

TablePlace = FilePlace | Database
"""The place of a table, as readers get it."""


def noted_as(place: TablePlace, made: bool, taken: Mapping[str, int]) -> TablePlace:
    """The place, with the edition's notes whether its table has taken batches, and which were the last ones."""
    return replace(place, made=made, taken=tuple(taken.items())) if isinstance(place, Database) else place


@contextmanager
def refusing_failures_of(place: TablePlace, cannot_be: str) -> Iterator[None]:
    """Turns a failure of an object store or a database into a refusal, for commands. A running pipeline tries again
    instead."""
    if isinstance(place, Database):
        with refusing_failures(place, cannot_be):
            yield
        return
    try:
        yield
    except OSError as error:
        if isinstance(place, Path):
            raise
        hint = "credentials are those of the environment: an edition keeps none"
        raise WrongState(f"{place} cannot be {cannot_be}: {reason_of(error)}", hint) from error
