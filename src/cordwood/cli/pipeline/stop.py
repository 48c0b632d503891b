"""`cordwood pipeline stop`."""

from typing import Annotated

import typer

from cordwood.cli.pipeline.options import DEFAULT_STOP_TIMEOUT_S, Directory, PipelineName, StopTimeout, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import Failure

EditionName = Annotated[
    str | None, typer.Option("--edition", "-e", metavar="EDITION", help="Only this edition.", show_default=False)
]


def stop_pipeline(
    name: PipelineName,
    edition: EditionName = None,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Stop a pipeline's live edition and replays after the batch under way."""
    with refusals():
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.swapping import running, stop

        state = Project(directory).known(name)
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
