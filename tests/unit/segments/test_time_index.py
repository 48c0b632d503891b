"""The time index: entries, lookups, its file."""

import pytest

from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.time_index import BEFORE_FIRST, TimeIndex


def filled() -> TimeIndex:
    index = TimeIndex()
    index.append(1000, 9)
    index.append(2**40 + 5, 9)
    index.append(2**63 - 1, 30)
    return index


def test_an_entry_is_an_int64_and_an_int32() -> None:
    assert filled().to_bytes() == (
        b"\x00\x00\x00\x00\x00\x00\x03\xe8\x00\x00\x00\x09"
        b"\x00\x00\x01\x00\x00\x00\x00\x05\x00\x00\x00\x09"
        b"\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x1e"
    )
    assert filled().size_bytes == 36
    assert filled().to_bytes(first_entry=2) == b"\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x1e"


def test_a_lookup_gives_the_last_entry_at_or_before_the_timestamp() -> None:
    index = filled()
    assert index.lookup(999) == BEFORE_FIRST
    assert index.lookup(1000) == (1000, 9)
    assert index.lookup(2**40) == (1000, 9)
    assert index.lookup(2**62) == (2**40 + 5, 9)
    assert TimeIndex().lookup(0) == BEFORE_FIRST


def test_an_entry_that_says_nothing_new_is_not_added() -> None:
    index = TimeIndex()
    index.append(-1, 5)
    assert len(index) == 0
    index.append(1000, 9)
    index.append(1000, 12)
    index.append(999, 15)
    assert index.entries() == [(1000, 9)]
    assert index.last == (1000, 9)
    assert TimeIndex().last == BEFORE_FIRST


def test_what_was_written_is_read_back() -> None:
    assert TimeIndex.from_bytes(filled().to_bytes()) == filled()
    assert len(TimeIndex.from_bytes(b"")) == 0


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (9, 0), (10, 2), (30, 2), (31, 3)])
def test_truncation_drops_entries_at_and_after_the_offset(offset: int, left: int) -> None:
    index = filled()
    index.truncate(offset)
    assert index.entries() == filled().entries()[:left]


@pytest.mark.parametrize(
    "data",
    [
        bytes(11),
        bytes(24),
        b"\xff" * 8 + b"\x00\x00\x00\x01",
        b"\x00" * 8 + b"\xff\xff\xff\xff",
        b"\x00" * 7 + b"\x05\x00\x00\x00\x05" + b"\x00" * 7 + b"\x05\x00\x00\x00\x06",
        b"\x00" * 7 + b"\x05\x00\x00\x00\x05" + b"\x00" * 7 + b"\x06\x00\x00\x00\x04",
    ],
    ids=["odd-size", "zeros", "negative-time", "negative-offset", "time-stays", "offsets-fall"],
)
def test_a_file_that_is_no_index_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        TimeIndex.from_bytes(data)


def test_the_entries_around_an_offset_are_the_last_before_and_the_first_at_or_after_it() -> None:
    index = TimeIndex()
    for timestamp_ms, offset in ((1000, 10), (2000, 20), (3000, 30)):
        index.append(timestamp_ms, offset)
    assert index.around(5) == [(1000, 10)]
    assert index.around(20) == [(1000, 10), (2000, 20)]
    assert index.around(21) == [(2000, 20), (3000, 30)]
    assert index.around(31) == [(3000, 30)]
    assert TimeIndex().around(0) == []
