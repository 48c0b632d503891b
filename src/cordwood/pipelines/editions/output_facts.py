"""Facts of an edition about its outputs, in `edition.json`: enough to find and read them, and no credentials."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.storage_options import plain_options
from cordwood.pipelines.definition.table_output import TableFormat


@dataclass(frozen=True)
class TableFacts:
    """The facts that a reader of a table needs."""

    format: TableFormat
    key: tuple[str, ...]
    shared: bool
    """True for a table that is not replayable: all editions share it."""
    location: str | None = None
    """The place of an object store below which the table is."""
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
