"""The edition in which a run or a requeue of a definition goes on, its lock, and a changed definition on trial.

A trial becomes the edition's own definition with its first finished batch. Only a finished batch shows that a change
fits the live tables and the state. Until then the edition keeps its definition, so that a refused change leaves a
pipeline that runs.
"""

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState, shown_path
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import Event, Tell
from cordwood.pipelines.editions.leading_names import lead_names
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.run_lock import RunLock, check_nobody_holds


def locked_live_edition(
    project: Project,
    state: PipelineState,
    pipeline: Pipeline,
    *,
    in_place: bool,
    now_ms: int,
    is_unchecked: bool = False,
) -> tuple[Edition, RunLock]:
    """The edition in which a run of this definition goes on, and its lock. A first edition is live at once, unless
    `is_unchecked`: then `begin_checked` follows, or the edition is unmade. The lock is taken before anything of the
    edition changes: a process that runs the edition would go on with another definition after its next failure. A
    definition that differs from the kept one is a trial (`PipelineState.try_out`)."""

    def locked(name: str) -> RunLock:
        lock = RunLock(state.edition_directory(name) / "running")
        lock.take(f"edition {name} of {pipeline.name}", now_ms)
        return lock

    lead_names(project, state, pipeline)
    with state.changing():
        live = state.live()
        if live is None:
            project.check_outputs_are_free(pipeline)
            edition = state.first_edition(pipeline, starting=pipeline.settings.starting, now_ms=now_ms)
            lock = locked(edition.name)
            if not is_unchecked:
                state.begin_with(edition, now_ms=now_ms)
            return edition, lock
        _check_version(state.edition(live.edition), pipeline, in_place=in_place)
        lock = locked(live.edition)
        try:
            edition = state.edition(live.edition)
            if _is_trial(project, state, edition, pipeline):
                edition = state.try_out(edition, pipeline)
        except BaseException:
            lock.release()
            raise
        return edition, lock


def begin_checked(project: Project, state: PipelineState, pipeline: Pipeline, edition: Edition, now_ms: int) -> None:
    """Makes a first edition live whose rules are checked by now. The caller holds its lock."""
    with state.changing():
        if state.live() is None:
            project.check_outputs_are_free(pipeline)
            state.begin_with(edition, now_ms=now_ms)


def unmake_unchecked(state: PipelineState, edition: Edition) -> None:
    """Removes a first edition whose rules were not found good. The caller holds its lock."""
    with state.changing():
        if state.live() is None:
            state.unmake(edition.name)


def is_to_make_topics(state: PipelineState, edition: Edition) -> bool:
    """True for a changed definition that writes topics which its edition has not written so far: a refusal of it has to
    come before they are made."""
    return edition.is_trial and edition.topics.keys() > state.edition(edition.name).topics.keys()


def would_be_live_edition(project: Project, state: PipelineState, pipeline: Pipeline) -> Edition:
    """The edition that `locked_live_edition` would give, or its refusal. Changes and locks nothing."""
    edition = state.live_edition()
    _check_version(edition, pipeline, in_place=False)
    check_nobody_holds(state.edition_directory(edition.name) / "running", f"edition {edition.name} of {pipeline.name}")
    if _is_trial(project, state, edition, pipeline):
        return state.tried(edition, pipeline, pipeline.site.file)
    return edition


def _is_trial(project: Project, state: PipelineState, edition: Edition, pipeline: Pipeline) -> bool:
    """True if the definition differs from the one that the edition keeps. Raises WrongState if another pipeline has its
    tables."""
    if edition.version == pipeline.version and not state.is_changed(edition, pipeline.site.file):
        return False
    project.check_outputs_are_free(pipeline)
    return True


def _check_version(edition: Edition, pipeline: Pipeline, *, in_place: bool) -> None:
    if edition.version != pipeline.version and not in_place:
        file = shown_path(pipeline.site.file)
        raise WrongState(
            f"{file} has version {pipeline.version} of {pipeline.name}, and version {edition.version} is live",
            f"`cordwood pipeline replay {file}` builds version {pipeline.version} beside it for a swap; "
            f"--in-place lets it go on in the live tables; `cordwood pipeline run {pipeline.name}` runs what is live",
        )


def adopting(state: PipelineState, edition: Edition, tell: Tell) -> Tell:
    """Wraps `tell` so that a trial's first batch adopts its definition."""
    if not edition.is_trial:
        return tell
    before = state.edition(edition.name)
    # A worker that was restarted after the first batch runs a definition that is the edition's own by now.
    adopted = before.version == edition.version and not state.is_changed(before, state.definition(edition))

    def tell_and_adopt(event: Event) -> None:
        nonlocal adopted
        if event["event"] == "batch" and not adopted:
            state.adopt(edition)
            adopted = True
        if event["event"] == "ended" and not adopted:
            text = (
                f"No batch went through the changed file: edition {edition.name} keeps version {before.version} as it "
                "was until one does."
            )
            tell({**event, "event": "remark", "text": text})
        tell(event)

    return tell_and_adopt
