"""The legs of a run: one query after another on the same checkpoint, each with inputs of its own.

Most runs have one leg, without an end. Another pipeline's swap gives its readers a leg that reads the old topic to its
end and goes over to the new one. A swap of the pipeline itself gives the new live edition a leg that ends where the old
one stopped: there the topics of both editions stand at offsets that belong together, which are noted for readers
(`switches.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.following import NextLeg, bound, has_taken, next_leg, noting_places
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.switches import Step, Switch, pending
from cordwood.pipelines.execution.reading_here import log_ends


@dataclass(frozen=True)
class Leg:
    """One query of a run. Without `switch` and `step` it has no end of its own."""

    pipeline: Pipeline
    """The pipeline with the topics that this query reads."""
    switch: Switch | None = None
    """The switch of the pipeline itself that is settled when this leg has read so far."""
    step: Step | None = None
    """The step from topic to topic that this leg takes."""

    @property
    def is_last(self) -> bool:
        return self.switch is None and self.step is None

    @property
    def stop_at(self) -> Positions:
        if self.switch is not None:
            return self.switch.at
        return {} if self.step is None else {self.step.leaves: self.step.leaves_at}

    @property
    def continue_at(self) -> Positions:
        return {} if self.step is None else {self.step.enters: self.step.enters_at}


@dataclass
class Route:
    """The way of one edition through its inputs."""

    project: Project
    state: PipelineState
    pipeline: Pipeline
    bootstrap_servers: str
    edition: Edition
    ends: Callable[[Iterable[str]], Positions] | None = None
    """The ends of topics, of committed records and others; None asks the brokers."""
    _seen: tuple[object, ...] = field(default=(), init=False)

    def next_leg(self) -> Leg:
        """The leg that comes next, by the position that the edition has reached. No query of it may run. Takes the
        steps and settles the switch that this position has reached."""
        self.edition = noting_places(self.project, self.state, self.pipeline, self.edition)
        while True:
            position = committed_position(self.state.checkpoint(self.edition.name))
            now = bound(self.project, self.pipeline, self.edition)
            switch = self._own_switch()
            if switch is not None and switch.at.keys() <= {topic.name for topic in now.inputs.values()}:
                if not switch.is_reached(position):
                    return Leg(now, switch=switch)
                self._settle(switch)
            leg = self._next_step()
            if leg is None:
                return Leg(now)
            if not has_taken(leg.step, position):
                return Leg(now, step=leg.step)
            self.edition = self.state.note_followed(self.edition, leg.after)

    def is_over(self, leg: Leg) -> bool:
        """True if a running leg is to end: it has come to its end, or something new leads elsewhere."""
        if leg.is_last:
            return self._has_news() and self._next_step() is not None
        position = committed_position(self.state.checkpoint(self.edition.name))
        return (leg.switch is not None and leg.switch.is_reached(position)) or (
            leg.step is not None and has_taken(leg.step, position)
        )

    def _next_step(self) -> NextLeg | None:
        return next_leg(self.project, self.state, self.pipeline, self.edition)

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
        ends = self.ends(topics) if self.ends else log_ends(self.bootstrap_servers, topics, committed=False)
        self.state.settle(
            {
                declared: Step(left, ends.get(left, {}), entered, ends.get(entered, {}))
                for declared, (left, entered) in changed.items()
            }
        )


def _changed(state: PipelineState) -> int | None:
    try:
        return (state.directory / "live.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None
