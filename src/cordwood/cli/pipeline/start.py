"""`cordwood pipeline start` and `cordwood pipeline reload`: pipelines that a serving process runs."""

from cordwood.cli.pipeline.options import DEFAULT_STOP_TIMEOUT_S, Directory, PipelineName, StopTimeout, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import Failure


def start_pipeline(
    name: PipelineName,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Start a stopped or failed pipeline of `cordwood pipeline serve` again, while the others run.

    Its file is taken as it is now. Returns when the query has started.
    """
    _ask("start", name, timeout_s, directory, dry_run=dry_run, as_json=as_json)


def reload_pipeline(
    name: PipelineName,
    dry_run: DryRun = False,
    timeout_s: StopTimeout = DEFAULT_STOP_TIMEOUT_S,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Have `cordwood pipeline serve` take a pipeline's changed file, while the others run.

    The pipeline ends after the batch under way, and goes on with the file as it is now. Returns when the query has
    started.
    """
    _ask("reload", name, timeout_s, directory, dry_run=dry_run, as_json=as_json)


def _ask(command: str, name: str, timeout_s: float, directory: str | None, *, dry_run: bool, as_json: bool) -> None:
    with refusals():
        from cordwood.pipelines.editions.control import Command, Serving
        from cordwood.pipelines.editions.project import Project

        serving = Serving(Project(directory).directory)
        serving.check(name)
        before = serving.pipelines()[name]
        if command == "start" and before["stage"] in ("starting", "running"):
            raise Failure("ALREADY_RUNNING", f"{name} runs", f"`cordwood pipeline reload {name}` takes a changed file")
        if dry_run:
            if as_json:
                print_json({"pipeline": name, f"would_{command}": before["file"]})
            else:
                say(f"{name}: would begin with {before['file']} as it is now")
                remark(DRY_RUN)
            return
        found = serving.ask_and_await(Command(command), name, timeout_s)
    failure = found.get("failure")
    if failure is not None:
        raise Failure(failure["code"], failure["message"], failure["hint"])
    if as_json:
        print_json({"pipeline": name, "stage": found.get("stage"), "edition": found.get("edition")})
    else:
        say(f"{name} {found.get('edition') or ''}: {found.get('stage', 'ended')}")
