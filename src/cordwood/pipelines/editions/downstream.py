"""All that reads the outputs of a pipeline, directly or through others, and the set that a replay of all of it fills.

A fixed function often comes with changes in what reads its output. So the definition of every member is its author's
file as it is now, and a member is what reads by this file or in its live edition. Nothing is made before all of it was
checked. A set whose making was interrupted has all its names already: making it again makes what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cordwood.pipelines.definition.definition import Pipeline, Topic
from cordwood.pipelines.definition.errors import InvalidDefinition, NotFound, Refusal, WrongState, shown_path
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.project_files import check_project, load_project
from cordwood.pipelines.editions.edition_sets import EditionSet, Member, Stage
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.following import Reader, bound, place, readers_of
from cordwood.pipelines.editions.output_facts import effects_of
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.switches import Followed, pending


class Planned(NamedTuple):
    """A member of a set, before its fresh edition is made."""

    pipeline: Pipeline
    source_file: Path
    is_kept: bool = False
    """True if the definition is the one that the live edition keeps."""
    starting: str = "earliest"


def with_downstream(project: Project, root: Planned) -> list[Planned]:
    """The pipeline and all that read its outputs, each after what it reads. Raises Refusal for a project of which no
    set can be made."""
    project.known(root.pipeline.name).live_edition()
    known, broken = _definitions(project)
    known[root.pipeline.name] = root
    unrun = _never_run(root, known)
    members = _readers_from(project, root, {**known, **unrun})
    for name in members & broken.keys():
        raise broken[name]
    for name in sorted(members & unrun.keys()):
        file = shown_path(unrun[name].source_file)
        raise WrongState(
            f"{name} in {file} reads what {root.pipeline.name} feeds, and has not run yet: it has no outputs that "
            "fresh ones could replace",
            f"`cordwood pipeline run {file} --once` makes its first edition",
        )
    _check_definitions(project, {name: known[name].pipeline for name in known}, members)
    for name in sorted(members):
        _check_member(project, known[name], is_root=name == root.pipeline.name)
    return _in_order(root.pipeline.name, {name: known[name] for name in members})


def with_inputs_from_outside(project: Project, planned: Sequence[Planned]) -> Iterator[Pipeline]:
    """The members with those inputs alone that no member writes, by the names of their topics now."""
    members = {each.pipeline.name for each in planned}
    for each in planned:
        outside = {name: topic for name, topic in each.pipeline.inputs.items() if topic.writer not in members}
        yield bound(project, replace(each.pipeline, inputs=outside))


def begun_set(project: Project, root: str, planned: Sequence[Planned], *, fresh: bool, now_ms: int) -> EditionSet:
    """The set that a replay of these definitions fills: one that the same files began, else a new one."""
    with _nothing_changes(project, planned):
        members = {each.pipeline.name for each in planned}
        for each in planned:
            project.check_outputs_are_free(each.pipeline)
            _check_settled(project, each.pipeline)
            state = project.state(each.pipeline.name)
            live = state.live_edition()
            check_no_reader_outside(project, state, members, [name for name in live.topics if name not in live.effects])
        found = None if fresh else begun_beside(project, root, planned)
        if found is None:
            found = project.sets.add(root, [_member(project, each.pipeline) for each in planned])
        for each in planned:
            _make(project, found, each, now_ms)
        return found


def check_no_reader_outside(project: Project, state: PipelineState, members: set[str], topics: Sequence[str]) -> None:
    """Raises WrongState if an edition of a pipeline outside of the set has begun to read one of these topics, as they
    are declared: no switch leads it to those of the set."""
    for reader in readers_of(project, state):
        if reader.pipeline not in members and reader.output in topics:
            raise _outside(project, state, reader)


def _outside(project: Project, state: PipelineState, reader: Reader) -> WrongState:
    other = project.state(reader.pipeline)
    message = (
        f"edition {reader.edition} of {reader.pipeline} has begun to read {reader.topic} of {state.name}, and is not "
        "in the set: it would get nothing more"
    )
    live = other.live()
    if live is None or live.edition != reader.edition:
        return WrongState(message, f"`cordwood pipeline forget {reader.pipeline} {reader.edition}` removes it")
    if not reader.follows:
        file = shown_path(other.edition(reader.edition).source_file)
        return WrongState(message, f"inputs=output({state.name!r}, {reader.output!r}, …) in {file} makes it a member")
    return WrongState(message, f"`cordwood pipeline replay {state.name} --downstream` builds a set with it")


# What is a member


def _definitions(project: Project) -> tuple[dict[str, Planned], dict[str, Refusal]]:
    """The pipelines that have run, by their authors' files, and the errors of files that do not load. For these, and
    where there is no file any more, the kept definition is there."""
    known: dict[str, Planned] = {}
    broken: dict[str, Refusal] = {}
    for state in project.pipelines():
        if state.live() is None:
            continue
        edition = state.live_edition()
        file = Path(edition.source_file)
        try:
            known[state.name] = Planned(load_pipeline(file, state.name), file)
            continue
        except NotFound:
            pass
        except InvalidDefinition as error:
            broken[state.name] = error
        try:
            kept = load_pipeline(state.definition(edition), state.name, beside=file.parent)
            known[state.name] = Planned(kept, file, is_kept=True)
        except Refusal as error:
            broken.setdefault(state.name, error)
    return known, broken


def _never_run(root: Planned, known: Mapping[str, Planned]) -> dict[str, Planned]:
    """Pipelines that files beside those of the known ones declare, and that have not run."""
    found: dict[str, Planned] = {}
    for directory in sorted({each.source_file.parent for each in (root, *known.values())}):
        if directory.is_dir():
            declared = load_project(directory).pipelines
            found |= {name: Planned(each, Path(each.site.file)) for name, each in declared.items() if name not in known}
    return found


def _readers_from(project: Project, root: Planned, known: Mapping[str, Planned]) -> set[str]:
    """The names of the pipelines that a record may reach from the root through outputs that a replay writes."""
    members = {root.pipeline.name}
    ways = [root.pipeline.name]
    while ways:
        writer = known[ways.pop()].pipeline
        state = project.state(writer.name)
        replayable = {topic.name for topic in writer.topics.values() if topic.replayable}
        named = {topic: topic for topic in replayable} | {
            topic: declared
            for edition in state.editions().values()
            for declared, topic in edition.topics.items()
            if declared not in edition.effects
        }
        for name, each in known.items():
            if name == writer.name:
                continue
            by_name = next((t for t in each.pipeline.inputs.values() if t.writer is None and t.name in named), None)
            if by_name is not None:
                raise _named(writer, by_name, named[by_name.name], each.pipeline)
            if name not in members and _reads(project, each.pipeline, writer.name, replayable):
                members.add(name)
                ways.append(name)
    return members


def _reads(project: Project, pipeline: Pipeline, writer: str, outputs: set[str]) -> bool:
    """True if the pipeline reads one of the writer's outputs, by its definition or in its live edition."""
    if any(topic.writer == writer and topic.name in outputs for topic in pipeline.inputs.values()):
        return True
    state, other = project.state(pipeline.name), project.state(writer)
    if state.live() is None or other.live() is None:
        return False
    shared = other.live_edition().effects
    return any(each.pipeline == writer and each.output not in shared for each in state.live_edition().followed)


