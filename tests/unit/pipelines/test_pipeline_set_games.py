"""Games with sets: a chain is replayed with all that reads it, swapped and rolled back as one, and killed at any step.

A record in a topic is the number of its order, and the topics that it came through: they tell which versions made it.
Every edition of `third` must have each record once and in order, whatever happens. If nothing but sets was swapped, all
that the live edition of `third` has was made by the live editions before it.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.pipelines.chain_game import INPUTS, WRITES, Game, Killed

from cordwood.pipelines.definition.errors import Refusal, WrongState
from cordwood.pipelines.editions import downstream
from cordwood.pipelines.editions.downstream import Planned, begun_set, with_downstream
from cordwood.pipelines.editions.edition_sets import EditionSet, EditionSets, Stage
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.editions.set_swapping import forget_together, roll_back_together, swap_together
from cordwood.pipelines.editions.switches import Followed
from cordwood.pipelines.execution.legs import Leg

ROW = {**INPUTS, "third": '{"two": output("second", "two")}'}
SHAPES = {"a row": ROW, "a diamond": INPUTS}
EACH_SHAPE = ["a row", pytest.param("a diamond", marks=pytest.mark.crash)]
"""Each step is one of many that write: a diamond's take too long for `make test`."""


class SetGame(Game):
    def __init__(self, directory: Path, inputs: dict[str, str]) -> None:
        super().__init__(directory, inputs)
        self.has_only_sets = True
        """Nothing but sets was swapped, so that every live edition reads what live editions have made."""

    def write(self, state: PipelineState, leg: Leg, out: str, position: Positions, end: Positions) -> None:
        names = {topic.name: parameter for parameter, topic in leg.pipeline.inputs.items()}
        for topic in sorted(end):
            if topic not in position and topic in leg.continue_at:
                continue
            for record in self.topics[topic][position.get(topic, {}).get(0, 0) : end[topic][0]]:
                number, way = (record, ()) if topic == "orders" else record
                entry = (number, (*way, out))
                self.topics[out].append((names[topic], *entry) if state.name == "third" else entry)

    def downstream(self, root: str, batches: int, *, fresh: bool = False) -> EditionSet:
        """Replays a pipeline with all that reads it; goes on with a set that is there."""
        beside = [each for each in self.project.sets.all() if each.root == root and each.stage is Stage.BESIDE]
        edition = None
        if beside and not fresh:
            member = beside[-1].member(root)
            assert member is not None
            edition = self.state(root).editions().get(member.edition)
        if edition is None:
            self.versions[root] += 1
        made = self.definition(root, self.versions[root] if edition is None else edition.version)
        planned = with_downstream(self.project, Planned(made, self.directory / f"{root}.py"))
        found = begun_set(self.project, root, planned, fresh=fresh, now_ms=1)
        for member, each in zip(found.members, planned, strict=True):
            self.go(member.pipeline, member.edition, each.pipeline, batches)
            state = self.state(member.pipeline)
            if batches >= 99:
                state.note_caught_up(state.edition(member.edition), 1)
        return found

    def swap(self, name: str) -> None:
        fresh = self.state(name).fresh_edition()
        is_set = fresh is not None and self.project.sets.beside(name, fresh.name) is not None
        if is_set:
            swap_together(self.project, self.state(name), None, force=False, skip_effects=False, timeout_s=1)
        elif name != "third":
            self.has_only_sets = False
            super().swap(name)

    def rollback(self, name: str) -> None:
        live = self.state(name).live()
        assert live is not None
        found = self.project.sets.of(name, live.edition)
        if found is None or found.stage is not Stage.LIVE:
            self.has_only_sets = False
        roll_back_together(self.project, self.state(name), skip_effects=False, timeout_s=1)

    def forget(self, name: str) -> None:
        fresh = self.state(name).fresh_edition()
        found = None if fresh is None else self.project.sets.beside(name, fresh.name)
        if found is not None:
            topics = [each for member in found.members for each in self.topics_of(member.pipeline, member.edition)]
            forget_together(self.project, found)
            for topic in topics:
                self.topics.pop(topic, None)
            self.written -= {each for each in self.written if found.has(each[0], each[1])}

    def topics_of(self, name: str, edition: str) -> list[str]:
        there = self.state(name).editions().get(edition)
        return [] if there is None else list(there.topics.values())

    def play(self, action: str, name: str, number: int) -> None:
        match action:
            case "downstream":
                self.downstream(name, 99 if number > 1 else 1)
            case "swap":
                self.swap(name)
            case "rollback":
                self.rollback(name)
            case "forget":
                self.forget(name)
            case _:
                super().play(action, name, number)

    def live(self, name: str) -> Edition:
        return self.state(name).live_edition()

    def check(self) -> None:
        for topic, records in self.topics.items():
            if topic.split(".")[0] != "three":
                continue
            for parameter in {record[0] for record in records}:
                numbers = [record[1] for record in records if record[0] == parameter]
                assert numbers == list(range(len(numbers))), f"{topic} has the records of {parameter} once and in order"
        if self.has_only_sets:
            current = {self.live(name).topics[WRITES[name]] for name in self.inputs}
            ways = {record[2] for record in self.topics[self.live("third").topics["three"]]}
            assert all(current.issuperset(way) for way in ways), f"{ways} come by what is live: {current}"

    def finish(self) -> None:
        self.steps_to_live = None
        for _ in range(4):
            for name in self.inputs:
                self.run(name)
        self.check()
        end = self.topics[self.live("third").topics["three"]]
        for parameter in ("two", "one") if "one" in self.inputs["third"].split(":")[0] else ("two",):
            numbers = [record[1] for record in end if record[0] == parameter]
            assert numbers == self.topics["orders"], f"the end has all records of {parameter}"

    def is_all_or_nothing(self, found: EditionSet) -> bool:
        """True if all members' live editions are of the set, or none is."""
        live = {self.live(member.pipeline).name == member.edition for member in found.members}
        return len(live) == 1


