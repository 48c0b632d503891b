"""Tracks how far an edition has written outputs that are not replayable, also across a kill within a batch.

Spark notes that a batch is done after its outputs were written. A kill between the two leaves effects that the
checkpoint does not know, and an edition that takes over would repeat them. So the number of a batch is noted before the
first of its effects is written. If the batch is not done, its effects are unknown to all but the edition itself, which
repeats the batch: every output then takes what it lacks.
"""

from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import DamagedState, WrongState
from cordwood.pipelines.editions.checkpoint import committed_position, last_committed_batch, position_of
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.positions import Positions

_FORMAT: Final = 1


def note_begun(state: PipelineState, edition: str, batch: int) -> None:
    """Notes that effects of this batch may exist from now on."""
    state.files.replace(_path(state, edition), {"format": _FORMAT, "batch": batch})


def effects_position(state: PipelineState, edition: str, *, skip: bool) -> Positions:
    """The position before which records have had their effects. A batch that was begun and is not done is refused; with
    `skip` all its effects count as had, though some may be missing."""
    checkpoint = state.checkpoint(edition)
    begun, done = _last_begun(state, edition), last_committed_batch(checkpoint)
    if begun is None or (done is not None and begun <= done):
        return committed_position(checkpoint)
    if not skip:
        raise WrongState(
            f"edition {edition} of {state.name} was interrupted within batch {begun}: some of its effects may be "
            "there, and another edition would repeat them",
            f"`cordwood pipeline run {state.name} --once` finishes it first; --skip-effects takes all of them as had",
        )
    return position_of(checkpoint, begun)


def _last_begun(state: PipelineState, edition: str) -> int | None:
    path = _path(state, edition)
    value = state.files.read(path)
    if value is None:
        return None
    if value.get("format") != _FORMAT or not isinstance(value.get("batch"), int):
        raise DamagedState(f"{path} names no batch")
    return int(value["batch"])


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "effects.json"
