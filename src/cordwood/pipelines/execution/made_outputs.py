"""Refuses to go on without an output that the edition has written before (`editions/made_outputs.py`).

A topic that was made again is taken if it is empty, when a run begins: a person has decided so. A table that is gone
has to come back, or be built anew. Tables of a database are looked at by the batches themselves, with the connection
that they have. Tables in an object store are not looked at: that would cost a request for each batch, and a store that
is away is no reason to give up.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from pathlib import Path

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.made_outputs import (
    note_batches,
    note_tables,
    note_topics,
    noted_tables,
    noted_topics,
)
from cordwood.pipelines.execution.reading_here import log_ends, topic_ids
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.formats.table_formats import is_there


class MadeOutputs:
    """The outputs of a running edition."""

    def __init__(
        self,
        pipeline: Pipeline,
        state: PipelineState,
        edition: str,
        tables: Mapping[str, TablePlace],
        bootstrap: Bootstrap,
    ) -> None:
        self._pipeline = pipeline
        self._state = state
        self._edition = edition
        self._tables = tables
        self._bootstrap = bootstrap
        self._topics = noted_topics(state, edition)
        self._made = set(noted_tables(state, edition))

    def check(self) -> None:
        """Raises WrongState if an output is gone, or a topic was made again since the run began."""
        for table in self._pipeline.tables.values():
            if table.name in self._made and self._is_gone(table):
                place = self._tables[table.name]
                raise WrongState(
                    f"the table {table.name} of edition {self._edition} is gone from {place}, with all its rows",
                    f"bring it back from a copy, and `cordwood pipeline reload {self._pipeline.name}` or a new `run` "
                    f"goes on; or `cordwood pipeline replay {self._pipeline.name} --fresh` builds it anew for a swap",
                )
        if not self._topics:
            return
        found = topic_ids(self._bootstrap, self._topics)
        for topic, id_ in self._topics.items():
            if found.get(topic, "") != id_:
                again = _Again.GONE
                if topic in found:
                    again = _Again.FULL if _has_records(topic, self._bootstrap) else _Again.EMPTY
                raise _topic_gone(topic, self._edition, self._pipeline.name, again)

    def batch_done(self, skipped: Collection[str], taken: Mapping[str, Mapping[str, int]]) -> None:
        """Notes the tables that there are now, and the batches that those in databases have `taken`. Outputs that are
        `skipped` take nothing from a replay."""
        tables = (table for name, table in self._pipeline.tables.items() if name not in skipped)
        unknown = [table for table in tables if table.name not in self._made]
        made = {table.name for table in unknown if not self._is_gone(table)}
        if made:
            note_tables(self._state, self._edition, made)
            self._made |= made
        if taken:
            note_batches(self._state, self._edition, taken)

    def _is_gone(self, table: Table) -> bool:
        place = self._tables[table.name]
        return isinstance(place, Path) and not is_there(place, table.format)


def check_topics(
    pipeline: Pipeline,
    state: PipelineState,
    edition: Edition,
    bootstrap: Bootstrap,
    remark: Callable[[str], None],
) -> None:
    """Raises WrongState for a topic that the edition has written and that is gone, or was made again and is not
    empty."""
    noted = {topic: id_ for topic, id_ in noted_topics(state, edition.name).items() if topic in _topics(edition)}
    found = topic_ids(bootstrap, noted) if noted else {}
    for topic, id_ in noted.items():
        if topic not in found:
            raise _topic_gone(topic, edition.name, pipeline.name, _Again.GONE)
        if found[topic] == id_:
            continue
        if _has_records(topic, bootstrap):
            raise _topic_gone(topic, edition.name, pipeline.name, _Again.FULL)
        remark(f"the topic {topic} was deleted and made again: it gets the records from now on, and none before")


def note_own_topics(state: PipelineState, edition: Edition, bootstrap: Bootstrap) -> None:
    """Notes the ids of the topics that a run of the edition begins with. A broker without ids has none to note."""
    found = topic_ids(bootstrap, _topics(edition))
    note_topics(state, edition.name, {topic: id_ for topic, id_ in found.items() if id_ is not None})


class _Again(Enum):
    """What there is in the place of a topic that was deleted."""

    GONE = ""
    EMPTY = ", and an empty one of that name was made"
    FULL = ", and another one of that name has records"


def _topic_gone(topic: str, edition: str, pipeline: str, again: _Again) -> WrongState:
    ways = {
        _Again.GONE: f"`cordwood topic create {topic}` makes an empty one, and ",
        _Again.EMPTY: "",
        _Again.FULL: f"`cordwood topic delete {topic}` deletes that one; `cordwood topic create {topic}` makes an "
        "empty one, and ",
    }
    return WrongState(
        f"the topic {topic} of edition {edition} was deleted, with what was written before{again.value}",
        f"{ways[again]}`cordwood pipeline reload {pipeline}` or a new `run` writes the records from then on; or "
        f"`cordwood pipeline replay {pipeline} --fresh` builds it anew",
    )


def _has_records(topic: str, bootstrap: Bootstrap) -> bool:
    return any(log_ends(bootstrap, [topic], committed=False).get(topic, {}).values())


def _topics(edition: Edition) -> set[str]:
    return set(edition.topics.values())
