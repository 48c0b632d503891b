"""Finding records by time: the first one as late as asked, and the latest of all."""

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, ONE_SEGMENT, append, bases, beside, disk, log_path, open_log, reopen

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DamagedLog
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.build import build_batch
from cordwood.records.records import PackedHeaders
from cordwood.segments.names import Suffix
from cordwood.segments.time_index import ENTRY_SIZE


def spread(log: Log, timestamps: list[int]) -> None:
    for number, timestamp in enumerate(timestamps):
        append(log, b"%d" % number, b"x" * 80, timestamp_ms=timestamp, leader_epoch=number // 10)


TIMES = [NOW_MS + delta for delta in (0, 10, 20, 15, 30, 30, 5, 40, 50, 45, 60, 70, 80, 80, 90, 100, 95, 110)]


@pytest.fixture(params=["live", "clean", "unclean"])
def log(request: pytest.FixtureRequest) -> Log:
    made = open_log(disk())
    spread(made, TIMES)
    if request.param == "live":
        return made
    made.checkpoint()
    return reopen(made, clean=request.param == "clean")


def test_the_first_record_as_late_as_asked_is_found(log: Log) -> None:
    assert len(log.segments) > 2
    for wanted in range(NOW_MS - 1, NOW_MS + 112):
        expected = next((number for number, timestamp in enumerate(TIMES) if timestamp >= wanted), None)
        found = log.timestamp_search(wanted, end_offset=log.offsets.end).run()
        if expected is None:
            assert found is None
        else:
            assert found == (expected * 2, TIMES[expected], expected // 10)


def test_nothing_at_or_beyond_the_end_offset_is_found(log: Log) -> None:
    assert log.timestamp_search(NOW_MS + 40, end_offset=14).run() is None
    found = log.timestamp_search(NOW_MS + 40, end_offset=15).run()
    assert found is not None
    assert found.offset == 14


def test_nothing_before_the_log_start_is_found(log: Log) -> None:
    log.delete_records_before(9)
    found = log.timestamp_search(0, end_offset=log.offsets.end).run()
    assert found is not None
    assert found.offset == 9


def test_the_latest_record_below_an_offset_is_found(log: Log) -> None:
    for end in range(2, 2 * len(TIMES) + 1, 2):
        latest = max(TIMES[: end // 2])
        found = log.max_timestamp_offset(end_offset=end)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (TIMES.index(latest) * 2, latest)
    assert log.max_timestamp_offset(end_offset=0) is None


def test_a_record_inside_a_batch_is_found_by_its_own_timestamp() -> None:
    log = open_log(disk())
    rows = [(NOW_MS + number * 10, b"k", b"v", ()) for number in range(5)]
    log.append(build_batch(rows), leader_epoch=3, now=at(NOW_MS))
    assert log.timestamp_search(NOW_MS + 21, end_offset=5).run() == (3, NOW_MS + 30, 3)
    assert log.timestamp_search(NOW_MS + 21, end_offset=3).run() is None


def test_with_log_append_time_all_records_of_a_batch_have_its_time() -> None:
    log = open_log(disk(), TopicSettings(message_timestamp_type="LogAppendTime"))
    append(log, b"a", b"b", timestamp_ms=1, now_ms=NOW_MS + 5)
    append(log, b"c", b"d", timestamp_ms=1, now_ms=NOW_MS + 9)
    assert log.timestamp_search(NOW_MS + 6, end_offset=4).run() == (2, NOW_MS + 9, 0)


def test_an_empty_log_and_one_without_timestamps_have_nothing_to_find() -> None:
    log = open_log(disk())
    assert log.timestamp_search(0, end_offset=0).run() is None
    assert log.max_timestamp_offset(end_offset=0) is None
    append(log, timestamp_ms=-1)
    assert log.timestamp_search(0, end_offset=1).run() is None


def test_damage_on_the_way_is_said() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log, b"x" * 50, timestamp_ms=NOW_MS)
    log.checkpoint()
    filesystem.corrupt(log_path(), 61, b"\x7f\x7f\x7f")
    with pytest.raises(DamagedLog, match="orders-0"):
        log.timestamp_search(NOW_MS, end_offset=1).run()


def cut_time_indexes(log: Log, *, entries: int | None = None) -> None:
    """Takes so many entries off the time index of every segment, or all of them."""
    assert isinstance(log.directory.filesystem, CrashingFilesystem)
    for base_offset in bases(log):
        path = beside(Suffix.TIME_INDEX, base_offset)
        size = log.directory.filesystem.open(path).size
        log.directory.filesystem.cut(path, 0 if entries is None else size - entries * ENTRY_SIZE)


def found(log: Log) -> list[int | None]:
    places = (log.timestamp_search(time, end_offset=log.offsets.end).run() for time in TIMES)
    return [place and place.offset for place in places]


@pytest.mark.parametrize("clean", [True, False])
def test_an_emptied_time_index_hides_no_record(clean: bool) -> None:
    log = open_log(disk())
    spread(log, TIMES)
    expected = found(log)
    log.checkpoint()
    cut_time_indexes(log)
    log = reopen(log, clean=clean)
    assert len(log.segments) > 2
    assert found(log) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_an_emptied_time_index_is_removed_by_age(clean: bool) -> None:
    log = open_log(disk(), TopicSettings(segment_bytes=1000, index_interval_bytes=200, retention_ms=1000))
    spread(log, TIMES)
    log.checkpoint()
    count = len(log.segments)
    cut_time_indexes(log)
    log = reopen(log, clean=clean)
    assert len(log.apply_retention(at(NOW_MS + 10_000), limit_offset=log.offsets.end)) == count


def test_a_closed_segment_whose_time_index_lost_its_end_is_noticed_by_recovery() -> None:
    log = open_log(disk())
    spread(log, TIMES)
    expected = found(log)
    log.checkpoint()
    cut_time_indexes(log, entries=1)
    assert found(reopen(log, clean=False)) == expected


@pytest.mark.parametrize("segments", ["one", "many"])
def test_a_log_without_timestamps_is_not_read_for_its_empty_time_index(segments: str) -> None:
    log = open_log(disk(), ONE_SEGMENT) if segments == "one" else open_log(disk())
    spread(log, [-1] * 40)
    log.checkpoint()
    log = reopen(log, clean=False)
    assert log.offsets.end == 80
    assert log.reports.recovery.rebuilt == []
    assert log.reports.recovery.scanned_bytes < 1000 < log.segments.size_bytes


def test_records_are_found_by_time_without_opening_their_headers() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    # A header that claims a name that is not there: it shows that nobody looked.
    headers = PackedHeaders(b"\x02\x7e\x00")
    batch = build_batch([(NOW_MS + number, b"key", b"value", headers) for number in range(3)])
    log.append(memoryview(batch), leader_epoch=0, now=at(NOW_MS))
    assert log.timestamp_search(NOW_MS + 1, end_offset=3).run() == (1, NOW_MS + 1, 0)
