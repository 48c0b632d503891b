"""States as tables: an allowed move passes, any other is an assertion that names the thing and the states."""

from enum import Enum

import pytest

from cordwood.model.state_tables import Moves


class Door(Enum):
    OPEN = 1
    SHUT = 2
    LOCKED = 3
    BRICKED_UP = 4


MOVES = Moves(
    "door",
    {Door.OPEN: {Door.SHUT}, Door.SHUT: {Door.LOCKED, Door.OPEN}, Door.LOCKED: {Door.SHUT}, Door.BRICKED_UP: ()},
)


def test_an_allowed_move_gives_the_state_after_it() -> None:
    assert MOVES.moved("front", Door.SHUT, Door.LOCKED) is Door.LOCKED


def test_a_forbidden_move_is_caught_and_says_which_were_allowed() -> None:
    with pytest.raises(AssertionError) as caught:
        MOVES.moved("front", Door.BRICKED_UP, Door.SHUT)
    said = "the door front cannot move from BRICKED_UP to SHUT: the allowed previous states are OPEN, LOCKED"
    assert str(caught.value).startswith(said)


def test_a_state_that_no_move_leads_to_is_said_to_be_one() -> None:
    with pytest.raises(AssertionError, match="from SHUT to BRICKED_UP: no move leads there"):
        MOVES.moved("front", Door.SHUT, Door.BRICKED_UP)


def test_a_table_has_every_state() -> None:
    with pytest.raises(AssertionError, match="the table of a door lacks a state"):
        Moves("door", {Door.OPEN: {Door.SHUT}, Door.SHUT: {Door.OPEN}})
