"""A directory of pipelines: lists them, and finds the live table or topic of a name.

    cordwood.pipelines.table_path("orders")     # the directory of the live edition's table
    cordwood.pipelines.topic_name("priced")     # the topic that the live edition writes

A name leads to the edition that is live at the call. A reader may keep the answer: a swap takes nothing away from the
edition that it reads.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import NotFound, WrongState
from cordwood.pipelines.definition.loading import same_name
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.editions.edition_sets import EditionSets
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.formats.table_formats import rows_of, snapshot
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.tables.stores import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENVIRONMENT: Final = "CORDWOOD_PIPELINES"
DEFAULT_DIRECTORY: Final = "cordwood-pipelines"


class LiveTable(NamedTuple):
    pipeline: PipelineState
    edition: Edition
    name: str

    @property
    def path(self) -> TablePlace:
        return self.pipeline.table_directory(self.edition, self.name)


class Project:
    """The pipelines below one directory: the one given, else CORDWOOD_PIPELINES, else ./cordwood-pipelines."""

    def __init__(self, directory: str | os.PathLike[str] | None = None, files: StateFiles | None = None) -> None:
        chosen = directory or os.environ.get(ENVIRONMENT) or DEFAULT_DIRECTORY
        self.directory = Path(chosen).absolute()
        self.files = files or StateFiles()
        self.sets = EditionSets(self.directory, self.files)

    def pipeline_names(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        return sorted(path.name for path in self.directory.iterdir() if (path / "editions").is_dir())

    def pipelines(self) -> Iterator[PipelineState]:
        for name in self.pipeline_names():
            yield PipelineState(self.directory / name, self.files)

    def state(self, name: str) -> PipelineState:
        """The state of a pipeline, which may be empty."""
        return PipelineState(self.directory / name, self.files)

    def known(self, name: str) -> PipelineState:
        """The state of a pipeline that has run."""
        names = self.pipeline_names()
        known = same_name(name, names)
        if known is None:
            hint = f"there are {', '.join(names)}" if names else "`cordwood pipeline run FILE` makes one"
            raise NotFound(f"there is no pipeline {name} in {self.directory}", hint)
        return self.state(known)

    def live_table(self, name: str) -> LiveTable:
        found = [
            LiveTable(state, edition, name)
            for state in self.pipelines()
            if (edition := _live_edition(state)) is not None and name in edition.tables
        ]
        if not found:
            raise NotFound(f"no pipeline in {self.directory} has a live table {name}")
        if len(found) > 1:
            owners = ", ".join(table.pipeline.name for table in found)
            raise WrongState(f"the table {name} belongs to several pipelines: {owners}", "rename one of them")
        return found[0]

    def check_outputs_are_free(self, made: Pipeline) -> None:
        """Refuses a table or a topic that another pipeline writes: an output's name leads to one pipeline."""
        for state in self.pipelines():
            if state.name == made.name:
                continue
            for edition in state.editions().values():
                for output in made.outputs.values():
                    kind, taken = ("table", edition.tables) if isinstance(output, Table) else ("topic", edition.topics)
                    if output.name in taken:
                        raise WrongState(
                            f"{output.site}: the {kind} {output.name} belongs to the pipeline {state.name}",
                            "choose another name; a topic is the output of one pipeline, and any number may read it",
                        )


def table_path(name: str, directory: str | os.PathLike[str] | None = None) -> Path:
    """The directory of a live table. Any reader of Delta tables can open a Delta table there."""
    found = Project(directory).live_table(name).path
    if isinstance(found, Database):
        raise WrongState(f"the table {name} is in a database: {found}", f"`select * from {name}` reads it there")
    if not isinstance(found, Path):
        raise WrongState(f"the table {name} is in an object store, at {found}", "table_uri() gives its URL")
    return found


def table_uri(name: str, directory: str | os.PathLike[str] | None = None) -> str:
    """The directory of a live table, or its URL in an object store: the address that readers of Delta tables take."""
    return str(Project(directory).live_table(name).path)


def topic_name(name: str, directory: str | os.PathLike[str] | None = None) -> str:
    """The topic that the live edition writes for a declared output topic."""
    project = Project(directory)
    for state in project.pipelines():
        edition = _live_edition(state)
        if edition is not None and name in edition.topics:
            return edition.topics[name]
    raise NotFound(f"no live pipeline in {project.directory} writes a topic {name}")


def read_table(
    spark: "SparkSession",
    name: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> "DataFrame":
    """A live table as it is now. Another call returns later rows, or another edition after a swap.

    `storage_options` are for a table in an object store whose credentials are not in the environment.
    """
    found = Project(directory).live_table(name)
    place = found.path
    if isinstance(place, Database):
        hint = f'`select * from {name}`, with any client, or Spark\'s own format("jdbc")'
        raise WrongState(f"the table {name} is in a database: {place}", hint)
    if isinstance(place, ObjectStore):
        place = place.with_options(storage_options or {})
    taken = snapshot(place, found.edition.tables[name].format)
    if taken is None:
        raise WrongState(f"nothing has been written to the table {name} yet")
    return rows_of(spark, taken)


def _live_edition(state: PipelineState) -> Edition | None:
    live = state.live()
    return None if live is None else state.edition(live.edition)
