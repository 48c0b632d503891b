"""Readers of an output follow swaps and rollbacks: the output of each input record is read once, in order.

The model has a writing pipeline with one input, and a reader of its output. Editions run by the legs that their routes
give, on real files of state; the topics are lists. Every edition writes for an input record that record's number, so a
reader that has all numbers once and in order has followed without a fault.
"""

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import InvalidDefinition, NotFound, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.following import Reader, bound, readers_of
from cordwood.pipelines.editions.live_edition import locked_live_edition
from cordwood.pipelines.editions.positions import Positions, to_json
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.swapping import rollback, swap
from cordwood.pipelines.execution.legs import Leg, Route
from cordwood.pipelines.execution.replaying import edition_for
from cordwood.pipelines.execution.requeueing import check_requeue_is_possible

WRITER = """
from cordwood.pipelines import pipeline, topic

@pipeline("enrich", version={version}, inputs=topic("orders"), outputs=topic("enriched", key="id"))
def enrich(orders):
    return orders
"""
READER = """
from cordwood.pipelines import output, pipeline, topic

@pipeline("report", version={version}, inputs={inputs}, outputs=topic("reports", key="id"))
def report(enriched):
    return enriched
"""
FOLLOWING = 'output("enrich", "enriched")'
BY_NAME = 'topic("enriched")'


