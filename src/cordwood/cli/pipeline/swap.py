"""`cordwood pipeline swap` and `cordwood pipeline rollback`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.pipeline.options import DEFAULT_STOP_TIMEOUT_S, Directory, PipelineName, StopTimeout, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cordwood.pipelines.editions.swapping import Swapped


def swap_pipeline(
    name: PipelineName,
    edition: Annotated[
        str | None,
        typer.Option(
            "--edition",
            "-e",
            metavar="EDITION",
            help="This one; the newest beside the live one if not given.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it has not caught up.")] = False,
    skip_effects: Annotated[
        bool,
        typer.Option(
            "--skip-effects", help="Even if records that only it has read never reach outputs that are not replayable."
        ),
    ] = False,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Make the replayed edition the live one, in one step; `cordwood pipeline rollback` undoes it.

    Runs of the two editions are stopped first. `cordwood pipeline serve` goes on with the new live edition; where no
    process serves the pipeline, `cordwood pipeline run NAME` does. Tables' names lead to the new tables from then on. A
    topic cannot be replaced under its readers: the new edition writes a new topic, which the command names. An edition
    that `replay --downstream` has built becomes live with all of its set.
    """
    with refusals():
        from cordwood.pipelines.editions.control import Serving
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.set_swapping import swap_together, would_swap_together

        project = Project(directory)
        state = project.known(name)
        served = Serving(project.directory).pipelines()
        if dry_run:
            done = would_swap_together(project, state, edition, force=force, skip_effects=skip_effects)
        else:
            done = swap_together(project, state, edition, force=force, skip_effects=skip_effects, timeout_s=timeout_s)
    which = "which has all of them since the replay's beginning"
    _show(state.name, done, lambda each: which, served, dry_run=dry_run, as_json=as_json)


def rollback_pipeline(
    name: PipelineName,
    skip_effects: Annotated[
        bool,
        typer.Option("--skip-effects", help="Even if a batch was interrupted and some of its effects may be missing."),
    ] = False,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Undo the last swap: the former live edition is live again, and goes on from where it stopped.

    Runs of the two editions are stopped first. `cordwood pipeline serve` goes on with the edition that is live again;
    where no process serves the pipeline, `cordwood pipeline run NAME` does. Editions that became live together are
    rolled back together.
    """
    with refusals():
        from cordwood.pipelines.editions.control import Serving
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.set_swapping import roll_back_together, would_roll_back_together

        project = Project(directory)
        state = project.known(name)
        served = Serving(project.directory).pipelines()
        if dry_run:
            done = would_roll_back_together(project, state, skip_effects=skip_effects)
        else:
            done = roll_back_together(project, state, skip_effects=skip_effects, timeout_s=timeout_s)
    _show(
        state.name,
        done,
        lambda each: f"from where edition {each.now.name} stopped on",
        served,
        dry_run=dry_run,
        as_json=as_json,
    )


def _show(
    name: str,
    done: "Sequence[Swapped]",
    which_records: "Callable[[Swapped], str]",
    served: "Mapping[str, Mapping[str, Any]]",
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """`served`: the pipelines that a serving process had before."""
    if as_json:
        of_name = next(each for each in done if each.pipeline == name)
        together = [_as_json(each, served.get(each.pipeline)) for each in done] if len(done) > 1 else None
        print_json({**_as_json(of_name, served.get(name)), "set": together, **as_dry(dry_run)})
        return
    if len(done) > 1:
        verb = "would become live" if dry_run else "became live"
        editions = ", ".join(f"{each.pipeline} {each.now.name}" for each in done)
        say(f"A set of {len(done)} {verb} at one moment: {editions}")
    for each in done:
        if dry_run:
            _show_plan(each.pipeline, each, which_records(each))
        else:
            _show_done(each.pipeline, each, which_records(each), served.get(each.pipeline))
    if dry_run:
        if any(each.stopped for each in done):
            which = "both" if len(done) == 1 else "all"
            remark(f"How far each edition has come is judged when {which} have stopped: the command may refuse then.")
        remark(DRY_RUN)


def _as_json(done: "Swapped", served: "Mapping[str, Any] | None") -> dict[str, Any]:
    from cordwood.pipelines.editions.control import is_kept_running

    return {
        "pipeline": done.pipeline,
        "before": done.before.name,
        "live": done.now.name,
        "version": done.now.version,
        "records_behind": done.behind,
        "tables": {table: str(path) for table, path in done.tables.items()},
        "topics": {topic: {"before": before, "now": now} for topic, (before, now) in done.topics.items()},
        "stopped": dict(done.stopped),
        "readers": [reader._asdict() for reader in done.readers],
        "running": is_kept_running(served),
    }


def _show_done(name: str, done: "Swapped", which_records: str, served: "Mapping[str, Any] | None") -> None:
    from cordwood.pipelines.editions.control import is_kept_running

    for edition, pid in done.stopped.items():
        say(f"{name}: edition {edition} ran and was stopped" + ("" if pid is None else f" (process {pid})"))
    say(f"{name}: edition {done.now.name} (version {done.now.version}) is live, {done.before.name} was before")
    for table, path in done.tables.items():
        say(f"table {table}: whoever asks for it by name from now on gets {path}")
    for before, now in done.topics.values():
        say(f"topic {before}: nothing more is written to it, and what is in it stays.")
        say(f"  New records go to {now}, {which_records}. Readers of {before}")
        say(f"  have to be pointed to {now}; their position in the one means nothing in the other.")
    _show_readers(done)
    if done.behind:
        say(f"It has {count_in_words(done.behind, 'record')} to read that {done.before.name} has read already.")
    goes_on = f"goes on from where edition {done.now.name} stopped"
    if is_kept_running(served):
        say(f"`cordwood pipeline serve` {goes_on}.")
    else:
        say(f"Nothing runs now: `cordwood pipeline {'run' if served is None else 'start'} {name}` {goes_on}.")


def _show_plan(name: str, planned: "Swapped", which_records: str) -> None:
    for edition, pid in planned.stopped.items():
        say(f"{name}: edition {edition} runs and would be stopped" + ("" if pid is None else f" (process {pid})"))
    now, before = planned.now, planned.before.name
    say(f"{name}: edition {now.name} (version {now.version}) would be live instead of {before}")
    for table, path in planned.tables.items():
        say(f"table {table}: whoever asks for it by name would get {path}")
    for old, new in planned.topics.values():
        say(f"topic {old}: nothing more would be written to it, and what is in it stays.")
        say(f"  New records would go to {new}, {which_records}.")
    _show_readers(planned)
    if planned.behind:
        behind = count_in_words(planned.behind, "record")
        say(f"It would have {behind} to read that {before} has read already.")


def _show_readers(done: "Swapped") -> None:
    """Names the pipelines of the project that read what changes."""
    for reader in done.readers:
        who = f"pipeline {reader.pipeline} ({reader.edition})"
        if reader.output not in done.now.topics:
            say(f"{who} reads {reader.output}, which edition {done.now.name} does not write: it gets nothing more.")
        elif reader.follows:
            say(f"{who} reads {reader.output} as this pipeline's output, and goes over by itself.")
        else:
            say(f"{who} names the topic, and gets nothing more: output(…, {reader.output!r}) as its input follows.")
