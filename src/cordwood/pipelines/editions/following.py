"""Inputs that are outputs of other pipelines: the topic that an edition reads for each, and the way to the next one.

`output("enrich", "enriched")` as an input is the topic of the live edition of `enrich`. An edition notes which topic it
began to read and how many switches it has taken; it takes the next one when that is settled, at exactly the offsets
that the switch names (`switches.py`).

A topic of another pipeline that is an input by its name cannot be followed. Once nothing writes it any more it is
refused: its reader would stand still, with a lag of nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from cordwood.pipelines.definition.definition import Pipeline, Topic
from cordwood.pipelines.definition.errors import NotFound, WrongState, shown_path
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.live import Live
from cordwood.pipelines.editions.positions import Positions, ahead, furthest
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.switches import Followed, Step, pending


class NextLeg(NamedTuple):
    """The next step that a reader has to take."""

    followed: Followed
    step: Step
    after: Followed
    """The place of the reader when the step is taken."""


def bound(project: Project, pipeline: Pipeline, edition: Edition | None = None) -> Pipeline:
    """The pipeline with the topics that its inputs are now. Inputs that the edition has not begun to read, or all
    without an edition, are the topics of live editions. Raises NotFound and WrongState."""
    _check_written(project, pipeline)

    def now(topic: Topic) -> Topic:
        if topic.writer is None:
            return topic
        there = place(project, pipeline, topic, edition)
        written = {
            each.topics.get(topic.name, there.topic) for each in project.state(there.pipeline).editions().values()
        }
        return replace(topic, name=there.topic, left=tuple(sorted(written - {there.topic})))

    return replace(pipeline, inputs={parameter: now(topic) for parameter, topic in pipeline.inputs.items()})


def place(project: Project, pipeline: Pipeline, topic: Topic, edition: Edition | None) -> Followed:
    """The noted place of an edition in the output `topic`, else the place where it begins to read it."""
    noted = _noted(edition, topic)
    return _beginning(project, pipeline, topic, edition) if noted is None else noted


def noting_places(project: Project, state: PipelineState, pipeline: Pipeline, edition: Edition) -> Edition:
    """The edition, which notes where it begins to read outputs of other pipelines. Nobody swaps these meanwhile: a
    swap looks for readers, and a reader for what is live."""
    for topic in pipeline.inputs.values():
        if topic.writer is not None and _noted(edition, topic) is None:
            with project.state(topic.writer).changing():
                edition = state.note_followed(edition, place(project, pipeline, topic, edition))
    return edition


def ways_on(project: Project, pipeline: Pipeline, edition: Edition) -> list[list[NextLeg]]:
    """The settled steps that the edition has before it, in order, for each input that has any. Raises WrongState where
    an input leads nowhere any more."""
    _check_written(project, pipeline)
    noted = (_noted(edition, topic) for topic in pipeline.inputs.values())
    ways = [_way_on(project, pipeline, edition, each) for each in noted if each is not None]
    return [way for way in ways if way]


def with_left(project: Project, edition: Edition, position: Positions) -> Positions:
    """The position, with the ends of the topics that the edition has left. Two editions compare by these also where one
    is a topic behind the other: each topic on the way was read to the offset where readers leave it."""
    for each in edition.followed:
        live = project.state(each.pipeline).live()
        for switch in () if live is None else live.switches[: each.switches]:
            step = (switch.steps or {}).get(each.output)
            if step is not None:
                position = furthest(position, {step.leaves: step.leaves_at})
    return position


def has_taken(step: Step, position: Positions) -> bool:
    """True if a reader at this position is beyond the step."""
    return step.enters in position and step.leaves not in position


class Reader(NamedTuple):
    """An edition that reads an output of another pipeline."""

    pipeline: str
    edition: str
    output: str
    topic: str
    follows: bool
    """False if its definition names the topic, and not the output."""


def readers_of(project: Project, state: PipelineState) -> list[Reader]:
    """The editions of other pipelines that have begun to read topics of this one, which may differ between its
    editions. Editions that were live before count, too: a rollback makes them read on. Members of a set that is not
    live do not: they read what the set writes."""
    written = {
        topic: declared
        for edition in state.editions().values()
        for declared, topic in edition.topics.items()
        if declared not in edition.effects
    }
    found = []
    for other in project.pipelines():
        if other.name == state.name:
            continue
        for name, edition in other.editions().items():
            here = [each for each in edition.followed if each.pipeline == state.name]
            beside = {each.output for each in here if project.sets.reads_beside(other.name, name, each)}
            followed = {each.output: each.topic for each in here if each.output not in beside}
            found += [Reader(other.name, name, output, topic, True) for output, topic in sorted(followed.items())]
            found += [
                Reader(other.name, name, written[topic], topic, False)
                for topic in sorted(edition.input_ids)
                if topic in written and written[topic] not in {*followed, *beside}
            ]
    return found


def _noted(edition: Edition | None, topic: Topic) -> Followed | None:
    if edition is None:
        return None
    return next((each for each in edition.followed if (each.pipeline, each.output) == (topic.writer, topic.name)), None)


def _live_writer(project: Project, pipeline: Pipeline, topic: Topic) -> tuple[PipelineState, Live, Edition]:
    """The pipeline that writes an input, and its live edition, which writes this output."""
    assert topic.writer is not None
    state = project.state(topic.writer)
    live = state.live()
    reads = f"{pipeline.name} reads {topic.name} of {topic.writer}"
    if live is None:
        there = ", ".join(project.pipeline_names()) or "no pipeline"
        raise NotFound(
            f"{reads}, and {topic.writer} has not run in {project.directory}, where there is {there}",
            f"`cordwood pipeline run` of {topic.writer} makes its topics",
        )
    edition = state.edition(live.edition)
    if topic.name not in edition.topics:
        has = ", ".join(edition.topics) or "no topic"
        raise NotFound(f"{reads}, whose edition {edition.name} writes {has}", "name the topic as it is declared there")
    return state, live, edition


def _beginning(project: Project, pipeline: Pipeline, topic: Topic, edition: Edition | None) -> Followed:
    """The place where an edition begins to follow. An edition that has read a topic of an earlier edition by its name
    goes on there."""
    state, live, writer = _live_writer(project, pipeline, topic)
    read = {} if edition is None else edition.input_ids
    if edition is not None and writer.topics[topic.name] not in read:
        own = project.state(pipeline.name)
        position = committed_position(own.checkpoint(edition.name))
        for number, switch in enumerate(live.switches):
            step = (switch.steps or {}).get(topic.name)
            if (
                step is not None
                and step.leaves in read
                and not ahead({step.leaves: position.get(step.leaves, {})}, {step.leaves: step.leaves_at})
            ):
                return Followed(state.name, topic.name, switch.before, step.leaves, number)
    return Followed(state.name, topic.name, writer.name, writer.topics[topic.name], len(live.switches))


def _way_on(project: Project, pipeline: Pipeline, edition: Edition, noted: Followed) -> list[NextLeg]:
    """The settled steps from a noted place on. Switches that do not change the topic are no steps; a member of a set
    that is not live stays in the topic of its own set."""
    if project.sets.reads_beside(pipeline.name, edition.name, noted):
        return []
    way = _steps_from(project, noted)
    if way is None:
        raise WrongState(
            f"{pipeline.name} reads {noted.topic}, which edition {noted.edition} of {noted.pipeline} wrote, and there "
            "is no way from there to the topic of the live edition",
            f"`cordwood pipeline replay {pipeline.name} --fresh` builds its outputs from what is live",
        )
    state = project.state(noted.pipeline)
    live = state.live()
    if live is not None and pending(live.switches) is None and noted.output not in state.edition(live.edition).topics:
        raise WrongState(
            f"{pipeline.name} reads {noted.output} of {noted.pipeline}, whose live edition {live.edition} does not "
            "write it any more",
            f"`cordwood pipeline rollback {noted.pipeline}` brings it back, or {pipeline.name} reads another topic",
        )
    return way


def _steps_from(project: Project, noted: Followed) -> list[NextLeg] | None:
    """The settled steps from a noted place on; None if they do not lead to what is live."""
    state = project.state(noted.pipeline)
    live = state.live()
    switches = () if live is None else live.switches
    if live is None or noted.switches > len(switches):
        return None
    way: list[NextLeg] = []
    here = noted
    for switch in switches[noted.switches :]:
        if switch.steps is None:
            left = state.edition(switch.before).topics.get(noted.output, here.topic)
            return way if left == here.topic else None
        step = switch.steps.get(noted.output)
        after = replace(here, edition=switch.now, switches=here.switches + 1)
        if step is not None:
            if step.leaves != here.topic:
                return None
            after = replace(after, topic=step.enters)
            way.append(NextLeg(here, step, after))
        here = after
    now = state.edition(live.edition).topics.get(noted.output, here.topic)
    return way if now == here.topic else None


def stranded(project: Project, state: PipelineState, edition: Edition) -> Followed | None:
    """The place from which no switch leads the edition to what is live; None if it can go on everywhere."""
    return next(
        (
            each
            for each in edition.followed
            if not project.sets.reads_beside(state.name, edition.name, each) and _steps_from(project, each) is None
        ),
        None,
    )


class Abandoned(NamedTuple):
    """A topic that an edition wrote while it was live, and to which nothing is written any more."""

    topic: str
    pipeline: str
    output: str
    live: str
    """The live edition, which writes another topic."""
    now: str

    def __str__(self) -> str:
        return (
            f"the topic {self.topic}, to which {self.pipeline} has written nothing since its edition {self.live} is "
            f"live: that one writes {self.now}"
        )


def abandoned_topics(project: Project, topics: Collection[str], *, reader: str) -> list[Abandoned]:
    """Those of these topics that other pipelines than `reader` have abandoned."""
    found = []
    for state in project.pipelines():
        live = state.live()
        if live is None or state.name == reader:
            continue
        current = state.edition(live.edition)
        for declared, topic in sorted(_written_before(state, live)):
            now = current.topics.get(declared)
            if topic in topics and now is not None and now != topic:
                found.append(Abandoned(topic, state.name, declared, current.name, now))
    return found


def _written_before(state: PipelineState, live: Live) -> set[tuple[str, str]]:
    """The declared topics and the topics of editions that were live. Of an edition that was forgotten, switches know
    the topics that had readers."""
    have_been_live = {*live.before, *(switch.before for switch in live.switches)}
    editions = (edition for name, edition in state.editions().items() if name in have_been_live)
    left = {(name, step.leaves) for switch in live.switches for name, step in (switch.steps or {}).items()}
    return left.union(*(edition.topics.items() for edition in editions))


def _check_written(project: Project, pipeline: Pipeline) -> None:
    """Refuses inputs that are named as topics, and are outputs of other pipelines that nothing writes any more."""
    named = {topic.name: topic for topic in pipeline.inputs.values() if topic.writer is None}
    for each in abandoned_topics(project, named, reader=pipeline.name):
        raise WrongState(
            f"{pipeline.name} reads {each}",
            f"inputs=output({each.pipeline!r}, {each.output!r}, …) in {shown_path(named[each.topic].site.file)} goes "
            "over to it where the other ended, and follows every swap",
        )
