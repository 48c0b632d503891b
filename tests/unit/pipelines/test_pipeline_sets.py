"""Sets of editions: what becomes a member, what is refused before anything is made, and how one is swapped."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipelines.chain_game import INPUTS, Killed
from tests.unit.pipelines.test_pipeline_set_games import ROW, SetGame

from cordwood.pipelines.definition.errors import AlreadyRunning, InvalidDefinition, Refusal, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.downstream import Planned, begun_set, with_downstream
from cordwood.pipelines.editions.edition_sets import EditionSet, Stage
from cordwood.pipelines.editions.following import readers_of, stranded
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.editions.set_swapping import (
    forget_together,
    roll_back_together,
    swap_together,
    would_roll_back_together,
    would_swap_together,
)
from cordwood.pipelines.editions.swapping import lock_path
from cordwood.pipelines.editions.switches import Followed

OTHER = """
from cordwood.pipelines import output, pipeline, table, topic

@pipeline("{name}", version={version}, inputs={inputs}, outputs={outputs})
def run({parameter}):
    return {parameter}
"""


@pytest.fixture
def game(tmp_path: Path) -> SetGame:
    made = SetGame(tmp_path, ROW)
    made.produce(4)
    for name in ROW:
        made.run(name)
    return made


def write(game: SetGame, name: str, inputs: str, outputs: str = 'topic("more")', version: int = 1) -> Path:
    path = game.directory / f"{name}.py"
    path.write_text(OTHER.format(name=name, version=version, inputs=inputs, outputs=outputs, parameter="rows"))
    return path


def planned(game: SetGame, root: str = "first", version: int = 2) -> list[Planned]:
    made = game.definition(root, version)
    return with_downstream(game.project, Planned(made, game.directory / f"{root}.py"))


def refused(game: SetGame, root: str = "first") -> Refusal:
    """The refusal of a replay with all readers, before which nothing was made."""
    before = {state.name: list(state.editions()) for state in game.project.pipelines()}
    with pytest.raises(Refusal) as error:
        begun_set(game.project, root, planned(game, root), fresh=False, now_ms=9)
    assert {state.name: list(state.editions()) for state in game.project.pipelines()} == before
    assert game.project.sets.all() == ()
    return error.value


def swap(game: SetGame, name: str, to: str | None = None, *, force: bool = False) -> list[str]:
    done = swap_together(game.project, game.state(name), to, force=force, skip_effects=False, timeout_s=1)
    return [each.pipeline for each in done]


def roll_back(game: SetGame, name: str) -> list[str]:
    done = roll_back_together(game.project, game.state(name), skip_effects=False, timeout_s=1)
    return [each.pipeline for each in done]


# What is in a set


def test_each_member_comes_after_what_it_reads_and_begins_in_the_fresh_topics(tmp_path: Path) -> None:
    game = SetGame(tmp_path, INPUTS)
    game.produce(2)
    for name in INPUTS:
        game.run(name)
    made = begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert str(made) == "first v2, second v1.2, third v1.2"
    third = game.state("third").edition("v1.2")
    assert {each.output: each.topic for each in third.followed} == {"two": "two.v1.2", "one": "one.v2"}
    assert game.state("third").edition("v1").followed != third.followed
    begun = begun_set(game.project, "second", planned(game, "second"), fresh=False, now_ms=9)
    assert str(begun) == "second v2, third v1.3"
    third = game.state("third").edition("v1.3")
    assert {each.output: each.topic for each in third.followed} == {"two": "two.v2", "one": "one"}


def test_a_reader_is_taken_by_its_file_as_it_is_now(game: SetGame) -> None:
    game.definition("third", 7)
    made = begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert str(made) == "first v2, second v1.2, third v7"
    (game.directory / "third.py").unlink()
    assert [each.is_kept for each in planned(game)] == [False, False, True]


def test_a_file_that_changed_meanwhile_makes_another_set(game: SetGame) -> None:
    first = begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert begun_set(game.project, "first", planned(game), fresh=False, now_ms=9) == first
    second = begun_set(game.project, "first", planned(game), fresh=True, now_ms=9)
    assert str(second) == "first v2.2, second v1.3, third v1.3"
    game.definition("second", 3)
    third = begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert str(third) == "first v2.3, second v3, third v1.4"
    forget_together(game.project, third)
    assert list(game.state("third").editions()) == ["v1", "v1.2", "v1.3"]
    assert game.project.sets.all() == (first, second)


def test_a_pipeline_that_reads_only_what_no_replay_writes_is_no_member(game: SetGame) -> None:
    outputs = '{"one": topic("one"), "mails": topic("mails", replayable=False)}'
    root = load_pipeline(write(game, "first", 'topic("orders")', outputs, version=2))
    state = game.state("first")
    kept = state.live_edition()
    state._write(replace(kept, topics={**kept.topics, "mails": "mails"}, effects=("mails",)))
    other = load_pipeline(write(game, "mailer", 'output("first", "mails")'))
    edition = game.state("mailer").begin(other, starting="earliest", now_ms=3)
    game.state("mailer").note_followed(edition, Followed("first", "mails", "v1", "mails", 0))
    found = with_downstream(game.project, Planned(root, game.directory / "first.py"))
    assert [each.pipeline.name for each in found] == ["first", "second", "third"]
    assert str(begun_set(game.project, "first", found, fresh=False, now_ms=9)) == "first v2, second v1.2, third v1.2"
    assert stranded(game.project, game.state("mailer"), game.live("mailer")) is None


def test_a_member_is_no_reader_of_what_its_set_replaces(game: SetGame) -> None:
    game.downstream("first", 99)
    readers = {(each.pipeline, each.edition) for each in readers_of(game.project, game.state("first"))}
    assert readers == {("second", "v1")}


# What is refused before anything is made


def test_effects_downstream_are_refused(game: SetGame) -> None:
    write(game, "third", 'output("second", "two")', 'topic("three", replayable=False)')
    assert "third writes three, which is not replayable" in refused(game).message


def test_a_reader_that_has_never_run_is_refused(game: SetGame) -> None:
    write(game, "fourth", 'output("second", "two")')
    error = refused(game)
    assert "fourth in" in error.message
    assert "has not run yet" in error.message
    assert "--once` makes its first edition" in error.hint


def test_a_reader_by_the_topics_name_is_refused(game: SetGame) -> None:
    write(game, "fourth", 'topic("two")')
    error = refused(game)
    assert "fourth reads two by the topic's name" in error.message
    assert "inputs=output('second', 'two', …) makes it a member" in error.hint


def test_a_cycle_is_refused(game: SetGame) -> None:
    write(game, "second", '{"rows": output("first", "one"), "more": output("third", "three")}', 'topic("two")')
    text = (game.directory / "second.py").read_text()
    (game.directory / "second.py").write_text(text.replace("run(rows)", "run(rows, more)"))
    error = refused(game)
    assert isinstance(error, InvalidDefinition)
    assert "feeds it itself" in error.message


def test_a_wrong_file_of_a_reader_is_refused_and_of_another_pipeline_is_not(game: SetGame) -> None:
    (game.directory / "other.py").write_text("from cordwood.pipelines import *\ndef (\n")
    assert len(planned(game)) == 3
    (game.directory / "third.py").write_text("from cordwood.pipelines import *\ndef (\n")
    assert "third.py:2: invalid syntax" in refused(game).message


def test_a_switch_on_the_way_is_refused(game: SetGame) -> None:
    game.replay("first", 9)
    swap(game, "first")
    error = refused(game)
    assert "readers of first are still to go over from edition v1 to v2" in error.message
    assert "`cordwood pipeline run first --once`" in error.hint


def test_an_edition_outside_of_the_set_that_reads_a_topic_is_refused(game: SetGame) -> None:
    fourth = load_pipeline(write(game, "fourth", 'output("second", "two")'))
    edition = game.state("fourth").begin(fourth, starting="earliest", now_ms=3)
    game.state("fourth").note_followed(edition, game.live("third").followed[0])
    made = begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert made.member("fourth") is not None
    forget_together(game.project, made)
    later = load_pipeline(write(game, "fourth", 'topic("orders")', version=2))
    fresh = game.state("fourth").make_edition(later, starting="earliest", now_ms=9, replayed=True)
    game.state("fourth").note_caught_up(fresh, 9)
    swap(game, "fourth")
    with pytest.raises(WrongState, match="edition v1 of fourth has begun to read two of second") as error:
        begun_set(game.project, "first", planned(game), fresh=False, now_ms=9)
    assert error.value.hint == "`cordwood pipeline forget fourth v1` removes it"


# Swap and rollback


def set_of(game: SetGame) -> EditionSet:
    return game.downstream("first", 99)


def test_a_set_is_swapped_and_rolled_back_by_any_of_its_members(game: SetGame) -> None:
    set_of(game)
    names = ["first", "second", "third"]
    would = would_swap_together(game.project, game.state("second"), None, force=False, skip_effects=False)
    assert [(each.pipeline, each.now.name, list(each.readers)) for each in would] == [
        ("first", "v2", []),
        ("second", "v1.2", []),
        ("third", "v1.2", []),
    ]
    assert swap(game, "second") == names
    assert [live.switches for name in names if (live := game.state(name).live()) is not None] == [(), (), ()]
    game.produce(2)
    game.finish()
    would = would_roll_back_together(game.project, game.state("third"), skip_effects=False)
    assert [each.now.name for each in would] == ["v1", "v1", "v1"]
    assert roll_back(game, "third") == names
    game.finish()
    assert swap(game, "first") == names
    game.finish()


def test_a_set_that_has_not_caught_up_is_refused(game: SetGame) -> None:
    game.downstream("first", 1)
    with pytest.raises(WrongState, match="edition v2 of first has not caught up yet") as error:
        swap(game, "third")
    assert "`cordwood pipeline replay first --downstream`" in error.value.hint
    assert swap(game, "third", force=True) == ["first", "second", "third"]


def test_a_member_whose_live_edition_has_changed_keeps_the_set_from_being_swapped(game: SetGame) -> None:
    set_of(game)
    made = game.definition("second", 5)
    fresh = game.state("second").make_edition(made, starting="earliest", now_ms=99, replayed=True)
    game.go("second", fresh.name, made, 99)
    game.state("second").note_caught_up(game.state("second").edition(fresh.name), 1)
    game.has_only_sets = False
    assert swap(game, "second") == ["second"], "the newest edition is swapped, which is in no set"
    game.run("second")
    with pytest.raises(WrongState, match="replaces v1 of second, where edition v5 is live") as error:
        swap(game, "first")
    assert "--downstream` builds a set from what is live now" in error.value.hint
    game.finish()


def test_a_reader_that_came_later_keeps_the_set_from_being_swapped(game: SetGame) -> None:
    set_of(game)
    fourth = load_pipeline(write(game, "fourth", 'output("second", "two")'))
    edition = game.state("fourth").begin(fourth, starting="earliest", now_ms=3)
    game.state("fourth").note_followed(edition, game.live("third").followed[0])
    with pytest.raises(WrongState, match="edition v1 of fourth has begun to read two of second, and is not in the set"):
        swap(game, "first")


def test_one_member_alone_goes_on_as_ever_after_the_swap(game: SetGame) -> None:
    set_of(game)
    swap(game, "first")
    game.replay("second", 99)
    game.has_only_sets = False
    assert swap(game, "second") == ["second"]
    game.produce(3)
    game.finish()
    with pytest.raises(
        WrongState, match=r"edition v1 of third reads two, which edition v1 of second wrote, and the live edition of "
    ) as error:
        roll_back(game, "third")
    assert "`cordwood pipeline rollback second` brings second back to v1.2" in error.value.hint
    game.downstream("first", 99)
    assert swap(game, "third") == ["first", "second", "third"]
    game.has_only_sets = True
    game.produce(1)
    game.finish()


def test_a_set_is_forgotten_as_a_whole_unless_a_member_runs(game: SetGame) -> None:
    found = set_of(game)
    state = game.state("second")
    lock = RunLock(lock_path(state, "v1.2"))
    lock.take("edition v1.2 of second", 1)
    with pytest.raises(AlreadyRunning):
        forget_together(game.project, found)
    lock.release()
    assert len(game.state("third").editions()) == 2
    forget_together(game.project, found)
    assert [list(game.state(name).editions()) for name in ROW] == [["v1"]] * 3
    assert game.project.sets.all() == ()
    game.finish()


def test_a_decision_counts_before_it_is_carried_out(game: SetGame) -> None:
    found = set_of(game)
    kept = game.state("third").directory / "live.json"
    before = kept.read_bytes()
    for steps_to_live in range(20):
        game.steps_to_live = steps_to_live
        with suppress(Killed):
            swap(game, "first")
        game.steps_to_live = None
        if game.project.sets.decided("third") is not None:
            break
    assert kept.read_bytes() == before
    assert [game.live(name).name for name in ROW] == [member.edition for member in found.members]
    with game.state("third").changing():
        assert game.project.sets.decided("third") is None
    assert kept.read_bytes() != before
    assert [each.stage for each in game.project.sets.all()] == [Stage.LIVE]