class World:
    """Topics as lists of numbers, and the two pipelines."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.project = Project(directory / "project")
        self.topics: dict[str, list[int]] = {"orders": []}
        self.read: list[int] = []
        """What the reader's live edition has read."""

    @property
    def writer(self) -> PipelineState:
        return self.project.state("enrich")

    @property
    def reader(self) -> PipelineState:
        return self.project.state("report")

    def produce(self, count: int = 3) -> None:
        orders = self.topics["orders"]
        orders += range(len(orders), len(orders) + count)

    def definition(self, name: str, text: str) -> Pipeline:
        path = self.directory / f"{name}.py"
        path.write_text(text)
        return load_pipeline(path)

    def write(self, batches: int = 99, size: int = 2, version: int | None = None) -> None:
        """Runs the writer's live edition for some batches."""
        state = self.writer
        live = state.live()
        text = WRITER.format(version=version or (1 if live is None else state.edition(live.edition).version))
        edition, lock = locked_live_edition(
            self.project, state, self.definition("enrich", text), in_place=False, now_ms=1
        )
        lock.release()
        self.run(state, edition.name, self.definition("enrich", text), batches, size)

    def replay(self, version: int, batches: int = 99) -> None:
        made = self.definition("enrich", WRITER.format(version=version))
        edition = edition_for(self.project, self.writer, made, starting="earliest", fresh=False, now_ms=1)
        self.run(self.writer, edition.name, made, batches, 2)
        self.writer.note_caught_up(self.writer.edition(edition.name), 1)

    def read_on(self, batches: int = 99, size: int = 2, inputs: str = FOLLOWING) -> None:
        made = self.definition("report", READER.format(version=1, inputs=inputs))
        edition, lock = locked_live_edition(self.project, self.reader, made, in_place=False, now_ms=1)
        lock.release()
        self.read += self.run(self.reader, edition.name, made, batches, size)

    def run(self, state: PipelineState, name: str, made: Pipeline, batches: int, size: int) -> list[int]:
        """Runs an edition for at most so many batches, and returns the numbers that it read and wrote."""
        edition = state.edition(name)
        out = next(iter(edition.topics.values()))
        self.topics.setdefault(out, [])
        route = Route(self.project, state, made, Bootstrap(""), edition, ends=self.ends)
        done: list[int] = []
        for _ in range(batches):
            leg = route.next_leg()
            state.note_inputs(state.edition(name), {each.name: each.name for each in leg.pipeline.inputs.values()})
            route.edition = state.edition(name)
            numbers = self.batch(state, name, leg, size)
            if numbers is None:
                break
            self.topics[out] += numbers
            done += numbers
        route.next_leg()
        return done

    def batch(self, state: PipelineState, name: str, leg: Leg, size: int) -> list[int] | None:
        """One batch as the source plans it; None if there is nothing to do."""
        (source,) = (each.name for each in leg.pipeline.inputs.values())
        position = committed_position(state.checkpoint(name))
        start = position.get(source, {}).get(0, 0)
        stop = leg.stop_at.get(source, {}).get(0)
        if leg.step is not None and start >= leg.step.leaves_at[0]:
            self.commit(state, name, leg.continue_at)
            return []
        end = min(start + size, len(self.topics.get(source, [])) if stop is None else stop)
        assert stop is None or stop <= len(self.topics[source])
        if end <= start:
            return None
        self.commit(state, name, {source: {0: end}})
        return self.topics[source][start:end]

    def commit(self, state: PipelineState, name: str, end: Positions) -> None:
        checkpoint = state.checkpoint(name)
        for kind in ("offsets", "commits"):
            (checkpoint / kind).mkdir(parents=True, exist_ok=True)
        number = len(list((checkpoint / "commits").iterdir()))
        (checkpoint / f"offsets/{number}").write_text(f"v1\n{{}}\n{json.dumps(to_json(end))}")
        (checkpoint / f"commits/{number}").write_text("v1\n{}")

    def ends(self, topics: Iterable[str]) -> Positions:
        return {topic: {0: len(self.topics[topic])} for topic in topics if topic in self.topics}

    def swap(self) -> None:
        swap(self.writer, None, force=False, skip_effects=False, timeout_s=1)

    def rollback(self) -> None:
        rollback(self.writer, timeout_s=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_reader_goes_over_to_the_new_topic_where_the_old_one_ends(world: World) -> None:
    world.produce(10)
    world.write()
    world.read_on(batches=2)
    world.replay(2, batches=3)
    world.swap()
    world.produce(4)
    world.write()
    world.read_on()
    assert world.read == list(range(14))
    assert world.topics["enriched"] == list(range(10))
    assert world.topics["enriched.v2"] == list(range(14))


def test_a_reader_follows_a_rollback_without_the_records_that_the_old_edition_writes_again(world: World) -> None:
    world.produce(6)
    world.write()
    world.replay(2)
    world.read_on()
    world.swap()
    world.produce(5)
    world.write()
    world.read_on()
    world.rollback()
    world.produce(2)
    world.read_on()
    world.write()
    world.read_on()
    assert world.read == list(range(13))
    assert committed_position(world.reader.checkpoint("v1")).keys() == {"enriched"}


def test_a_swap_that_is_taken_back_before_anything_ran_changes_nothing_for_readers(world: World) -> None:
    world.produce(6)
    world.write()
    world.read_on(batches=1)
    world.replay(2, batches=1)
    world.swap()
    world.rollback()
    live = world.writer.live()
    assert live is not None
    assert live.switches == ()
    world.produce(3)
    world.write()
    world.read_on()
    assert world.read == list(range(9))


def test_a_swap_beyond_the_live_edition_is_refused_if_there_are_readers(world: World) -> None:
    world.produce(6)
    world.write()
    world.read_on()
    world.produce(2)
    world.replay(2)
    with pytest.raises(
        WrongState, match=r"never reach the pipelines that read it \(report\): orders/0: 6 to 8"
    ) as error:
        world.swap()
    assert "`cordwood pipeline run enrich --once` takes v1 there first" in error.value.hint
    world.write()
    world.swap()
    world.produce(1)
    world.write()
    world.read_on()
    assert world.read == list(range(9))


def test_without_readers_a_swap_notes_nothing(world: World) -> None:
    world.produce(2)
    world.write()
    world.produce(2)
    world.replay(2)
    world.swap()
    live = world.writer.live()
    assert live is not None
    assert (live.edition, live.switches) == ("v2", ())


def test_an_edition_whose_readers_wait_for_its_successor_may_not_write(world: World) -> None:
    world.produce(6)
    world.write()
    world.read_on()
    world.replay(2)
    world.swap()
    world.produce(2)
    world.write()
    world.rollback()
    with pytest.raises(WrongState, match="v2 must write nothing until then"):
        world.replay(2)


def test_a_reader_that_names_the_topic_is_told_that_nothing_comes_any_more(world: World) -> None:
    world.produce(6)
    world.write()
    world.read_on(batches=1, inputs=BY_NAME)
    world.replay(2)
    assert readers_of(world.project, world.writer) == [Reader("report", "v1", "enriched", "enriched", follows=False)]
    world.swap()
    world.produce(3)
    world.write()
    with pytest.raises(
        WrongState, match=r"has written nothing since its edition v2 is live: that one writes enriched\.v2"
    ):
        world.read_on(inputs=BY_NAME)
    world.read_on(inputs=FOLLOWING)
    assert world.read == list(range(9)), "the reader goes on where it was, though it follows only now"


def test_an_output_must_exist(world: World) -> None:
    made = world.definition("report", READER.format(version=1, inputs=FOLLOWING))
    with pytest.raises(NotFound, match="report reads enriched of enrich, and enrich has not run"):
        bound(world.project, made)
    world.write()
    assert [each.name for each in bound(world.project, made).inputs.values()] == ["enriched"]
    other = world.definition("report", READER.format(version=1, inputs='output("enrich", "priced")'))
    with pytest.raises(NotFound, match="report reads priced of enrich, whose edition v1 writes enriched"):
        bound(world.project, other)


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ('output("report", "others")', 'topic("reports")', "it would read its own output others"),
        ('topic("a")', 'output("enrich", "enriched")', "output\\(\\) is for inputs"),
        ('output("not a name", "x")', 'topic("reports")', "'not a name' cannot be a pipeline's name"),
    ],
)
def test_what_an_output_cannot_be(world: World, inputs: str, outputs: str, said: str) -> None:
    text = READER.format(version=1, inputs=inputs).replace('topic("reports", key="id")', outputs)
    with pytest.raises(InvalidDefinition, match=said):
        world.definition("report", text)


