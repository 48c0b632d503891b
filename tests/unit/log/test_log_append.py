"""Appending: offsets, validation, rolling, and a disk that says no."""

from pathlib import Path

import pytest
from tests.moments import at
from tests.unit.log.log_making import (
    DATA,
    DIRECTORY,
    NOW_MS,
    ONE_SEGMENT,
    PARTITION,
    SMALL,
    append,
    bases,
    batch_bytes,
    disk,
    fill,
    open_log,
    reopen,
    values,
)

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import batches_in, crc_is_right, read_header
from cordwood.records.build import build_batch

LATEST_EPOCH = 9


def test_an_empty_partition_costs_no_file_until_its_first_append() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    assert log.begin_flush() is None
    assert log.begin_checkpoint() is None
    assert log.read(0, 100, end_offset=0, minimum_one_batch=True) is None
    assert not log.apply_retention(at(NOW_MS), limit_offset=0)
    log.replayed.begin_epoch(3, log.offsets.end)
    log.checkpoint()
    log.close()
    assert filesystem.list(DATA) == []
    append(log, leader_epoch=3)
    assert filesystem.list(DATA) == ["orders-0"]
    assert log.replayed.leader_epochs.entries == ((3, 0),)


def test_offsets_are_given_in_order_and_written_into_the_batch() -> None:
    log = open_log(disk())
    assert append(log, b"a", b"b", leader_epoch=4)[:2] == (0, 1)
    assert append(log, b"c", leader_epoch=5)[:2] == (2, 2)
    headers = [header for _, header in batches_in(batch_bytes(log, 0))]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 4), (2, 5)]
    assert log.replayed.leader_epochs.entries == ((4, 0), (5, 2))
    assert log.offsets.end == 3
    assert values(log) == [b"a", b"b", b"c"]


def test_the_callers_buffer_is_the_one_that_gets_the_offset_and_nothing_else_changes() -> None:
    log = open_log(disk())
    append(log)
    sent = build_batch([(NOW_MS, b"k", b"v", ())])
    before = bytes(sent)
    log.append(memoryview(sent), leader_epoch=7, now=at(NOW_MS))
    assert read_header(sent).base_offset == 1
    assert sent[16:] == before[16:]
    assert batch_bytes(log, 1) == sent


def test_log_append_time_stamps_the_batch_and_renews_its_crc() -> None:
    log = open_log(disk(), TopicSettings(message_timestamp_type="LogAppendTime"))
    appended = append(log, b"v", timestamp_ms=5, now_ms=NOW_MS + 9)
    assert appended.append_time_ms == NOW_MS + 9
    data = batch_bytes(log, 0)
    assert read_header(data).max_timestamp == NOW_MS + 9
    assert read_header(data).log_append_time
    assert crc_is_right(data, 0, len(data))


def test_a_refused_batch_changes_nothing() -> None:
    log = open_log(disk(), TopicSettings(max_message_bytes=100))
    for batch, code in (
        (build_batch([(NOW_MS, None, b"x" * 200, ())]), ErrorCode.MESSAGE_TOO_LARGE),
        (build_batch([(NOW_MS + 10**8, None, b"x", ())]), ErrorCode.INVALID_TIMESTAMP),
    ):
        with pytest.raises(ProtocolError) as refusal:
            log.append(batch, leader_epoch=0, now=at(NOW_MS))
        assert refusal.value.code is code
    assert log.offsets.end == 0
    assert not log.directory.filesystem.exists(DIRECTORY)


def test_a_retry_gets_the_original_offsets_and_is_not_written_again() -> None:
    log = open_log(disk())
    first = append(log, b"a", b"b", producer=9, sequence=0)
    append(log, b"between")
    again = append(log, b"a", b"b", producer=9, sequence=0)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert not first.duplicate
    assert values(log) == [b"a", b"b", b"between"]


