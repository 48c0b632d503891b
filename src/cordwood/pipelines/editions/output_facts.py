"""Facts of an edition about its outputs, in `edition.json`: enough to find and read them, and no credentials."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.storage_options import plain_options
from cordwood.pipelines.definition.table_output import TableFormat
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.postgresql.place import SHARED, Database
from cordwood.pipelines.tables.stores import ObjectStore


@dataclass(frozen=True)
class TableFacts:
    """The facts that a reader of a table needs."""

    format: TableFormat
    key: tuple[str, ...]
    shared: bool
    """True for a table that is not replayable: all editions share it."""
    location: str | None = None
    """The place of an object store below which the table is, or a database."""
    storage_options: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Options that are not credentials."""
    partition_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        remote = {} if self.location is None else {"location": self.location, "storage_options": self.storage_options}
        parts = {"partition_by": list(self.partition_by)} if self.partition_by else {}
        return {"format": self.format.value, "key": list(self.key), "shared": self.shared, **parts, **remote}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        options = dict(value.get("storage_options", {}))
        parts = tuple(value.get("partition_by", ()))
        format_, key = TableFormat(value["format"]), tuple(value["key"])
        return cls(format_, key, value["shared"], value.get("location"), options, parts)


def table_facts(made: Pipeline) -> dict[str, TableFacts]:
    return {
        table.name: TableFacts(
            table.format,
            table.key,
            not table.replayable,
            table.location,
            plain_options(table.storage_options),
            tuple(map(str, table.partition_by)),
        )
        for table in made.tables.values()
    }


def effects_of(made: Pipeline) -> tuple[str, ...]:
    return tuple(output.name for output in made.outputs.values() if not output.replayable)


def topic_names(made: Pipeline, suffix: str | None) -> dict[str, str]:
    """Topics of an edition, by declared name. A rebuilt topic is a new topic: records that were read cannot be taken
    back."""
    return {
        topic.name: f"{topic.name}.{suffix}" if suffix is not None and topic.replayable else topic.name
        for topic in made.topics.values()
    }


def place_of(
    facts: TableFacts, table: str, pipeline: Path, edition: str, made_at_ms: int, *, is_live: bool
) -> TablePlace:
    """The place of an edition's table. `pipeline` is the directory of the pipeline's state."""
    if facts.format is TableFormat.POSTGRESQL:
        assert facts.location is not None, "a table of a database has its address"
        return Database(
            url=facts.location,
            name=table,
            edition=SHARED if facts.shared else edition,
            pipeline=pipeline.name,
            owner=f"{pipeline.name}/{SHARED if facts.shared else f'{edition}-{made_at_ms}'}",
            leads=facts.shared or is_live,
            given=tuple(facts.storage_options.items()),
        )
    directory = (pipeline if facts.shared else pipeline / "editions" / edition) / "tables" / table
    if facts.location is None:
        return directory
    # The name has the edition's time of making: a table that an earlier edition of the same name left is another one.
    below = f"{pipeline.name}/{edition}-{made_at_ms}/{table}"
    return ObjectStore(f"{facts.location}/{below}", tuple(facts.storage_options.items()), directory / "catalog.db")
