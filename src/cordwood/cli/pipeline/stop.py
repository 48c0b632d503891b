"""`cordwood pipeline stop`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.options import DEFAULT_STOP_TIMEOUT_S, Directory, PipelineName, StopTimeout, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import Failure

if TYPE_CHECKING:
    from cordwood.pipelines.editions.control import Serving

EditionName = Annotated[
    str | None, typer.Option("--edition", "-e", metavar="EDITION", help="Only this edition.", show_default=False)
]


def _stop_served(serving: "Serving", name: str, timeout_s: float, *, dry_run: bool, as_json: bool) -> None:
    """Stops a pipeline that shares a Spark with others, also one that waits for its next try."""
    before = serving.pipelines()[name]
    if dry_run:
        if as_json:
            print_json({"pipeline": name, "would_stop": [before["edition"]]})
        else:
            say(f"{name}: would be stopped, and the others that are served go on")
            remark(DRY_RUN)
        return
    if before["stage"] == "stopped":
        raise Failure("NOT_RUNNING", f"{name} is stopped already", f"`cordwood pipeline start {name}` starts it")
    serving.stop(name, timeout_s)
    if as_json:
        print_json({"pipeline": name, "stopped": {before["edition"]: None}})
    else:
        say(f"{name}: stopped until `cordwood pipeline start {name}`; the others that are served go on")


def stop_pipeline(
    name: PipelineName,
    edition: EditionName = None,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Stop a pipeline's live edition and replays after the batch under way.

    A pipeline that `cordwood pipeline serve` runs is stopped alone, until `cordwood pipeline start`.
    """
    with refusals():
        from cordwood.pipelines.editions.control import Serving
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.swapping import running, stop

        project = Project(directory)
        serving = Serving(project.directory)
        if name in serving.pipelines() and edition is None:
            _stop_served(serving, name, timeout_s, dry_run=dry_run, as_json=as_json)
            return
        state = project.known(name)
        name = state.name
        editions = [state.edition(edition).name] if edition is not None else sorted(running(state))
        if dry_run:
            would = [each for each in editions if each in running(state)]
            if as_json:
                print_json({"pipeline": name, "would_stop": would})
            else:
                say(f"{name}: {', '.join(would) or 'nothing'} would be stopped")
                remark(DRY_RUN)
            return
        stopped = {each: found.pid for each in editions if (found := stop(state, each, timeout_s)) is not None}
    if not stopped:
        raise Failure("NOT_RUNNING", f"nothing of {name} is running")
    if as_json:
        print_json({"pipeline": name, "stopped": stopped})
        return
    for each, pid in stopped.items():
        say(f"{name} {each}: stopped" + ("" if pid is None else f" (process {pid})"))
