"""The known facts about a pipeline, as the commands show them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from cordwood.model.timestamps import time_in_words
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import last_failure
from cordwood.pipelines.editions.swapping import running
from cordwood.pipelines.execution.running import progress_path


class EditionView(NamedTuple):
    edition: Edition
    role: str
    """live, fresh (beside it), before (a rollback leads there)."""
    pid: int | None
    """None if the supervisor is gone, and its worker ends after the batch under way."""
    is_running: bool
    progress: dict[str, Any]
    failure: Mapping[str, Any] | None
    """The failure since its last batch."""

    @property
    def state(self) -> str:
        """running, ending, failed or stopped, for people."""
        if self.is_running:
            state = "ending" if self.pid is None else f"running (process {self.pid})"
            if self.failure is not None:
                state += ", fails"
        else:
            state = "stopped" if self.failure is None else "failed"
        caught_up = self.role == "fresh" and self.edition.caught_up_at_ms is not None
        return f"{state}, caught up" if caught_up else state

    def as_json(self) -> dict[str, Any]:
        return {
            "edition": self.edition.name,
            "version": self.edition.version,
            "role": self.role,
            "running": self.is_running,
            "pid": self.pid,
            "starting": self.edition.starting,
            "made_at_ms": self.edition.made_at_ms,
            "caught_up_at_ms": self.edition.caught_up_at_ms,
            "topics": dict(self.edition.topics),
            "tables": {name: facts.format.value for name, facts in self.edition.tables.items()},
            "rows_in": self.progress.get("rows_in", 0),
            "quarantined": self.progress.get("quarantined", 0),
            "last_batch": self.progress.get("last_batch"),
            "failure": None if self.failure is None else dict(self.failure),
        }

    def cells(self) -> list[object]:
        last = self.progress.get("last_batch") or {}
        return [
            self.edition.name,
            self.edition.version,
            self.role,
            self.state,
            self.progress.get("rows_in", 0),
            self.progress.get("quarantined", 0),
            last.get("batch"),
            time_in_words(last.get("at_ms")),
            last.get("lag"),
        ]


COLUMNS = ["edition", "version", "role", "state", "rows in", "in quarantine", "last batch", "at", "lag then"]


def editions_of(state: PipelineState) -> list[EditionView]:
    live = state.live()
    held = running(state)
    found = []
    for name, edition in state.editions().items():
        role = "fresh"
        if live is not None and name == live.edition:
            role = "live"
        elif live is not None and name in live.before:
            role = "before"
        progress = state.files.read(progress_path(state, name)) or {}
        by = held.get(name)
        pid = None if by is None else by.pid
        found.append(EditionView(edition, role, pid, by is not None, progress, last_failure(state, name)))
    return found
