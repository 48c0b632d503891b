"""The progress of an edition, for `status`: `progress.json` in its directory has sums over all batches, and the last
batch. While a batch is searched for poison records, `search.json` says how far that is."""

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import SET_ASIDE, Tell
from cordwood.pipelines.rows.rules import added

_NEWS_S: Final = 3.0


def note_progress(state: PipelineState, edition: Edition, event: Mapping[str, Any]) -> None:
    """Writes the progress for `status`. A crash may lose it; the next batch writes it again."""
    path = progress_path(state, edition.name)
    before = state.files.read(path) or {}
    totals = {name: before.get(name, 0) + (event[name] or 0) for name in ("rows_in", "quarantined", "too_late")}
    rules = added(before.get("rules", {}), event["rules"])
    set_aside = dict(Counter(before.get(SET_ASIDE, {})) + Counter(event[SET_ASIDE]))
    state.files.replace(path, {**totals, SET_ASIDE: set_aside, "rules": rules, "last_batch": dict(event)})


class SearchNews:
    """Tells and notes, now and then, how far the search for poison records is."""

    def __init__(self, state: PipelineState, edition: str, who: Mapping[str, Any], tell: Tell) -> None:
        self._files = state.files
        self._path = _search_path(state, edition)
        self._who = who
        self._tell = tell
        self._told_s = float("-inf")
        if self._path.exists():  # the last run was killed in a search
            self._files.remove_file(self._path)

    def __call__(self, batch_id: int, search: str | None) -> None:
        """`search` is the search in words, None at its end."""
        if search is None:
            self._tell({**self._who, "event": "doing", "text": f"batch {batch_id} is made again"})
            self._told_s = float("-inf")
            if self._path.exists():
                self._files.remove_file(self._path)
        elif time.monotonic() - self._told_s >= _NEWS_S:
            self._told_s = time.monotonic()
            text = f"batch {batch_id} failed: {search}"
            self._files.replace(self._path, {"text": text, "at_ms": int(time.time() * 1000)})
            self._tell({**self._who, "event": "doing", "text": text})


def search_under_way(state: PipelineState, edition: str) -> str | None:
    """The search of an edition that runs, in words."""
    noted = state.files.read(_search_path(state, edition))
    return None if noted is None else str(noted["text"])


def _search_path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "search.json"


def progress_path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "progress.json"
