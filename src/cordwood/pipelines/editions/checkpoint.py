"""How far an edition has read, by Spark's checkpoint, and how far it has written outputs that are not replayable.

metadata           {"id": "…"}
offsets/<batch>    a version line, Spark's metadata, then a line for each source: where the batch ends
commits/<batch>    there once the batch is done

Spark notes that a batch is done after its outputs were written. A kill between the two leaves effects that the
checkpoint does not know, and an edition that takes over would repeat them. So the number of a batch is noted before the
first of its effects is written. If the batch is not done, its effects are unknown to all but the edition itself, which
repeats the batch: every output then takes what it lacks.
"""

import json
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import DamagedState, WrongState
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.positions import Positions, from_json, lacking
from cordwood.spark.checkpoints.plans import UnreadablePlan, batches_in, read_plan

_FORMAT: Final = 1


def query_id(checkpoint: Path) -> str | None:
    try:
        found = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"{checkpoint / 'metadata'} is not Spark's: {error}") from error
    return str(found)


def last_committed_batch(checkpoint: Path) -> int | None:
    return _last(checkpoint / "commits")


def unfinished_batch(checkpoint: Path) -> int | None:
    """The batch that was planned and is not done, which the next run repeats; None if there is none."""
    planned, done = _last(checkpoint / "offsets"), last_committed_batch(checkpoint)
    return planned if planned is not None and (done is None or planned > done) else None


def committed_position(checkpoint: Path) -> Positions:
    """The offset after the last committed record of every partition; empty before the first batch."""
    batch = last_committed_batch(checkpoint)
    return {} if batch is None else position_of(checkpoint, batch)


def planned_position(checkpoint: Path) -> Positions:
    """The positions at which the last planned batch ends, done or not: the edition goes there before anything else."""
    batch = _last(checkpoint / "offsets")
    return {} if batch is None else position_of(checkpoint, batch)


def position_of(checkpoint: Path, batch: int) -> Positions:
    """The positions at which a planned batch ends."""
    try:
        found = from_json(json.loads(read_plan(checkpoint, batch).sources[0]))
    except (UnreadablePlan, ValueError) as error:
        raise DamagedState(f"the checkpoint {checkpoint} is not Spark's: {error}") from error
    # Of a topic that was left with the first batch, the batch has the beginning alone.
    return {topic: partitions for topic, partitions in found.items() if partitions}


def span_of_last_batch(checkpoint: Path) -> dict[str, int]:
    """How many offsets of each topic the last finished batch has read. The first batch, and one that went over to
    another topic, begin at offsets that the checkpoint does not tell."""
    batch = last_committed_batch(checkpoint)
    if not batch:
        return {}
    before, after = position_of(checkpoint, batch - 1), position_of(checkpoint, batch)
    return {topic: lacking({topic: after[topic]}, {topic: before[topic]}) for topic in after if topic in before}


def _last(directory: Path) -> int | None:
    return max(batches_in(directory), default=None)


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