def test_a_reader_of_an_edition_that_no_swap_leads_away_from_is_told_so(world: World) -> None:
    world.produce(4)
    world.write()
    world.read_on()
    world.replay(2, batches=1)
    world.swap()
    made = world.definition("report", READER.format(version=2, inputs=FOLLOWING))
    fresh = edition_for(world.project, world.reader, made, starting="earliest", fresh=False, now_ms=1)
    world.run(world.reader, fresh.name, made, 1, 1)
    world.rollback()
    with pytest.raises(
        WrongState, match=r"report reads enriched\.v2, which edition v2 of enrich wrote, and there is no way"
    ):
        world.run(world.reader, fresh.name, made, 1, 1)


def test_a_first_batch_that_goes_over_leaves_the_topic_for_good(world: World) -> None:
    """Spark keeps the beginning of a query with its first batch, so the checkpoint names the topic that was left."""
    world.write()
    world.read_on()
    world.replay(2)
    world.swap()
    world.produce(3)
    world.write()
    checkpoint = world.reader.checkpoint("v1")
    for kind in ("offsets", "commits"):
        (checkpoint / kind).mkdir(parents=True)
        (checkpoint / kind / "0").write_text('v1\n{}\n{"enriched": {"00": 0}, "enriched.v2": {"0": 0}}')
    assert committed_position(checkpoint) == {"enriched.v2": {0: 0}}
    world.read_on()
    assert world.read == [0, 1, 2]


