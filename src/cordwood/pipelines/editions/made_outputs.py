"""The outputs that an edition has made: `outputs.json` in its directory has the ids of topics and the names of tables.

A topic or a table that is gone takes with it what earlier batches wrote, and the checkpoint is past their records. Made
anew and empty it would hide that loss. So an output that was there once is not made again without a word.
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


def _read(state: PipelineState, edition: str) -> Mapping[str, Any]:
    return state.files.read(_path(state, edition)) or {}


def _replace(state: PipelineState, edition: str, **facts: Any) -> None:
    state.files.replace(_path(state, edition), {**_read(state, edition), **facts})


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "outputs.json"
