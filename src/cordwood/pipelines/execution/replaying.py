"""Runs a fresh edition over history until it has caught up with the log, beside the live one.

A pass reads all that the log has when it begins. The log grows meanwhile, so pass follows pass until the rest fits into
one batch: then the edition has caught up. The replay ends there, or goes on following the log.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import Tell
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.running import Ending

_MAX_PASSES: Final = 1_000


class Pass(Protocol):
    def wait(self) -> Ending: ...


def edition_for(
    project: Project,
    state: PipelineState,
    made: Pipeline,
    *,
    starting: str,
    fresh: bool,
    now_ms: int,
    source_file: str | None = None,
) -> Edition:
    """The edition that a replay of this definition fills: one that the same file began, else a new one."""
    begun = begun_edition(project, state, made, starting=starting, fresh=fresh)
    return begun or state.make_edition(made, starting=starting, now_ms=now_ms, replayed=True, source_file=source_file)


def begun_edition(
    project: Project, state: PipelineState, made: Pipeline, *, starting: str, fresh: bool
) -> Edition | None:
    """The edition that the same file began, if a replay goes on with one. Raises WrongState for a definition that
    cannot be replayed.

    An edition that two files have filled would mix rows of both, with nothing to tell them apart.
    """
    if state.live() is None:
        raise WrongState(f"{made.name} has not run yet", "`cordwood pipeline run` makes its first edition")
    project.check_outputs_are_free(made)
    begun = state.fresh_edition()
    alike = begun is not None and (begun.version, begun.starting) == (made.version, starting)
    if begun is not None and alike and not fresh and not state.is_changed(begun, made.site.file):
        return begun
    return None


def replay(
    begin: Callable[[bool], Pass],
    state: PipelineState,
    edition: Edition,
    *,
    follow: bool,
    behind: Callable[[], int],
    batch_rows: int,
    tell: Tell,
) -> None:
    """Replays an edition. `begin(True)` starts a pass over the present log, `begin(False)` one without an end."""
    for _ in range(_MAX_PASSES):
        if begin(True).wait() is not Ending.DONE:
            return
        left = behind()
        if left <= batch_rows:
            break
    state.note_caught_up(state.edition(edition.name), int(time.time() * 1000))
    tell(
        {
            "event": "caught-up",
            "pipeline": state.name,
            "edition": edition.name,
            "version": edition.version,
            "lag": left,
        }
    )
    if follow:
        begin(False).wait()
