"""The progress of an edition, for `status`: `progress.json` in its directory has sums over all batches, and the last
batch."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import SET_ASIDE
from cordwood.pipelines.rows.rules import added


def note_progress(state: PipelineState, edition: Edition, event: Mapping[str, Any]) -> None:
    """Writes the progress for `status`. A crash may lose it; the next batch writes it again."""
    path = progress_path(state, edition.name)
    before = state.files.read(path) or {}
    totals = {name: before.get(name, 0) + (event[name] or 0) for name in ("rows_in", "quarantined", "too_late")}
    rules = added(before.get("rules", {}), event["rules"])
    set_aside = dict(Counter(before.get(SET_ASIDE, {})) + Counter(event[SET_ASIDE]))
    state.files.replace(path, {**totals, SET_ASIDE: set_aside, "rules": rules, "last_batch": dict(event)})


def progress_path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "progress.json"
