"""`requeue.json` of an edition: the quarantined records that were sent through again, and those about to be.

A requeue writes down its records before it sends them. Pending records may be in some outputs already.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.offset_sets import OffsetSet

_FORMAT: Final = 1


@dataclass(frozen=True)
class RequeuePlan:
    number: int = -1
    """The number of the last requeue."""
    done: OffsetSet = field(default_factory=OffsetSet)
    """Offsets of the quarantine topic that were sent."""
    pending: OffsetSet | None = None
    topic_id: str | None = None
    """The id of the quarantine topic: the offsets mean nothing in a topic that was made again."""


def read_plan(state: PipelineState, edition: str) -> RequeuePlan:
    path = _path(state, edition)
    value = state.files.read(path)
    if value is None:
        return RequeuePlan()
    if value.get("format") != _FORMAT:
        raise DamagedState(f"{path} is of format {value.get('format')!r}")
    pending = None if value["pending"] is None else OffsetSet.from_json(value["pending"])
    return RequeuePlan(value["number"], OffsetSet.from_json(value["done"]), pending, value.get("topic_id"))


def write_plan(state: PipelineState, edition: str, plan: RequeuePlan) -> None:
    state.files.replace(
        _path(state, edition),
        {
            "format": _FORMAT,
            "number": plan.number,
            "done": plan.done.to_json(),
            "pending": None if plan.pending is None else plan.pending.to_json(),
            "topic_id": plan.topic_id,
        },
    )


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "requeue.json"
