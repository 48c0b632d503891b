"""Log lines that clients cause: few, with the number of events that they stand for."""

from cordwood.broker.network.seldom import MOST_KINDS, SAID_EVERY_S, SaidSeldom


def test_each_kind_has_one_line_in_a_while_that_says_how_often_it_happened() -> None:
    said = SaidSeldom()
    assert [said.count("size 5", 100.0), said.count("size 6", 100.0), said.count("no such API", 101.0)] == [1, 0, 1]
    assert said.count("size 7", 100.0 + SAID_EVERY_S) == 3


def test_ever_new_kinds_share_one_line() -> None:
    said = SaidSeldom()
    lines = sum(said.count("x" * length, 100.0) > 0 for length in range(1, 10 * MOST_KINDS))
    assert lines == MOST_KINDS + 1
    assert len(said._counts) == MOST_KINDS + 1