def _named(writer: Pipeline, topic: Topic, declared: str, reader: Pipeline) -> WrongState:
    return WrongState(
        f"{topic.site}: {reader.name} reads {topic.name} by the topic's name: it cannot go over to what {writer.name} "
        "writes when the set is live",
        f"inputs=output({writer.name!r}, {declared!r}, …) makes it a member",
    )


# Checks before anything is made


def _check_definitions(project: Project, pipelines: Mapping[str, Pipeline], members: set[str]) -> None:
    elsewhere = {state.name: list(state.live_edition().topics) for state in project.pipelines() if state.live()}
    for fault in check_project(pipelines.values(), elsewhere=elsewhere):
        if members.intersection(fault.pipelines):
            raise fault.error


def _check_member(project: Project, planned: Planned, *, is_root: bool) -> None:
    pipeline = planned.pipeline
    effects = {*effects_of(pipeline), *project.state(pipeline.name).live_edition().effects}
    if effects and not is_root:
        raise WrongState(
            f"{pipeline.name} writes {', '.join(sorted(effects))}, which is not replayable, and reads topics that a "
            "replay builds anew: no offset there says which records have had their effects",
            f"`cordwood pipeline replay` without --downstream and a swap: {pipeline.name} then goes over at the record "
            "where the old topic ends",
        )


