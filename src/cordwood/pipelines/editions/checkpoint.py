"""Reads Spark's checkpoint: the query's id, and how far it has read and committed.

metadata           {"id": "…"}
offsets/<batch>    a version line, Spark's metadata, then a line for each source: where the batch ends
commits/<batch>    there once the batch is done
"""

import json
from pathlib import Path

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.positions import Positions, from_json


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


def position_of(checkpoint: Path, batch: int) -> Positions:
    """The positions at which a planned batch ends."""
    path = checkpoint / "offsets" / str(batch)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        offset = json.loads(lines[2])
    except (OSError, IndexError, ValueError) as error:
        raise DamagedState(f"{path} is not Spark's: {error}") from error
    return from_json(offset)


def _last(directory: Path) -> int | None:
    if not directory.is_dir():
        return None
    return max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=None)
