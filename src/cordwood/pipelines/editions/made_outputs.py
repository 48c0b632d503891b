"""The outputs that an edition has made: `outputs.json` in its directory has the ids of topics, the names of tables, and
the last batches that its tables in databases have taken.

A topic or a table that is gone takes with it what earlier batches wrote, and the checkpoint is past their records. Made
anew and empty it would hide that loss. So an output that was there once is not made again without a word. A database
that was restored from an older copy hides the same loss: it lacks batches that it has taken.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cordwood.pipelines.editions.editions import PipelineState


def noted_topics(state: PipelineState, edition: str) -> Mapping[str, str]:
    """The ids of the topics that the edition writes, as they were when it began to."""
    found: Mapping[str, str] = _read(state, edition).get("topics", {})
    return found


def noted_tables(state: PipelineState, edition: str) -> Collection[str]:
    """The tables that have taken a batch of the edition."""
    found: list[str] = _read(state, edition).get("tables", [])
    return found


def note_topics(state: PipelineState, edition: str, ids: Mapping[str, str]) -> None:
    if ids != noted_topics(state, edition):
        _replace(state, edition, topics=dict(ids))


def note_tables(state: PipelineState, edition: str, names: Collection[str]) -> None:
    known = noted_tables(state, edition)
    if not set(names) <= set(known):
        _replace(state, edition, tables=sorted({*known, *names}))


def noted_batches(state: PipelineState, edition: str) -> Mapping[str, Mapping[str, int]]:
    """The last batch that each table in a database has taken, by table and application."""
    found: Mapping[str, Mapping[str, int]] = _read(state, edition).get("batches", {})
    return found


def note_batches(state: PipelineState, edition: str, taken: Mapping[str, Mapping[str, int]]) -> None:
    """Called before anything counts on these batches. Notes of tables that are not named stay."""
    known = noted_batches(state, edition)
    now = {**known, **{table: {**known.get(table, {}), **each} for table, each in taken.items() if each}}
    if now != known:
        _replace(state, edition, batches=now)


def _read(state: PipelineState, edition: str) -> Mapping[str, Any]:
    return state.files.read(_path(state, edition)) or {}


def _replace(state: PipelineState, edition: str, **facts: Any) -> None:
    state.files.replace(_path(state, edition), {**_read(state, edition), **facts})


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "outputs.json"
