"""A model of a chain of three pipelines: editions run by the legs that their routes give, on real files of state.

`first` reads orders; `second` reads `first`; the inputs of `third` are those of the game. Topics are lists. A batch is
planned, its plan is kept, its outputs are written and it is committed, as by Spark and our sink: a killed batch is
repeated as it was planned, and outputs take it once. A kill may come before each of these, and before each operation
on the files of the state.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.checkpoint import committed_position, position_of, unfinished_batch
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.following import readers_of
from cordwood.pipelines.editions.live_edition import locked_live_edition
from cordwood.pipelines.editions.positions import Positions, to_json
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.swapping import rollback, swap
from cordwood.pipelines.editions.switches import pending
from cordwood.pipelines.execution.legs import Leg, Route
from cordwood.pipelines.execution.replaying import edition_for

INPUTS = {
    "first": '{"orders": topic("orders")}',
    "second": '{"one": output("first", "one")}',
    "third": '{"two": output("second", "two"), "one": output("first", "one")}',
}
WRITES = {"first": "one", "second": "two", "third": "three"}
FILE = """
from cordwood.pipelines import output, pipeline, topic

@pipeline("{name}", version={version}, inputs={inputs}, outputs=topic("{writes}"))
def run({parameters}):
    return {parameters}
"""


class Killed(BaseException):
    """The process is gone."""


class Game:
    def __init__(self, directory: Path, inputs: Mapping[str, str] = INPUTS) -> None:
        self.directory = directory
        self.inputs = inputs
        self.steps_to_live: int | None = None
        self.project = Project(directory / "project", StateFiles(lambda operation, path: self.step()))
        self.topics: dict[str, list[Any]] = {"orders": []}
        self.written: set[tuple[str, str, int]] = set()
        """The batches that outputs have."""
        self.seen: dict[str, list[Any]] = {"one": [], "two": []}
        """What the last pipeline has of each of its inputs."""
        self.versions = dict.fromkeys(INPUTS, 1)

    def step(self) -> None:
        if self.steps_to_live is not None:
            self.steps_to_live -= 1
            if self.steps_to_live < 0:
                raise Killed

    def produce(self, count: int) -> None:
        orders = self.topics["orders"]
        orders += range(len(orders), len(orders) + count)

    def state(self, name: str) -> PipelineState:
        return self.project.state(name)

    def definition(self, name: str, version: int) -> Pipeline:
        path = self.directory / f"{name}.py"
        inputs = self.inputs[name]
        parameters = ", ".join(json.loads(inputs.replace("topic(", "[").replace("output(", "[").replace(")", "]")))
        path.write_text(
            FILE.format(name=name, version=version, inputs=inputs, writes=WRITES[name], parameters=parameters)
        )
        return load_pipeline(path)

    def run(self, name: str, batches: int = 99) -> None:
        live = self.state(name).live()
        made = self.definition(name, 1 if live is None else self.state(name).edition(live.edition).version)
        edition, lock = locked_live_edition(self.project, self.state(name), made, in_place=False, now_ms=1)
        lock.release()
        self.go(name, edition.name, made, batches)

    def replay(self, name: str, batches: int) -> None:
        fresh = self.state(name).fresh_edition()
        if fresh is None:
            self.versions[name] += 1
        version = self.versions[name] if fresh is None else fresh.version
        made = self.definition(name, version)
        edition = edition_for(self.project, self.state(name), made, starting="earliest", fresh=False, now_ms=1)
        try:
            self.go(name, edition.name, made, batches)
        except WrongState:
            self.versions[name] += 1
            made = self.definition(name, self.versions[name])
            edition = edition_for(self.project, self.state(name), made, starting="earliest", fresh=True, now_ms=1)
            self.go(name, edition.name, made, batches)
        self.state(name).note_caught_up(self.state(name).edition(edition.name), 1)

    def go(self, name: str, edition: str, made: Pipeline, batches: int) -> None:
        state = self.state(name)
        out = state.edition(edition).topics[WRITES[name]]
        self.topics.setdefault(out, [])
        route = Route(self.project, state, made, Bootstrap(""), state.edition(edition), ends=self.ends)
        for _ in range(batches):
            leg = route.next_leg()
            route.edition = state.note_inputs(
                state.edition(edition), {each.name: each.name for each in leg.pipeline.inputs.values()}
            )
            if not self.batch(state, edition, leg, out):
                break
        route.next_leg()

    def batch(self, state: PipelineState, edition: str, leg: Leg, out: str) -> bool:
        """One batch as the source plans it; False if there is nothing to do."""
        checkpoint = state.checkpoint(edition)
        position = committed_position(checkpoint)
        read = {topic.name for topic in leg.pipeline.inputs.values()}
        assert position.keys() <= read, f"{state.name} has a position in a topic that it does not read any more"
        number = unfinished_batch(checkpoint)
        if number is None:
            end = self.planned_end(leg, position, read)
            if end == position:
                return False
            self.step()
            number = len(list((checkpoint / "commits").iterdir())) if position else 0
            self.note(checkpoint / "offsets" / str(number), f"v1\n{{}}\n{json.dumps(to_json(end))}")
        end = position_of(checkpoint, number)
        self.step()
        plan = {"format": 1, "query_id": "an id", "batch": number, "plan": f"v1\n{{}}\n{json.dumps(to_json(end))}"}
        self.note(state.edition_directory(edition) / "plan.json", json.dumps(plan))
        self.step()
        if (state.name, edition, number) not in self.written:
            self.written.add((state.name, edition, number))
            self.write(state, leg, out, position, end)
        self.step()
        self.note(checkpoint / "commits" / str(number), "v1\n{}")
        return True

    def planned_end(self, leg: Leg, position: Positions, read: set[str]) -> Positions:
        stop_at, continue_at = leg.stop_at, leg.continue_at
        reached = all(position.get(topic, {}).get(0, 0) >= at.get(0, 0) for topic, at in stop_at.items())
        if continue_at and reached:
            leaving = stop_at.keys() - continue_at.keys()
            assert not (continue_at.keys() - stop_at.keys()) & read
            staying = {topic: at for topic, at in position.items() if topic not in leaving}
            return {**staying, **{topic: at for topic, at in continue_at.items() if topic not in stop_at}}
        end = {}
        for topic in sorted(read):
            start = position.get(topic, {}).get(0, 0)
            there = stop_at[topic].get(0, 0) if topic in stop_at else len(self.topics.get(topic, []))
            assert there <= len(self.topics.get(topic, [])), "a switch is at records that are there"
            end[topic] = {0: max(start, min(start + 2, there))}
        return end if end != position and any(each[0] for each in end.values()) else position

    def write(self, state: PipelineState, leg: Leg, out: str, position: Positions, end: Positions) -> None:
        names = {topic.name: parameter for parameter, topic in leg.pipeline.inputs.items()}
        for topic in sorted(end):
            is_new = topic not in position
            if is_new and topic in leg.continue_at:
                continue
            numbers = self.topics[topic][position.get(topic, {}).get(0, 0) : end[topic][0]]
            if state.name == "third":
                self.seen[names[topic]] += numbers
            else:
                self.topics[out] += numbers

    def note(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for kind in ("commits", "offsets"):
            if path.parent.name in ("commits", "offsets"):
                (path.parent.parent / kind).mkdir(exist_ok=True)
        path.write_text(text)

    def ends(self, topics: Iterable[str]) -> Positions:
        return {topic: {0: len(self.topics[topic])} for topic in topics if topic in self.topics}

    def swap(self, name: str) -> None:
        for other in INPUTS:
            live = self.state(other).live()
            if other != name and live is not None and pending(live.switches) is not None:
                follows = any(reader.pipeline == name for reader in readers_of(self.project, self.state(other)))
                if follows:
                    # An edition that began with a topic that nobody reads yet would be left there by a rollback.
                    return
        swap(self.state(name), None, force=False, skip_effects=False, timeout_s=1)

    def play(self, action: str, name: str, number: int) -> None:
        match action:
            case "produce":
                self.produce(number)
            case "run":
                self.run(name, number)
            case "replay" if name != "third":
                self.replay(name, number)
            case "swap" if name != "third":
                self.swap(name)
            case "rollback" if name != "third":
                rollback(self.state(name), timeout_s=1)

    def check(self) -> None:
        for name, seen in self.seen.items():
            assert seen == list(range(len(seen))), f"records of {name} come once and in order"

    def finish(self) -> None:
        self.steps_to_live = None
        for _ in range(4):
            for name in INPUTS:
                self.run(name)
        self.check()
        assert {name: len(seen) for name, seen in self.seen.items()} == dict.fromkeys(
            self.seen, len(self.topics["orders"])
        )
