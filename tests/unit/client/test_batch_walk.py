"""Hopping over fetched batches."""

import struct

import pytest

from cordwood.client.batch_walk import bytes_before, offset_after, whole_batches
from cordwood.records.build import build_batch
from cordwood.records.corruption import CorruptRecords


def batch(base_offset: int, count: int, last_offset_delta: int | None = None) -> bytes:
    records = [(0, None, b"v", ())] * count
    return bytes(build_batch(records, base_offset=base_offset, last_offset_delta=last_offset_delta))


FIRST, SECOND, THIRD = batch(10, 5), batch(15, 1), batch(40, 3)
ALL = FIRST + SECOND + THIRD


@pytest.mark.parametrize("cut", range(len(THIRD)))
def test_a_last_batch_that_is_broken_off_anywhere_does_not_count(cut: int) -> None:
    size, last = whole_batches(memoryview(FIRST + SECOND + THIRD[:cut]))
    assert size == len(FIRST + SECOND)
    assert last == len(FIRST)


def test_the_log_goes_on_after_the_last_whole_batch() -> None:
    records = memoryview(ALL)
    size, last = whole_batches(records)
    assert size == len(ALL)
    assert offset_after(records, last) == 43


def test_the_end_of_a_batch_whose_last_records_were_compacted_away_is_kept() -> None:
    records = memoryview(batch(7, 2, last_offset_delta=9))
    assert offset_after(records, whole_batches(records)[1]) == 17


def test_nothing_whole_is_nothing() -> None:
    assert whole_batches(memoryview(b"")) == (0, 0)
    assert whole_batches(memoryview(FIRST[:30])) == (0, 0)


@pytest.mark.parametrize(
    ("end_offset", "kept"),
    [(10, b""), (11, FIRST), (15, FIRST), (16, FIRST + SECOND), (40, FIRST + SECOND), (41, ALL), (99, ALL)],
)
def test_a_batch_belongs_to_a_range_that_ends_within_it(end_offset: int, kept: bytes) -> None:
    assert bytes_before(memoryview(ALL), end_offset) == len(kept)


def test_a_length_that_no_batch_can_have_is_corrupt() -> None:
    broken = bytearray(ALL)
    struct.pack_into(">i", broken, len(FIRST) + 8, -1)
    with pytest.raises(CorruptRecords, match=f"at byte {len(FIRST)}"):
        whole_batches(memoryview(broken))


def test_formats_from_before_batches_are_refused() -> None:
    old = bytearray(FIRST)
    old[16] = 1
    with pytest.raises(CorruptRecords, match="format 1"):
        offset_after(memoryview(old), 0)


@pytest.mark.parametrize("offset", [-1, 5, 10, 1 << 40])
def test_offsets_that_do_not_rise_are_corrupt(offset: int) -> None:
    """An offset that is far too high would pass for the end of a range: the batch behind it gives it away."""
    broken = bytearray(ALL)
    struct.pack_into(">q", broken, len(FIRST), offset)
    with pytest.raises(CorruptRecords, match="after a batch at offset"):
        whole_batches(memoryview(broken))


def test_a_batch_that_ends_before_it_begins_is_corrupt() -> None:
    with pytest.raises(CorruptRecords, match="offset 10 ends before it begins"):
        offset_after(memoryview(batch(10, 1, last_offset_delta=-1)), 0)
