"""Games with a chain of three: whatever is swapped, rolled back or killed at whatever step, the end reads all once.

`third` reads the outputs of both `first` and `second`.
"""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.pipelines.chain_game import INPUTS, Game, Killed

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.checkpoint import committed_position

Move = tuple[str, str, int, int | None]
MOVES = st.tuples(
    st.sampled_from(["produce", "run", "run", "run", "replay", "swap", "rollback"]),
    st.sampled_from(sorted(INPUTS)),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(0, 12)),
)


def play(directory: Path, moves: list[Move]) -> None:
    game = Game(directory)
    game.produce(3)
    for name in INPUTS:
        game.run(name)
    for action, name, number, steps_to_live in moves:
        game.steps_to_live = steps_to_live
        with suppress(WrongState, Killed):
            game.play(action, name, number)
        game.check()
    game.finish()


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(MOVES, max_size=30))
def test_whatever_is_killed_and_swapped_the_end_of_the_chain_reads_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, moves: list[Move]
) -> None:
    play(tmp_path_factory.mktemp("game"), moves)


def begun(directory: Path, swapped: str, *, kill_after: int | None = None) -> Game:
    """A game in which a pipeline was swapped, and the last one is killed on its way to the new topic."""
    game = Game(directory)
    game.produce(3)
    for name in INPUTS:
        game.run(name)
    go_over(game, swapped)
    game.steps_to_live = kill_after
    with suppress(Killed):
        game.run("third", 3)
    game.steps_to_live = None
    return game


def go_over(game: Game, swapped: str) -> None:
    game.replay(swapped, 9)
    game.swap(swapped)
    game.produce(2)
    game.run("first")
    game.run("second")


def test_a_reader_rolls_back_to_an_edition_that_stands_in_a_topic_that_was_left(tmp_path: Path) -> None:
    game = begun(tmp_path, "second")
    go_over(game, "first")
    game.play("rollback", "second", 1)
    assert committed_position(game.state("second").checkpoint("v1")).keys() == {"one"}
    assert committed_position(game.state("second").checkpoint("v2")).keys() == {"one.v2"}
    game.finish()


@pytest.mark.parametrize("kill_after", range(24))
def test_an_input_switches_while_a_reader_is_killed_within_a_step_in_another_input(
    tmp_path: Path, kill_after: int
) -> None:
    game = begun(tmp_path, "first", kill_after=kill_after)
    go_over(game, "second")
    game.finish()
