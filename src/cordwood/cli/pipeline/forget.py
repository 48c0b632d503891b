"""`cordwood pipeline forget`: removes an edition and its tables."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.options import Directory, PipelineName, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say

if TYPE_CHECKING:
    from cordwood.pipelines.editions.edition_sets import EditionSet
    from cordwood.pipelines.editions.following import Reader
    from cordwood.pipelines.editions.project import Project


def forget_edition(
    name: PipelineName,
    edition: Annotated[str, typer.Argument(metavar="EDITION", help="One that is not live.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Remove an edition that is not live, with its tables and its checkpoint. Its topics are left alone.

    An edition of a set that `replay --downstream` has begun goes with all of its set.
    """
    with refusals():
        from cordwood.pipelines.editions.following import readers_of
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.run_lock import RunLock
        from cordwood.pipelines.editions.swapping import lock_path

        project = Project(directory)
        state = project.known(name)
        name = state.name
        together = project.sets.beside(name, edition)
        if together is not None:
            _forget_set(project, together, dry_run=dry_run, yes=yes, as_json=as_json)
            return
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


def _forget_set(project: "Project", together: "EditionSet", *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from cordwood.pipelines.editions.set_swapping import forget_together

    topics = [
        topic
        for member in together.members
        for declared, topic in _topics_of(project, member.pipeline, member.edition).items()
        if topic != declared
    ]
    members = {member.pipeline: member.edition for member in together.members}
    if dry_run:
        if as_json:
            print_json({"would_forget_set": members, "topics": topics})
        else:
            say(f"the set {together} would be gone, with its checkpoints and tables")
            remark(DRY_RUN)
        return
    confirm("removing a set of editions", f"Remove the set {together}, with its tables?", yes=yes)
    forget_together(project, together)
    if as_json:
        print_json({"forgotten_set": members, "topics": topics})
        return
    say(f"the set {together} is gone")
    for topic in topics:
        say(f"topic {topic} is still there: `cordwood topic delete {topic}` removes it")


def _topics_of(project: "Project", pipeline: str, edition: str) -> Mapping[str, str]:
    there = project.state(pipeline).editions().get(edition)
    return {} if there is None else there.topics


def _names(readers: "Sequence[Reader]") -> list[str]:
    return sorted({reader.pipeline for reader in readers})


def _show_readers(readers: "Sequence[Reader]") -> None:
    """Names the pipelines that read a topic which the edition wrote."""
    for reader in readers:
        say(f"topic {reader.topic} is read by the pipeline {reader.pipeline} ({reader.edition})")
