"""The offset index: entries, lookups, its file."""

import pytest

from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.offset_index import OffsetIndex


def filled() -> OffsetIndex:
    index = OffsetIndex()
    index.append(9, 4100)
    index.append(25, 8300)
    index.append(2**31 - 1, 2**31 - 1)
    return index


def test_an_entry_is_two_big_endian_int32() -> None:
    assert filled().to_bytes() == (
        b"\x00\x00\x00\x09\x00\x00\x10\x04" + b"\x00\x00\x00\x19\x00\x00\x20\x6c" + b"\x7f\xff\xff\xff\x7f\xff\xff\xff"
    )
    assert filled().size_bytes == 24
    assert filled().to_bytes(first_entry=2) == b"\x7f\xff\xff\xff\x7f\xff\xff\xff"
    assert filled().to_bytes(first_entry=3) == b""


def test_a_lookup_gives_the_place_of_the_last_entry_at_or_before_the_offset() -> None:
    index = filled()
    assert [index.lookup(offset) for offset in (0, 8, 9, 24, 25, 26, 10**9)] == [0, 0, 4100, 4100, 8300, 8300, 8300]
    assert OffsetIndex().lookup(5) == 0


def test_what_was_written_is_read_back() -> None:
    index = OffsetIndex.from_bytes(filled().to_bytes())
    assert index == filled()
    assert index.entries() == [(9, 4100), (25, 8300), (2**31 - 1, 2**31 - 1)]
    assert (index.last_offset, index.last_position, len(index)) == (2**31 - 1, 2**31 - 1, 3)
    empty = OffsetIndex.from_bytes(b"")
    assert (len(empty), empty.last_offset, empty.last_position) == (0, -1, -1)


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (9, 0), (10, 1), (25, 1), (26, 2)])
def test_truncation_drops_entries_at_and_after_the_offset(offset: int, left: int) -> None:
    index = filled()
    index.truncate(offset)
    assert index.entries() == filled().entries()[:left]
    index.append(100, 10_000)
    assert index.lookup(100) == 10_000


def test_entries_that_do_not_increase_are_our_own_fault() -> None:
    for offset, position in ((9, 5000), (10, 4100), (8, 4099)):
        index = OffsetIndex()
        index.append(9, 4100)
        with pytest.raises(AssertionError):
            index.append(offset, position)


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        bytes(16),  # what a file that was only reserved looks like
        b"\xff\xff\xff\xff\x00\x00\x00\x01",
        b"\x00\x00\x00\x01\xff\xff\xff\xff",
        b"\x00\x00\x00\x05\x00\x00\x00\x05" + b"\x00\x00\x00\x04\x00\x00\x00\x06",
        b"\x00\x00\x00\x05\x00\x00\x00\x05" + b"\x00\x00\x00\x06\x00\x00\x00\x05",
    ],
    ids=["odd-size", "zeros", "negative-offset", "negative-position", "offsets-fall", "position-stays"],
)
def test_a_file_that_is_no_index_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        OffsetIndex.from_bytes(data)


def test_an_index_that_points_beyond_its_log_is_refused() -> None:
    data = filled().to_bytes()[:16]
    assert len(OffsetIndex.from_bytes(data, log_size=8301)) == 2
    with pytest.raises(DamagedIndex):
        OffsetIndex.from_bytes(data, log_size=8300)
