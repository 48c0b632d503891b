"""`failure.json` of an edition: the failure of its last run, for `status`. A finished batch removes it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.events import Event


def note_failure(state: PipelineState, edition: str, event: Event) -> None:
    """Writes down an event of the kind `failed`."""
    kept = {name: event[name] for name in ("code", "message", "hint")}
    state.files.replace(_path(state, edition), {**kept, "at_ms": int(time.time() * 1000)})


def clear_failure(state: PipelineState, edition: str) -> None:
    if _path(state, edition).exists():
        state.files.remove_file(_path(state, edition))


def last_failure(state: PipelineState, edition: str) -> Mapping[str, Any] | None:
    """`code`, `message`, `hint` and `at_ms`, if the edition has failed since its last batch."""
    return state.files.read(_path(state, edition))


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "failure.json"
