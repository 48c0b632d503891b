"""The note of dropped deletions: its bytes, and every damaged byte."""

import pytest

from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.dropped_deletions import Dropped, decode_dropped, encode_dropped, next_mark


@pytest.mark.parametrize("dropped", [Dropped(1), Dropped(1 << 62, 4711)])
def test_a_note_is_read_as_it_was_written(dropped: Dropped) -> None:
    assert decode_dropped(encode_dropped(dropped)) == dropped


def test_no_damaged_note_is_believed() -> None:
    data = encode_dropped(Dropped(815, 4711))
    for place in range(len(data)):
        for damaged in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            with pytest.raises(DamagedCheckpoint):
                decode_dropped(damaged)


def test_marks_differ_by_log_and_time_and_history() -> None:
    marks = {
        next_mark(before, log, wall_ms)
        for before in (None, Dropped(1), Dropped(2))
        for log in ("one", "another")
        for wall_ms in (1, 2)
    }
    assert len(marks) == 12
    assert all(0 <= mark < 1 << 63 for mark in marks)
