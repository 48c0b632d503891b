"""`cordwood pipeline forget`: removes an edition and its tables."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.options import Directory, PipelineName, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say

if TYPE_CHECKING:
    from cordwood.pipelines.editions.following import Reader


def forget_edition(
    name: PipelineName,
    edition: Annotated[str, typer.Argument(metavar="EDITION", help="One that is not live.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Remove an edition that is not live, with its tables and its checkpoint. Its topics are left alone."""
    with refusals():
        from cordwood.pipelines.editions.following import readers_of
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.run_lock import RunLock
        from cordwood.pipelines.editions.swapping import lock_path

        project = Project(directory)
        state = project.known(name)
        name = state.name
        tables = sorted(state.edition(edition).tables)
        written = set(state.edition(edition).topics.values())
        readers = [reader for reader in readers_of(project, state) if reader.topic in written]
        if dry_run:
            if as_json:
                print_json({"pipeline": name, "would_forget": edition, "tables": tables, "readers": _names(readers)})
            else:
                named = f"the tables {', '.join(tables)}" if tables else "no tables"
                say(f"{name}: edition {edition} would be gone, with its checkpoint and {named}")
                _show_readers(readers)
                remark(DRY_RUN)
            return
        confirm("removing an edition", f"Remove edition {edition} of {name}, with its tables?", yes=yes)
        topics = [topic for declared, topic in state.edition(edition).topics.items() if topic != declared]
        lock = RunLock(lock_path(state, edition))
        with state.changing():
            lock.take(f"edition {edition} of {name}", int(time.time() * 1000))
            try:
                state.forget(edition)
            finally:
                lock.release()
    if as_json:
        print_json({"pipeline": name, "forgotten": edition, "topics": topics, "readers": _names(readers)})
        return
    say(f"{name}: edition {edition} is gone")
    _show_readers(readers)
    for topic in topics:
        waiting = _names([reader for reader in readers if reader.topic == topic])
        if waiting:
            say(f"topic {topic} is still there, and has to be until {', '.join(waiting)} went over to the next one")
        else:
            say(f"topic {topic} is still there: `cordwood topic delete {topic}` removes it")


def _names(readers: "Sequence[Reader]") -> list[str]:
    return sorted({reader.pipeline for reader in readers})


def _show_readers(readers: "Sequence[Reader]") -> None:
    """Names the pipelines that read a topic which the edition wrote."""
    for reader in readers:
        say(f"topic {reader.topic} is read by the pipeline {reader.pipeline} ({reader.edition})")