def test_a_reader_of_an_output_that_a_new_version_does_not_write_is_told_so(world: World) -> None:
    world.produce(4)
    world.write()
    world.read_on()
    made = world.definition("enrich", WRITER.format(version=2).replace('topic("enriched"', 'topic("priced"'))
    fresh = edition_for(world.project, world.writer, made, starting="earliest", fresh=False, now_ms=1)
    world.writer.note_caught_up(fresh, 1)
    world.swap()
    world.run(world.writer, fresh.name, made, 9, 9)
    with pytest.raises(WrongState, match="reads enriched of enrich, whose live edition v2 does not write it any more"):
        world.read_on()


def test_records_in_quarantine_wait_until_readers_can_get_what_becomes_of_them(world: World) -> None:
    world.produce(4)
    world.write()
    world.read_on()
    world.replay(2, batches=1)
    world.swap()
    edition = world.writer.note_query(world.writer.edition("v2"), "an id")
    made = world.definition("enrich", WRITER.format(version=2))
    with pytest.raises(WrongState, match="would reach none of them"):
        check_requeue_is_possible(made, world.writer, edition)
    world.write()
    check_requeue_is_possible(made, world.writer, edition)


def test_an_edition_gets_no_name_that_readers_know_as_another_one(world: World) -> None:
    world.produce(4)
    world.write()
    world.read_on()
    world.replay(2)
    world.swap()
    world.write()
    world.rollback()
    world.write()
    world.writer.forget("v2")
    world.replay(2)
    assert list(world.writer.editions()) == ["v1", "v2.2"]


def test_a_topic_is_known_as_abandoned_after_its_edition_is_forgotten(world: World) -> None:
    world.produce(4)
    world.write()
    world.read_on(inputs=BY_NAME)
    world.replay(2)
    world.swap()
    world.write()
    world.writer.forget("v1")
    with pytest.raises(WrongState, match=r"has written nothing since its edition v2 is live"):
        world.read_on(inputs=BY_NAME)


def test_a_switch_that_is_settled_stays_so_though_another_edition_is_forgotten_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(4)
    world.write()
    world.read_on()
    for version in (2, 3):
        world.replay(version)
        world.swap()
        world.write()
    world.replay(4)
    world.swap()
    settling = threading.Thread(target=world.write, daemon=True)
    replace = StateFiles.replace

    def forgetting(files: StateFiles, path: Path, value: dict[str, object]) -> None:
        if path.name == "live.json" and threading.current_thread() is threading.main_thread():
            settling.start()
            settling.join(1)
        replace(files, path, value)

    monkeypatch.setattr(StateFiles, "replace", forgetting)
    world.writer.forget("v1")
    settling.join()
    live = world.writer.live()
    assert live is not None
    assert live.switches[-1].is_settled
    assert "v1" not in live.before


ACTIONS = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 4)),
    st.tuples(st.just("write"), st.integers(0, 4)),
    st.tuples(st.just("read"), st.integers(0, 4)),
    st.tuples(st.just("replay"), st.integers(0, 4)),
    st.tuples(st.just("swap"), st.just(0)),
    st.tuples(st.just("rollback"), st.just(0)),
)


@pytest.mark.stories
@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=25))
@example([("replay", 4), ("swap", 0), ("produce", 3), ("write", 4), ("rollback", 0), ("produce", 2), ("write", 1)])
def test_whatever_is_swapped_when_each_record_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    world.produce(3)
    world.write()
    world.read_on(batches=1)
    version = 1
    for action, number in actions:
        try:
            match action:
                case "produce":
                    world.produce(number)
                case "write":
                    world.write(batches=number)
                case "read":
                    world.read_on(batches=number)
                case "replay":
                    fresh = world.writer.fresh_edition()
                    version = version + 1 if fresh is None else fresh.version
                    world.replay(version, batches=number)
                case "swap":
                    world.swap()
                case "rollback":
                    world.rollback()
        except WrongState:
            continue
        assert world.read == list(range(len(world.read)))
    world.write()
    world.read_on()
    assert world.read == list(range(len(world.topics["orders"])))