def test_retries_are_recognised_after_a_clean_and_after_an_unclean_stop() -> None:
    log = open_log(disk())
    for number in range(7):
        append(log, b"v%d" % number, producer=9, sequence=number)
    log.checkpoint()
    for clean in (True, False):
        log = reopen(log, clean=clean)
        for number in range(2, 7):
            assert append(log, b"v%d" % number, producer=9, sequence=number).duplicate
        with pytest.raises(ProtocolError):
            append(log, b"v1", producer=9, sequence=1)
    assert log.offsets.end == 7


def test_the_time_of_a_duplicate_is_that_of_the_original() -> None:
    log = open_log(disk(), TopicSettings(message_timestamp_type="LogAppendTime"))
    append(log, producer=9, now_ms=NOW_MS + 1)
    assert append(log, producer=9, now_ms=NOW_MS + 50).append_time_ms == NOW_MS + 1


def test_a_segment_that_would_be_too_large_is_followed_by_a_new_one() -> None:
    log = open_log(disk())
    written = fill(log, 30)
    assert len(log.segments) > 2
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert values(log) == written


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_log(disk())
    append(log, b"small")
    append(log, b"x" * 5000)
    append(log, b"small again")
    assert bases(log) == [0, 1, 2]
    assert [len(value) for value in values(log)] == [5, 5000, 11]


def test_a_segment_is_closed_when_it_is_old_enough() -> None:
    log = open_log(disk(), TopicSettings(segment_ms=1000))
    append(log, now_ms=NOW_MS)
    assert not log.roll_if_due(NOW_MS + 999)
    append(log, now_ms=NOW_MS + 999)
    append(log, now_ms=NOW_MS + 1000)
    assert bases(log) == [0, 2]
    assert log.roll_if_due(NOW_MS + 2000)
    assert not log.roll_if_due(NOW_MS + 2000)
    assert bases(log) == [0, 2], "an idle partition gets no empty file"
    append(log, now_ms=NOW_MS + 2001)
    assert bases(log) == [0, 2, 3]


def test_the_age_of_a_segment_survives_a_restart() -> None:
    log = open_log(disk(), TopicSettings(segment_ms=1000))
    append(log, timestamp_ms=NOW_MS)
    log.checkpoint()
    log = reopen(log, clean=True, now_ms=NOW_MS + 5000)
    assert not log.replayed.ready
    append(log, now_ms=NOW_MS + 5000)
    assert bases(log) == [0, 1]


def test_a_replay_that_fails_at_the_first_use_is_done_again_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(disk())
    append(log, b"once", producer=7, sequence=0, transactional=True)
    log.checkpoint()
    log = reopen(log, clean=True)
    read_bytes = log.directory.filesystem.read_bytes

    def fails(path: str) -> bytes:
        raise StorageFailure(f"{path}: input/output error")

    # Leader epochs are the first file that a replay reads and that loading the indexes does not.
    monkeypatch.setattr(
        log.directory.filesystem,
        "read_bytes",
        lambda path: fails(path) if path.endswith("leader-epoch-checkpoint") else read_bytes(path),
    )
    for _ in range(2):
        with pytest.raises(StorageFailure):
            append(log, b"once", producer=7, sequence=0, transactional=True)
    monkeypatch.undo()
    assert log.replayed.last_stable_offset(1) == 0, "the transaction is open"
    assert append(log, b"once", producer=7, sequence=0, transactional=True).duplicate
    assert log.offsets.end == 1


def test_jitter_makes_partitions_roll_at_different_times_but_never_later() -> None:
    log = open_log(disk(), TopicSettings(segment_ms=1000, segment_jitter_ms=500))
    append(log)
    assert log.segments.active is not None
    assert NOW_MS + 500 <= log.segments.active.roll_at_ms <= NOW_MS + 1000


def test_a_full_index_ends_a_segment() -> None:
    log = open_log(disk(), TopicSettings(index_interval_bytes=0, segment_index_bytes=36))
    fill(log, 20)
    assert len(log.segments) > 3
    assert all(segment.indexes is not None and segment.indexes.offsets.size_bytes <= 36 for segment in log.segments)


