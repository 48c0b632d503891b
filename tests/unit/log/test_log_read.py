"""Reading: which bytes a fetch gets, at the tail and far behind, without waiting for the disk where it must not."""

import threading

import pytest
from tests.unit.log.log_making import (
    ONE_SEGMENT,
    SMALL,
    append,
    batch_bytes,
    beside,
    disk,
    fill,
    log_path,
    open_log,
    reopen,
    values,
)

from cordwood.log.log import ColdRead, Log
from cordwood.log.reading.lookup import LogSlice
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.records.batch import batches_in
from cordwood.segments.names import Suffix


def offsets(found: LogSlice | None) -> list[int]:
    """The base offsets of the batches in a slice; all of it must be whole batches."""
    if found is None:
        return []
    data = found.file.read(found.position, found.length)
    headers = list(batches_in(data))
    assert sum(header.size for _, header in headers) == found.length
    return [header.base_offset for _, header in headers]


def read(log: Log, offset: int, max_bytes: int = 1 << 20, *, end: int | None = None, one: bool = True) -> list[int]:
    return offsets(
        log.read(offset, max_bytes, end_offset=log.offsets.end if end is None else end, minimum_one_batch=one)
    )


@pytest.fixture(params=["recent", "indexed"])
def ten(request: pytest.FixtureRequest) -> Log:
    """Ten batches of two records each, in one segment, read by recent places or by the index."""
    log = open_log(disk(), ONE_SEGMENT)
    for number in range(10):
        append(log, b"%d" % number, b"x" * 90)
    if request.param == "indexed":
        log.checkpoint()
        log = reopen(log, clean=True)
    return log


def test_a_slice_begins_with_the_batch_that_holds_the_offset(ten: Log) -> None:
    assert read(ten, 0) == list(range(0, 20, 2))
    assert read(ten, 7) == list(range(6, 20, 2))
    assert read(ten, 19) == [18]
    found = ten.read(7, 1 << 20, end_offset=20, minimum_one_batch=True)
    assert found is not None
    assert found.base_offset == 6


def test_nothing_at_or_beyond_the_end_offset_is_given(ten: Log) -> None:
    assert read(ten, 4, end=10) == [4, 6, 8]
    assert read(ten, 4, end=9) == [4, 6]
    assert read(ten, 4, end=5) == []
    assert read(ten, 4, end=4) == []
    assert read(ten, 4, end=0) == []


def test_a_slice_has_whole_batches_and_at_most_so_many_bytes(ten: Log) -> None:
    size = len(batch_bytes(ten, 0, 1))
    assert read(ten, 2, 3 * size) == [2, 4, 6]
    assert read(ten, 2, 3 * size - 1) == [2, 4]
    assert read(ten, 2, size, one=False) == [2]
    assert read(ten, 18, 100 * size) == [18]


def test_one_batch_may_be_larger_than_allowed_if_it_must_be_there(ten: Log) -> None:
    assert read(ten, 6, 1) == [6]
    assert read(ten, 18, 1) == [18]
    assert read(ten, 6, 1, one=False) == []


def test_offsets_outside_the_log_are_refused_and_the_end_is_empty(ten: Log) -> None:
    assert read(ten, 20) == []
    ten.delete_records_before(4)
    assert read(ten, 4) == list(range(4, 20, 2))
    for offset in (-1, 3, 21):
        with pytest.raises(ProtocolError) as refusal:
            read(ten, offset)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slice_ends_with_its_segment_and_the_next_one_goes_on() -> None:
    log = open_log(disk())
    written = fill(log, 40)
    assert len(log.segments) > 3
    first = log.segments[1].base_offset
    assert read(log, 0) == list(range(first))
    assert read(log, first)[0] == first
    assert values(log) == written
    assert read(log, 3, end=log.segments[2].base_offset) == list(range(3, first))


def test_places_of_recent_batches_do_not_grow_without_bound() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    written = fill(log, 1000, size=10)
    assert log.segments.active is not None
    assert log.segments.active.recent_offsets is not None
    assert len(log.segments.active.recent_offsets) <= 256
    for offset in (0, 500, 743, 744, 745, 999):
        assert values(log, offset) == written[offset:]