def _check_settled(project: Project, pipeline: Pipeline) -> None:
    """Raises WrongState while readers of the pipeline, or of what it reads, are on their way from topic to topic."""
    writers = {topic.writer for topic in pipeline.inputs.values() if topic.writer is not None}
    for name in sorted({pipeline.name, *writers}):
        live = project.state(name).live()
        waiting = None if live is None else pending(live.switches)
        if waiting is not None:
            raise WrongState(
                f"readers of {name} are still to go over from edition {waiting.before} to {waiting.now}, which has "
                "not read as far yet",
                f"`cordwood pipeline run {name} --once` takes {waiting.now} there first",
            )


def _in_order(root: str, members: Mapping[str, Planned]) -> list[Planned]:
    """The members, each after those that it reads. There is no cycle."""
    left = {
        name: {topic.writer for topic in each.pipeline.inputs.values() if topic.writer in members}
        for name, each in members.items()
    }
    found: list[Planned] = []
    while left:
        name = min((name for name, writers in left.items() if not writers), key=lambda each: (each != root, each))
        del left[name]
        found.append(members[name])
        left = {other: writers - {name} for other, writers in left.items()}
    return found


# Making the set


@contextmanager
def _nothing_changes(project: Project, planned: Sequence[Planned]) -> Iterator[None]:
    """Locks all members, and the pipelines that they read. The locks are taken by name: two commands cannot wait for
    each other."""
    names = {each.pipeline.name for each in planned}
    writers = {topic.writer for each in planned for topic in each.pipeline.inputs.values() if topic.writer is not None}
    with ExitStack() as locks:
        for name in sorted(names | writers):
            locks.enter_context(project.state(name).changing())
        yield


def _member(project: Project, pipeline: Pipeline) -> Member:
    state = project.state(pipeline.name)
    live = state.live()
    assert live is not None
    return Member(pipeline.name, live.edition, state.free_name(pipeline.version), len(live.switches))


def begun_beside(project: Project, root: str, planned: Sequence[Planned]) -> EditionSet | None:
    """The newest set of this pipeline, if the same files began it and nothing else has changed since."""
    sets = [each for each in project.sets.all() if each.root == root and each.stage is Stage.BESIDE]
    if not sets or [each.pipeline for each in sets[-1].members] != [each.pipeline.name for each in planned]:
        return None
    pairs = zip(sets[-1].members, planned, strict=True)
    return sets[-1] if all(_goes_on(project, member, each) for member, each in pairs) else None


def _goes_on(project: Project, member: Member, planned: Planned) -> bool:
    state = project.state(member.pipeline)
    live = state.live()
    assert live is not None
    if (live.edition, len(live.switches)) != (member.replaces, member.switches):
        return False
    begun = state.editions().get(member.edition)
    if begun is None:
        return member.edition.split(".")[0] == f"v{planned.pipeline.version}"
    alike = (begun.version, begun.starting) == (planned.pipeline.version, planned.starting)
    return alike and not state.is_changed(begun, planned.pipeline.site.file)


def _make(project: Project, found: EditionSet, planned: Planned, now_ms: int) -> Edition:
    """Makes a member's fresh edition, if it is not there. It notes what it follows in the same moment: an edition that
    ran without would read what is live."""
    state = project.state(planned.pipeline.name)
    member = found.member(state.name)
    assert member is not None
    there = state.editions().get(member.edition)
    return there or state.make_edition(
        planned.pipeline,
        starting=planned.starting,
        now_ms=now_ms,
        replayed=True,
        source_file=str(planned.source_file),
        name=member.edition,
        followed=tuple(_places(project, found, planned.pipeline)),
    )


def _places(project: Project, found: EditionSet, pipeline: Pipeline) -> Iterator[Followed]:
    """Where a fresh edition begins: in the topics of the fresh editions before it, else in what is live."""
    for topic in pipeline.inputs.values():
        if topic.writer is None:
            continue
        writer = found.member(topic.writer)
        if writer is None:
            yield place(project, pipeline, topic, None)
        else:
            written = project.state(writer.pipeline).edition(writer.edition).topics[topic.name]
            yield Followed(writer.pipeline, topic.name, writer.edition, written, writer.switches)