def test_offsets_that_an_index_cannot_hold_begin_a_new_segment() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    for base_offset in (0, 10, 2**31 + 5, 2**32 + 7):
        batch = build_batch([(NOW_MS, b"k", b"v", ())], base_offset=base_offset)
        log.append_replicated(batch, leader_epoch=LATEST_EPOCH, now=at(NOW_MS))
    assert bases(log) == [0, 2**31 + 5, 2**32 + 7]
    assert log.offsets.end == 2**32 + 8


def test_a_full_disk_refuses_the_batch_and_takes_the_next_one_when_there_is_space() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log, b"before", producer=1, sequence=0)
    filesystem.free_for_appends = 10
    with pytest.raises(DiskFull):
        append(log, b"refused", producer=1, sequence=1)
    assert log.offsets.end == 1
    assert values(log) == [b"before"], "reads go on"
    filesystem.free_for_appends = None
    assert append(log, b"after", producer=1, sequence=1).base_offset == 1
    assert values(log) == [b"before", b"after"]


def test_a_disk_that_is_full_from_the_start_takes_the_first_batch_when_there_is_space() -> None:
    filesystem = MemoryFilesystem(capacity_bytes=5)
    filesystem.make_directory(DATA)
    log = open_log(filesystem)
    with pytest.raises(DiskFull):
        append(log)
    filesystem.capacity_bytes = 10_000
    assert append(log, b"now").base_offset == 0
    assert values(log) == [b"now"]


def test_settings_can_change_while_the_log_is_open() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    fill(log, 5)
    log.change_settings(SMALL)
    fill(log, 10)
    assert len(log.segments) > 1
    assert log.segments.active is not None
    before = log.segments.active.roll_at_ms
    log.change_settings(TopicSettings(segment_ms=SMALL.segment_ms - 1000))
    assert log.segments.active.roll_at_ms == before - 1000


def test_a_follower_takes_batches_as_they_are_gaps_included() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    batches = b"".join(
        bytes(build_batch([(NOW_MS, b"k", b"v%d" % offset, ())], base_offset=offset, leader_epoch=epoch))
        for offset, epoch in ((0, 1), (1, 1), (5, 2))
    )
    appended = log.append_replicated(bytearray(batches), leader_epoch=LATEST_EPOCH, now=at(NOW_MS))
    assert (appended.base_offset, appended.last_offset, log.offsets.end) == (0, 5, 6)
    assert log.replayed.leader_epochs.entries == ((1, 0), (2, 5))
    assert batch_bytes(log, 0) == batches
    assert values(log, 3) == [b"v5"], "an offset in a gap is answered with what follows"


@pytest.mark.parametrize("damage", ["offset", "crc", "cut"])
def test_a_follower_refuses_what_cannot_be_right(damage: str) -> None:
    log = open_log(disk())
    append(log)
    batch = build_batch([(NOW_MS, b"k", b"v", ())], base_offset=0 if damage == "offset" else 1)
    if damage == "crc":
        batch[-1] ^= 1
    with pytest.raises(ProtocolError) as refusal:
        log.append_replicated(batch[:-1] if damage == "cut" else batch, leader_epoch=LATEST_EPOCH, now=at(NOW_MS))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.offsets.end == 1


def test_preallocate_reserves_a_segment_and_gives_back_what_is_left(tmp_path: Path) -> None:
    settings = TopicSettings(preallocate=True, segment_bytes=1 << 20)
    log = Log.open(
        OsFilesystem(str(tmp_path)),
        f"{tmp_path}/orders-0",
        PARTITION,
        settings,
        recovery_point=0,
        clean=True,
        now=at(NOW_MS),
    )
    append(log, b"a")
    (first,) = (tmp_path / "orders-0").glob("*.log")
    if first.stat().st_blocks * 512 < 1 << 20:
        pytest.skip("this filesystem reserves nothing")
    append(log, b"b" * 1000, now_ms=NOW_MS + settings.segment_ms + 1)
    assert first.stat().st_blocks * 512 < 1 << 16
    (second,) = set((tmp_path / "orders-0").glob("*.log")) - {first}
    assert second.stat().st_blocks * 512 >= 1 << 20
    log.close()
    assert second.stat().st_blocks * 512 < 1 << 16
