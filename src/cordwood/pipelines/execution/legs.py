"""The legs of a run: one query after another on the same checkpoint, each with inputs of its own.

Most runs have one leg, without an end. Another pipeline's swap gives its readers a leg that reads the old topic to its
end and goes over to the new one. A swap of the pipeline itself gives the new live edition a leg that ends where the old
one stopped: there the topics of both editions stand at offsets that belong together, which are noted for readers
(`switches.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.checkpoint import committed_position, planned_position
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.following import NextLeg, bound, has_taken, noting_places, ways_on
from cordwood.pipelines.editions.positions import Positions, ahead
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.switches import Step, Switch, pending
from cordwood.pipelines.execution.reading_here import log_ends


@dataclass(frozen=True)
class Leg:
    """One query of a run. Without `switch` and `step` it has no end of its own."""

    pipeline: Pipeline
    """The pipeline with the topics that this query reads."""
    switch: Switch | None = None
    """The switch of the pipeline itself that is still to be settled."""
    step: Step | None = None
    """The step from topic to topic that this leg takes."""

    @property
    def is_last(self) -> bool:
        return self.switch is None and self.step is None

    @property
    def _held(self) -> Positions:
        """The ends of this leg in topics that it reads and does not leave."""
        at = {} if self.switch is None else self.switch.at
        left = None if self.step is None else self.step.leaves
        topics = (topic.name for topic in self.pipeline.inputs.values())
        return {topic: at[topic] for topic in topics if topic in at and topic != left}

    @property
    def stop_at(self) -> Positions:
        return self._held if self.step is None else {**self._held, self.step.leaves: self.step.leaves_at}

    @property
    def continue_at(self) -> Positions:
        return {} if self.step is None else {**self._held, self.step.enters: self.step.enters_at}

    def is_done(self, position: Positions) -> bool:
        """True if an edition at this position is at the end of the leg."""
        if self.step is not None:
            return has_taken(self.step, position)
        return self.switch is not None and not ahead(self.stop_at, position)


@dataclass
class Route:
    """The way of one edition through its inputs."""

    project: Project
    state: PipelineState
    pipeline: Pipeline
    bootstrap: Bootstrap
    edition: Edition
    ends: Callable[[Iterable[str]], Positions] | None = None
    """The ends of topics, of committed records and others; None asks the brokers."""
    _seen: tuple[object, ...] = field(default=(), init=False)

    def next_leg(self) -> Leg:
        """The leg that comes next, by the position that the edition has reached. No query of it may run. Notes the
        steps and settles the switch that this position has reached."""
        self.edition = noting_places(self.project, self.state, self.pipeline, self.edition)
        checkpoint = self.state.checkpoint(self.edition.name)
        position, planned = committed_position(checkpoint), planned_position(checkpoint)
        while True:
            ways = ways_on(self.project, self.pipeline, self.edition)
            taken = next((way[0] for way in ways if has_taken(way[0].step, position)), None)
            if taken is not None:
                # A step that is taken counts before all else: until then the edition has topics that it has left.
                self.edition = self.state.note_followed(self.edition, taken.after)
                continue
            switch = self._own_switch()
            leg = Leg(bound(self.project, self.pipeline, self.edition), switch, _first_step(ways, planned, switch))
            if switch is None or not leg.is_done(position):
                return leg
            self._settle(switch)

    def is_over(self, leg: Leg) -> bool:
        """True if a running leg is to end: it has come to its end, or something new leads elsewhere."""
        if leg.is_last:
            return self._has_news() and bool(ways_on(self.project, self.pipeline, self.edition))
        return leg.is_done(committed_position(self.state.checkpoint(self.edition.name)))

    def _has_news(self) -> bool:
        """True if a pipeline of the project has been swapped, or a switch was settled, since the last look."""
        seen = tuple((state.name, _changed(state)) for state in self.project.pipelines())
        before, self._seen = self._seen, seen
        return seen != before

    def _own_switch(self) -> Switch | None:
        live = self.state.live()
        waiting = None if live is None else pending(live.switches)
        if waiting is None or self.edition.name not in (waiting.before, waiting.now):
            return None
        if self.edition.name == waiting.before:
            raise WrongState(
                f"readers of {self.state.name} are to go over from edition {waiting.before} to {waiting.now}, "
                f"which has not read as far yet: {waiting.before} must write nothing until then",
                f"`cordwood pipeline run {self.state.name} --once` takes {waiting.now} there",
            )
        return waiting

    def _settle(self, switch: Switch) -> None:
        before, now = self.state.edition(switch.before), self.state.edition(switch.now)
        changed = {
            declared: (topic, now.topics[declared])
            for declared, topic in before.topics.items()
            if now.topics.get(declared, topic) != topic
        }
        topics = {each for pair in changed.values() for each in pair}
        # An open transaction of a killed task would hide the committed records behind it.
        ends = self.ends(topics) if self.ends else log_ends(self.bootstrap, topics, committed=False)
        self.state.settle(
            {
                declared: Step(left, ends.get(left, {}), entered, ends.get(entered, {}))
                for declared, (left, entered) in changed.items()
            }
        )


def _first_step(ways: list[list[NextLeg]], planned: Positions, switch: Switch | None) -> Step | None:
    """The step of the next leg. A step whose batch was planned is repeated first. Before a switch of the pipeline
    itself only those steps are taken that the leaving edition has taken."""
    wanted = [way for way in ways if switch is None or any(switch.is_beyond(each.step) for each in way)]
    begun = [way for way in ways if has_taken(way[0].step, planned)]
    return next((way[0].step for way in (*begun, *wanted)), None)


def _changed(state: PipelineState) -> tuple[int, int] | None:
    try:
        found = (state.directory / "live.json").stat()
        return found.st_mtime_ns, found.st_ino
    except FileNotFoundError:
        return None
