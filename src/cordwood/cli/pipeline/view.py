"""The known facts about a pipeline, as the commands show them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cordwood.client.bootstrap import Bootstrap
from cordwood.model.quantities import count_in_words
from cordwood.model.timestamps import time_in_words
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.control import Serving
from cordwood.pipelines.editions.edition_sets import EditionSet, Stage
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import last_failure
from cordwood.pipelines.editions.following import abandoned_topics
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.swapping import running
from cordwood.pipelines.execution.progress import progress_path, search_under_way


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
    lag: int | None
    """Committed records that it has not read, now; None if it has not run or no broker answers."""
    abandoned: Sequence[str]
    """Its inputs that nothing writes any more, in words."""
    served: Mapping[str, Any] | None
    """Stage and restarts, if `cordwood pipeline serve` has it."""
    together: EditionSet | None = None
    """The set with which it becomes live, or became so."""
    search: str | None = None
    """The search for poison records that is under way, in words."""

    @property
    def state(self) -> str:
        """running, ending, failed or stopped, for people."""
        if self.served is not None and self.role == "live":
            return served_in_words(self.served) + self._search_in_words()
        if self.is_running:
            state = "ending" if self.pid is None else f"running (process {self.pid})"
            state += self._search_in_words()
            if self.failure is not None:
                state += ", fails"
        else:
            state = "stopped" if self.failure is None else "failed"
        caught_up = self.role == "fresh" and self.edition.caught_up_at_ms is not None
        return f"{state}, caught up" if caught_up else state

    def _search_in_words(self) -> str:
        return "" if self.search is None else f", {self.search}"

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
            "too_late": self.progress.get("too_late", 0),
            "rules": self.progress.get("rules", {}),
            "lag": self.lag,
            "abandoned_inputs": list(self.abandoned),
            "last_batch": self.progress.get("last_batch"),
            "failure": None if self.failure is None else dict(self.failure),
            "search": self.search,
            "set": self._set_as_json(),
            "served": None if self.served is None else {name: self.served[name] for name in ("stage", "restarts")},
        }

    def _set_as_json(self) -> dict[str, Any] | None:
        if self.together is None:
            return None
        members = {member.pipeline: member.edition for member in self.together.members}
        return {"stage": self.together.stage.value, "members": members}

    def set_in_words(self) -> str | None:
        """What a swap or a rollback of it takes along."""
        if self.together is None:
            return None
        if self.role == "fresh":
            return f"{self.edition.name} is one of a set, which a swap of any of them makes live: {self.together}"
        if self.role == "live" and self.together.stage is Stage.LIVE:
            return f"{self.edition.name} became live with a set: {self.together}"
        return None

    def late_in_words(self) -> str | None:
        """The rows that its stateful function has left out as too late."""
        count = self.progress.get("too_late", 0)
        last = (self.progress.get("last_batch") or {}).get("too_late", 0)
        if not count:
            return None
        return (
            f"{self.edition.name} has left out {count_in_words(count, 'row')} as too late, {last:,} in the last batch"
        )

    def rules(self) -> list[list[object]]:
        """The rules that rows have broken: how many rows in all, and in the last batch."""
        last = (self.progress.get("last_batch") or {}).get("rules", {})
        return [
            [self.edition.name, rule, outcome, count, last.get(rule, {}).get(outcome, 0)]
            for rule, counts in sorted(self.progress.get("rules", {}).items())
            for outcome, count in counts.items()
        ]

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
            self.lag if self.lag is not None or last.get("lag") is None else f"{last['lag']:,} then",
        ]


def served_in_words(served: Mapping[str, Any]) -> str:
    """`running in serve, 2 restarts`."""
    words = f"{served['stage']} in serve"
    return f"{words}, {count_in_words(served['restarts'], 'restart')}" if served["restarts"] else words


RULE_COLUMNS = ["edition", "rule", "outcome", "in all", "in the last batch"]
COLUMNS = ["edition", "version", "role", "state", "rows in", "in quarantine", "last batch", "at", "lag"]


def editions_of(state: PipelineState, lag: Callable[[Edition], int | None] = lambda edition: None) -> list[EditionView]:
    project = Project(state.directory.parent, state.files)
    live = state.live()
    held = running(state)
    serving = Serving(state.directory.parent, state.files).pipelines().get(state.name)
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
        followed = {each.topic for each in edition.followed}
        read = committed_position(state.checkpoint(name)).keys() - followed
        abandoned = [str(each) for each in abandoned_topics(project, read, reader=state.name)]
        failure = last_failure(state, name)
        served = serving if role == "live" else None
        together = project.sets.of(state.name, name)
        found.append(
            EditionView(
                edition,
                role,
                pid,
                by is not None,
                progress,
                failure,
                lag(edition),
                abandoned,
                served,
                together,
                None if by is None else search_under_way(state, name),
            )
        )
    return found


class LagNow:
    """Asks the brokers for the lag of editions, until one does not answer."""

    def __init__(self, project: Project, state: PipelineState, bootstrap: Bootstrap) -> None:
        self._project = project
        self._state = state
        self._bootstrap = bootstrap
        self.silence: str | None = None
        """The reason why no lag is known."""
        self.by_topic: dict[str, Mapping[str, int]] = {}
        """The lag of editions that were asked for, by the topic in which each is now."""

    def __call__(self, edition: Edition) -> int | None:
        from cordwood.client.errors import ClientError
        from cordwood.pipelines.execution.unread import unread_by_topic

        if self.silence is not None:
            return None
        try:
            found = unread_by_topic(self._project, self._state, edition, self._bootstrap)
        except ClientError as failure:
            self.silence = str(failure).rstrip(".")
            return None
        if found is None:
            return None
        self.by_topic[edition.name] = found
        return sum(found.values())