def begun(directory: Path, shape: str) -> SetGame:
    directory.mkdir(exist_ok=True)
    game = SetGame(directory, SHAPES[shape])
    game.produce(3)
    for name in game.inputs:
        game.run(name)
    return game


def killed_at_every_step(
    tmp_path: Path, shape: str, before: Callable[[SetGame], object], act: Callable[[SetGame], object]
) -> "list[SetGame]":
    """Games in which `act` was killed before its first step, its second one, and so on."""
    games = []
    for steps_to_live in range(1000):
        game = begun(tmp_path / str(steps_to_live), shape)
        before(game)
        game.steps_to_live = steps_to_live
        try:
            act(game)
        except Killed:
            game.steps_to_live = None
            games.append(game)
            continue
        return games
    raise AssertionError("the act does not end")


def replayed(game: SetGame) -> None:
    game.downstream("first", 99)
    game.produce(2)
    game.run("first")
    game.run("second", 1)


def swapped(game: SetGame) -> None:
    replayed(game)
    game.swap("second")
    game.produce(2)
    game.run("first", 1)
    game.run("second", 1)


@pytest.mark.parametrize("shape", EACH_SHAPE)
def test_a_replay_that_is_killed_goes_on_with_the_same_command_or_is_forgotten(tmp_path: Path, shape: str) -> None:
    games = killed_at_every_step(tmp_path, shape, lambda game: None, lambda game: game.downstream("first", 0))
    assert len(games) > 20
    for number, game in enumerate(games):
        if number % 2:
            with suppress(Refusal):
                game.forget("first")
            assert not game.project.sets.all() or game.state("first").fresh_edition() is None
        found = game.downstream("first", 99)
        assert len(game.state("third").editions()) == 2, "what was begun is gone on with"
        game.swap("third")
        assert game.is_all_or_nothing(found)
        assert game.live("first").name == found.members[0].edition
        game.finish()


@pytest.mark.parametrize("shape", EACH_SHAPE)
def test_a_swap_that_is_killed_has_happened_for_all_or_for_none(tmp_path: Path, shape: str) -> None:
    games = killed_at_every_step(tmp_path, shape, replayed, lambda game: game.swap("second"))
    outcomes = set()
    for number, game in enumerate(games):
        (found,) = game.project.sets.all()
        assert game.is_all_or_nothing(found)
        game.check()
        outcomes.add(game.live("first").name)
        if number % 2:
            with suppress(WrongState):
                game.swap("first")
            assert game.live("third").name == found.members[-1].edition
        game.finish()
    assert outcomes == {"v1", "v2"}


@pytest.mark.parametrize("shape", EACH_SHAPE)
def test_a_rollback_that_is_killed_has_happened_for_all_or_for_none(tmp_path: Path, shape: str) -> None:
    games = killed_at_every_step(tmp_path, shape, swapped, lambda game: game.rollback("third"))
    outcomes = set()
    for number, game in enumerate(games):
        (found,) = game.project.sets.all()
        assert game.is_all_or_nothing(found)
        game.check()
        outcomes.add(game.live("first").name)
        if number % 2:
            game.run("second")
            with suppress(WrongState):
                game.rollback("first")
            assert game.live("third").name == "v1"
        game.finish()
        if game.live("first").name == "v1":
            game.swap("first")
            game.finish()
        assert game.live("third").name != "v1", "a set that was rolled back can be swapped again"
    assert outcomes == {"v1", "v2"}


MOVES = st.tuples(
    st.sampled_from(["produce", "run", "run", "run", "replay", "downstream", "downstream", "swap", "swap", "rollback"]),
    st.sampled_from(sorted(INPUTS)),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(0, 30)),
)


@pytest.mark.stories
@settings(max_examples=examples(90), deadline=None)
@given(st.lists(MOVES, max_size=25), st.sampled_from(sorted(SHAPES)))
def test_whatever_is_killed_and_swapped_with_sets_in_between_the_end_has_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, str, int, int | None]], shape: str
) -> None:
    game = begun(tmp_path_factory.mktemp("game"), shape)
    for action, name, number, steps_to_live in moves:
        game.steps_to_live = steps_to_live
        with suppress(WrongState, Killed):
            game.play(action, name, number)
        game.steps_to_live = None
        game.check()
    game.finish()
    game.downstream("first", 99, fresh=True)
    game.swap("first")
    game.has_only_sets = True
    game.finish()


# The checker can fail


def test_members_that_become_live_one_after_the_other_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(sets: EditionSets, changed: EditionSet, stage: Stage, live: dict[str, object]) -> None:
        for pipeline, each in live.items():
            game.project.files.replace(game.project.directory / pipeline / "live.json", each.to_json())  # type: ignore[attr-defined]

    game = begun(tmp_path, "a row")
    replayed(game)
    monkeypatch.setattr(EditionSets, "decide", one_by_one)
    (found,) = game.project.sets.all()
    halves = 0
    for steps_to_live in range(20):
        other = begun(tmp_path / str(steps_to_live), "a row")
        replayed(other)
        game, other.steps_to_live = other, steps_to_live
        with suppress(Killed):
            other.swap("first")
        halves += not other.is_all_or_nothing(found)
    assert halves


def test_a_set_that_reads_what_is_live_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def places(project: object, found: EditionSet, pipeline: object) -> "list[Followed]":
        return []

    game = begun(tmp_path, "a row")
    monkeypatch.setattr(downstream, "_places", places)
    game.downstream("first", 99)
    game.swap("first")
    with pytest.raises((AssertionError, WrongState)):
        game.finish()