def test_what_is_not_in_memory_is_read_elsewhere() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    written = fill(log, 40)
    log.checkpoint()
    log = reopen(log, clean=True)
    filesystem.nothing_cached = True
    with pytest.raises(ColdRead) as cold:
        log.read(5, 300, end_offset=40, minimum_one_batch=True, may_block=False)
    answer: list[LogSlice | None] = []
    thread = threading.Thread(target=lambda: answer.append(cold.value.finish()))
    thread.start()
    append(log, b"meanwhile")
    thread.join(60)
    assert offsets(answer[0])[0] == 5
    assert values(log) == [*written, b"meanwhile"]


def test_a_tailing_reader_never_needs_the_disk() -> None:
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    fill(log, 20)
    filesystem.nothing_cached = True
    found = log.read(18, 1 << 20, end_offset=20, minimum_one_batch=True, may_block=False)
    assert offsets(found) == [18, 19]


@pytest.mark.parametrize("harm", ["missing", "cut", "garbage", "wrong"])
@pytest.mark.parametrize("suffix", [Suffix.INDEX, Suffix.TIME_INDEX])
def test_an_index_that_is_missing_or_wrong_is_made_again(harm: str, suffix: Suffix) -> None:
    filesystem = disk()
    log = open_log(filesystem)
    written = fill(log, 40)
    log.checkpoint()
    path = beside(suffix)
    right = filesystem.read_bytes(path)
    if harm == "missing":
        filesystem.remove(path)
    elif harm == "cut":
        filesystem.cut(path, len(right) - 3)
    elif harm == "garbage":
        filesystem.corrupt(path, 0, b"\xff" * len(right))
    elif suffix is Suffix.INDEX:
        # Sorted, within the log, and not where batches begin.
        filesystem.corrupt(path, 4, (int.from_bytes(right[4:8], "big") + 1).to_bytes(4, "big"))
    log = reopen(log, clean=True)
    for offset in range(len(written)):
        assert values(log, offset) == written[offset:]
    for number in range(40):
        found = log.timestamp_search(0, end_offset=number + 1).run()
        assert found is not None
        assert found.offset == 0
    assert not log.reports.damage
    if harm != "wrong" or suffix is Suffix.INDEX:
        assert filesystem.read_bytes(path) == right


def test_damage_met_by_a_reader_is_named_and_stepped_over() -> None:
    filesystem = disk()
    log = open_log(filesystem, SMALL)
    written = fill(log, 40)
    log.checkpoint()
    log = reopen(log, clean=True)
    size = len(batch_bytes(log, 0, 1))
    filesystem.corrupt(log_path(), 2 * size + 8, b"\xff\xff")
    assert values(log, 3) == written[3:]
    assert [(damage.first_offset, damage.end_offset) for damage in log.reports.damage] == [(2, 3)]
    with pytest.raises(Exception, match="offsets 2 to 2 cannot be read"):
        read(log, 2)
    assert read(log, 0) == [0, 1]


def test_damage_in_a_closed_segment_is_looked_at_elsewhere_though_it_is_in_memory() -> None:
    filesystem = disk()
    log = open_log(filesystem, SMALL)
    written = fill(log, 40)
    log.checkpoint()
    filesystem.corrupt(log_path(), 2 * len(batch_bytes(log, 0, 1)) + 8, b"\xff\xff")
    for _ in range(2):
        with pytest.raises(ColdRead) as cold:
            log.read(3, 300, end_offset=40, minimum_one_batch=True, may_block=False)
    assert not log.reports.damage
    assert offsets(cold.value.finish())[0] == 3
    assert [(damage.first_offset, damage.end_offset) for damage in log.reports.damage] == [(2, 3)]
    found = log.read(3, 300, end_offset=40, minimum_one_batch=True, may_block=False)
    assert offsets(found)[0] == 3
    assert values(log, 3) == written[3:]
