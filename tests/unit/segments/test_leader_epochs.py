"""Leader epochs: the rules by which replicas find where their logs part."""

import pytest

from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    built = LeaderEpochs()
    for epoch, start_offset in entries:
        assert built.assign(epoch, start_offset)
    return built


def test_the_file_is_text_with_a_version_and_a_count() -> None:
    assert epochs((0, 0), (2, 15), (7, 40)).to_bytes() == b"0\n3\n0 0\n2 15\n7 40\n"
    assert LeaderEpochs().to_bytes() == b"0\n0\n"


def test_what_was_written_is_read_back() -> None:
    built = epochs((0, 0), (2, 15))
    read = LeaderEpochs.from_bytes(built.to_bytes())
    assert read == built
    assert read.latest == 2
    assert LeaderEpochs.from_bytes(b"0\n0\n").latest == -1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0\n",
        "1\n0\n",
        "0\n1\n",
        "0\n2\n0 0\n",
        "0\n1\n0 0",
        "0\n1\n0 0 0\n",
        "0\n1\n0\n",
        "0\n1\nx 0\n",
        "0\n1\n-1 0\n",
        "0\n1\n0 -1\n",
        "0\n2\n1 0\n1 5\n",
        "0\n2\n1 5\n2 5\n",
        "0\n1\n0 0\n0 9\n",
        "0\n-1\n",
        "é\n",
    ],
)
def test_a_file_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(DamagedCheckpoint):
        LeaderEpochs.from_bytes(text.encode())


def test_the_same_epoch_again_changes_nothing() -> None:
    known = epochs((3, 10))
    assert not known.assign(3, 10)
    assert not known.assign(3, 50)
    assert list(known.entries) == [(3, 10)]


def test_a_new_entry_removes_those_that_contradict_it() -> None:
    known = epochs((1, 10), (2, 20), (3, 30))
    assert known.assign(4, 20)
    assert list(known.entries) == [(1, 10), (4, 20)]
    assert known.assign(2, 50)  # a lower epoch than the latest: the latest was never true
    assert list(known.entries) == [(1, 10), (2, 50)]
    assert known.latest == 2
    assert known.assign(2, 40)
    assert list(known.entries) == [(1, 10), (2, 40)]


def test_a_shorter_log_forgets_epochs_that_begin_behind_its_end() -> None:
    known = epochs((1, 10), (2, 20), (3, 30))
    assert not known.truncate_to_end(31)
    assert known.truncate_to_end(30)
    assert list(known.entries) == [(1, 10), (2, 20)]
    assert known.latest == 2
    assert known.truncate_to_end(0)
    assert list(known.entries) == []
    assert known.latest == -1


def test_a_log_that_begins_later_forgets_older_epochs_and_moves_the_covering_one() -> None:
    known = epochs((1, 10), (2, 20), (3, 30))
    assert not known.truncate_to_start(5)
    assert not known.truncate_to_start(10)
    assert known.truncate_to_start(25)
    assert list(known.entries) == [(2, 25), (3, 30)]
    assert known.truncate_to_start(30)
    assert list(known.entries) == [(3, 30)]
    assert known.truncate_to_start(99)
    assert list(known.entries) == [(3, 99)]
    assert not LeaderEpochs().truncate_to_start(5)


def test_the_end_of_an_epoch_is_where_the_next_begins() -> None:
    known = epochs((1, 10), (3, 30), (5, 50))
    log_end = 77
    assert known.end_offset_for(5, log_end) == (5, 77)
    assert known.end_offset_for(3, log_end) == (3, 50)
    assert known.end_offset_for(4, log_end) == (3, 50)
    assert known.end_offset_for(1, log_end) == (1, 30)
    assert known.end_offset_for(2, log_end) == (1, 30)
    assert known.end_offset_for(0, log_end) == (0, 10)  # before all that is known
    assert known.end_offset_for(6, log_end) == (-1, -1)
    assert known.end_offset_for(-1, log_end) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, log_end) == (-1, -1)
    assert LeaderEpochs().end_offset_for(-1, log_end) == (-1, -1)


def test_every_offset_has_the_epoch_that_wrote_it() -> None:
    known = epochs((1, 10), (3, 30))
    assert [known.epoch_at(offset) for offset in (9, 10, 29, 30, 1000)] == [-1, 1, 1, 3, 3]
