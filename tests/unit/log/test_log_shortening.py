"""What is taken off a log: at its end by truncation, at its start by retention and DeleteRecords, or all of it."""

import pytest
from tests.moments import at
from tests.unit.log.log_making import (
    DATA,
    DIRECTORY,
    NOW_MS,
    ONE_SEGMENT,
    SMALL,
    append,
    bases,
    batch_bytes,
    beside,
    delete,
    disk,
    end_transaction,
    fill,
    flush,
    log_path,
    open_log,
    remove_deleted,
    reopen,
    values,
)

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import batches_in
from cordwood.segments.names import Suffix

DAY_MS = 86_400_000


def retained(**overrides: object) -> TopicSettings:
    return TopicSettings(segment_bytes=1000, index_interval_bytes=200, **overrides)  # type: ignore[arg-type]


# Truncation


def test_truncation_takes_off_whole_batches_and_appends_go_on_there() -> None:
    log = open_log(disk())
    written = fill(log, 40)
    log.checkpoint()
    log.truncate_to(17)
    assert (log.offsets.end, log.offsets.durable_end, log.offsets.recovery_point) == (17, 17, 17)
    assert values(log) == written[:17]
    assert append(log, b"other", leader_epoch=1).base_offset == 17
    assert values(log) == [*written[:17], b"other"]


def test_a_batch_that_spans_the_target_goes_as_a_whole() -> None:
    log = open_log(disk())
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e", b"f")
    log.truncate_to(4)
    assert log.offsets.end == 3
    assert values(log) == [b"a", b"b", b"c"]


def test_truncation_beyond_the_end_changes_nothing() -> None:
    log = open_log(disk())
    written = fill(log, 3)
    log.truncate_to(3)
    log.truncate_to(99)
    assert values(log) == written


def test_truncation_takes_back_what_the_batches_said() -> None:
    log = open_log(disk())
    append(log, leader_epoch=1, producer=5, sequence=0)
    append(log, leader_epoch=2, producer=5, sequence=1)
    append(log, leader_epoch=3, producer=6, sequence=0, transactional=True)
    log.checkpoint()
    log.truncate_to(1)
    assert log.replayed.leader_epochs.entries == ((1, 0),)
    assert log.replayed.producers.first_open_offset is None
    assert append(log, leader_epoch=4, producer=5, sequence=1).base_offset == 1


def test_the_lower_recovery_point_is_durable_before_anything_is_cut() -> None:
    log = open_log(disk())
    fill(log, 40)
    log.checkpoint()
    seen: list[tuple[int, int]] = []
    log.offsets.on_cut = lambda lowered: seen.append((lowered, log.offsets.end))
    log.truncate_to(17)
    assert seen == [(17, 40)]
    fill(log, 3)
    log.truncate_to(19)
    assert seen == [(17, 40), (17, 20)], "nothing below the recovery point was cut"


def test_a_truncated_log_stays_truncated_through_power_cuts() -> None:
    for seed in range(10):
        filesystem = disk(seed)
        log = open_log(filesystem)
        written = fill(log, 40)
        log.checkpoint()
        log.truncate_to(17)
        filesystem.crash()
        log = open_log(filesystem, recovery_point=17, clean=False)
        assert values(log) == written[:17]
        assert not log.reports.damage


@pytest.mark.parametrize("checkpointed", [True, False])
def test_segments_that_truncation_removed_never_come_back(checkpointed: bool) -> None:
    """Even if the log has grown again to exactly where one of them began."""
    for seed in range(20):
        filesystem = disk(seed)
        log = open_log(filesystem)
        written = fill(log, 40)
        log.checkpoint() if checkpointed else flush(log)
        stale = bases(log)[2]
        log.truncate_to(stale - 3)
        written = written[: stale - 3] + fill(log, 3, size=20)
        assert log.offsets.end == stale
        flush(log)
        filesystem.crash()
        log = open_log(filesystem, recovery_point=log.offsets.recovery_point, clean=False)
        assert values(log) == written
        assert log.offsets.end == stale


def test_a_clean_stop_after_a_truncation_is_clean() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    written = fill(log, 40)
    log.checkpoint()
    log.truncate_to(17)
    log.checkpoint()
    log = reopen(log, clean=True)
    assert values(log) == written[:17]
    assert log.reports.recovery.clean, "no index has entries of batches that are no more"


def test_a_follower_that_is_too_far_behind_starts_again_elsewhere() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    fill(log, 40)
    append(log, producer=5, sequence=0)
    log.checkpoint()
    log.restart_at(1000)
    assert (log.offsets.start, log.offsets.end) == (1000, 1000)
    assert not log.replayed.producers.describe()
    filesystem.crash()
    log = open_log(filesystem, recovery_point=1000, clean=False)
    assert (log.offsets.start, log.offsets.end) == (1000, 1000)
    assert not log.reports.damage
    assert append(log).base_offset == 1000


# Retention


def test_retention_by_time_drops_whole_segments_that_are_too_old() -> None:
    log = open_log(disk(), retained(retention_ms=DAY_MS))
    for number in range(30):
        append(log, b"x" * 100, timestamp_ms=NOW_MS + number * 3_600_000, now_ms=NOW_MS + number * 3_600_000)
    log.checkpoint()
    now_ms = NOW_MS + DAY_MS + 10 * 3_600_000
    deleted = log.apply_retention(at(now_ms), limit_offset=30)
    assert deleted
    assert all("retention.ms" in segment.reason for segment in deleted)
    assert log.offsets.start == deleted[-1].end_offset
    # Every record that is left shares its segment with one that is young enough.
    assert log.segments[0].max_timestamp_ms(log.segments.end_of(0), 200) >= now_ms - DAY_MS
    assert deleted[-1].end_offset <= 10
    assert values(log) == [b"x" * 100] * (30 - log.offsets.start)


def test_retention_by_size_keeps_at_least_so_much() -> None:
    log = open_log(disk(), retained(retention_bytes=2500, retention_ms=-1))
    fill(log, 60)
    log.checkpoint()
    before = log.segments.size_bytes
    deleted = log.apply_retention(at(NOW_MS), limit_offset=60)
    assert 2500 <= log.segments.size_bytes < 2500 + SMALL.segment_bytes
    assert before - log.segments.size_bytes == sum(segment.size_bytes for segment in deleted)
    assert not log.apply_retention(at(NOW_MS), limit_offset=60)


def test_nothing_beyond_the_limit_or_the_recovery_point_is_dropped() -> None:
    log = open_log(disk(), retained(retention_bytes=0, retention_ms=-1))
    fill(log, 60)
    assert not log.apply_retention(at(NOW_MS), limit_offset=60), "nothing is checkpointed yet"
    log.checkpoint()
    third = bases(log)[2]
    deleted = log.apply_retention(at(NOW_MS), limit_offset=third)
    assert [segment.end_offset for segment in deleted] == [bases(log)[0] - (third - deleted[0].end_offset), third]


def test_a_log_whose_records_are_all_too_old_becomes_empty_and_keeps_its_place() -> None:
    for seed in range(20):
        filesystem = disk(seed)
        log = open_log(filesystem, retained(retention_ms=1000))
        fill(log, 20)
        log.checkpoint()
        log.apply_retention(at(NOW_MS + DAY_MS), limit_offset=20)
        assert (log.offsets.start, log.offsets.end, log.segments.size_bytes) == (20, 20, 0)
        filesystem.crash()
        log = open_log(filesystem, log.settings, recovery_point=20, clean=False)
        assert not log.reports.damage
        assert append(log, b"next").base_offset == 20
        assert values(log, 20) == [b"next"]


def test_a_compacted_topic_is_not_subject_to_retention() -> None:
    log = open_log(disk(), retained(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0))
    fill(log, 30)
    log.checkpoint()
    assert not log.apply_retention(at(NOW_MS + DAY_MS), limit_offset=30)


def test_records_without_timestamps_have_no_age() -> None:
    log = open_log(disk(), retained(retention_ms=1))
    append(log, timestamp_ms=-1)
    log.checkpoint()
    assert not log.apply_retention(at(NOW_MS + DAY_MS), limit_offset=1)


def test_files_go_only_after_a_delay_because_slices_may_be_on_their_way() -> None:
    log = open_log(disk(), retained(retention_bytes=0, retention_ms=-1, file_delete_delay_ms=1000))
    fill(log, 30)
    log.checkpoint()
    found = log.read(0, 300, end_offset=30, minimum_one_batch=True)
    assert found is not None
    log.apply_retention(at(NOW_MS), limit_offset=30)
    remove_deleted(log, NOW_MS)
    assert found.file.path.endswith(".log.deleted")
    assert len(found.file.read(found.position, found.length)) == found.length
    remove_deleted(log, NOW_MS + 999)
    assert any(name.endswith(".deleted") for name in log.directory.filesystem.list(DIRECTORY))
    remove_deleted(log, NOW_MS + 1000)
    assert not any(name.endswith(".deleted") for name in log.directory.filesystem.list(DIRECTORY))


def test_what_producers_did_in_dropped_segments_is_still_known() -> None:
    log = open_log(disk(), retained(retention_bytes=0, retention_ms=-1))
    append(log, producer=5, sequence=0)
    fill(log, 30)
    log.checkpoint()
    log.apply_retention(at(NOW_MS), limit_offset=31)
    for clean in (True, False):
        log.checkpoint()
        log = reopen(log, clean=clean)
        assert append(log, producer=5, sequence=0).duplicate


def test_a_segment_stays_until_a_snapshot_has_what_it_said_of_its_producers() -> None:
    log = open_log(disk(), retained(retention_bytes=0, retention_ms=-1))
    append(log, producer=5, sequence=0)
    append(log, b"cut off again")
    log.checkpoint()
    log.truncate_to(1)
    append(log, b"x" * 990)
    assert (bases(log), log.offsets.recovery_point) == ([0, 1], 1)
    assert not log.apply_retention(at(NOW_MS), limit_offset=1), "durable, but its only snapshot was cut off"
    flush(log)
    log = reopen(log, clean=False)
    assert append(log, producer=5, sequence=0).duplicate


@pytest.mark.parametrize("torn", [False, True])
def test_what_a_killed_checkpoint_left_is_not_taken_for_saved(torn: bool) -> None:
    """Its snapshots were never synced. Neither was the next checkpoint's that found them, and then the power went."""
    for seed in range(20):
        filesystem = disk(seed)
        log = open_log(filesystem, retained(retention_bytes=0, retention_ms=-1))
        append(log, producer=5, sequence=0)
        fill(log, 30)
        flush(log)
        ticket = log.begin_checkpoint()
        assert ticket is not None
        ticket.write()
        if torn:
            filesystem.cut(beside(Suffix.SNAPSHOT, 31), 0)
        log = reopen(log, clean=False)
        log.checkpoint()
        assert log.apply_retention(at(NOW_MS), limit_offset=31)
        filesystem.sync_directory(DIRECTORY)
        filesystem.crash()
        log = reopen(log, clean=False)
        assert append(log, producer=5, sequence=0).duplicate


def test_a_snapshot_of_which_no_segment_is_left_is_not_taken_for_saved() -> None:
    """The power went in the first checkpoint, and took the log file but not what was written beside it."""
    log = open_log(disk(), retained(retention_bytes=0, retention_ms=-1))
    fill(log, 3)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    ticket.write()
    log.directory.filesystem.remove(log_path())
    log = reopen(log, clean=False)
    append(log, producer=5, sequence=0)
    fill(log, 2)
    log.checkpoint()
    log = reopen(log, clean=False)
    assert append(log, producer=5, sequence=0).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_segments_stay_while_the_snapshot_of_their_producers_is_damaged(clean: bool) -> None:
    filesystem = disk()
    log = open_log(filesystem, retained(retention_bytes=0, retention_ms=-1))
    append(log, producer=5, sequence=0)
    fill(log, 3)
    log.checkpoint()
    filesystem.cut(beside(Suffix.SNAPSHOT, 4), 20)
    log = reopen(log, clean=clean)
    _ = log.replayed.producers
    assert not log.apply_retention(at(NOW_MS), limit_offset=4)
    log.checkpoint()
    assert log.apply_retention(at(NOW_MS), limit_offset=4)
    log = reopen(log, clean=clean)
    assert append(log, producer=5, sequence=0).duplicate


def test_a_log_cut_back_to_a_segments_base_knows_the_producers_of_dropped_ones() -> None:
    log = open_log(disk(), retained(retention_bytes=1500, retention_ms=-1))
    append(log, producer=5, sequence=0)
    fill(log, 30)
    log.checkpoint()
    log.apply_retention(at(NOW_MS), limit_offset=31)
    first = bases(log)[0]
    assert first > 1
    log.truncate_to(first + 1)
    assert append(log, producer=5, sequence=0).duplicate


def test_producers_that_were_silent_too_long_are_forgotten() -> None:
    log = open_log(disk())
    append(log, producer=5, sequence=0)
    log.replayed.expire_producers(NOW_MS + DAY_MS - 1, DAY_MS)
    assert log.replayed.producers.describe()
    log.replayed.expire_producers(NOW_MS + DAY_MS, DAY_MS)
    assert not log.replayed.producers.describe()


@pytest.mark.parametrize("older_ms", [999, 1001])
def test_after_a_clean_stop_retention_knows_the_age_of_a_log_without_opening_it(older_ms: int) -> None:
    log = open_log(disk(), retained(retention_ms=1000))
    fill(log, 3)
    log.checkpoint()
    log = reopen(log, clean=True)
    deleted = log.apply_retention(at(NOW_MS + older_ms), limit_offset=3)
    assert log.replayed.ready == bool(deleted) == (older_ms > 1000)
    assert log.offsets.start == (3 if deleted else 0)


# DeleteRecords


def test_deleted_records_cannot_be_read_and_whole_segments_go() -> None:
    log = open_log(disk())
    written = fill(log, 40)
    log.checkpoint()
    log.delete_records_before(25)
    assert log.offsets.start == 25
    assert values(log) == written[25:]
    assert log.segments[0].base_offset <= 25 < log.segments.end_of(0)
    with pytest.raises(ProtocolError) as refusal:
        batch_bytes(log, 24)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.replayed.leader_epochs.entries == ((0, 25),)


def test_the_start_of_a_log_only_moves_forward_and_not_beyond_its_end() -> None:
    log = open_log(disk())
    fill(log, 10)
    log.delete_records_before(7)
    log.delete_records_before(3)
    assert log.offsets.start == 7
    for offset in (11, -1):
        with pytest.raises(ProtocolError) as refusal:
            log.delete_records_before(offset)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records_before(10)
    assert values(log) == []
    assert append(log).base_offset == 10


def test_segments_before_the_start_go_once_they_are_checkpointed() -> None:
    log = open_log(disk())
    fill(log, 40)
    log.delete_records_before(30)
    assert bases(log)[0] == 0
    log.checkpoint()
    deleted = log.apply_retention(at(NOW_MS), limit_offset=40)
    assert all("log's start" in segment.reason for segment in deleted)
    assert bases(log)[0] > 0
    assert log.offsets.start == 30


# Deletion


def test_a_deleted_log_frees_its_disk() -> None:
    log = open_log(disk())
    fill(log, 30)
    log.checkpoint()
    delete(log)
    assert log.directory.filesystem.list(DATA) == []
    delete(log)


def test_readers_of_a_deleted_log_do_not_see_a_new_one_of_the_same_name() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    fill(log, 3)
    found = log.read(0, 1 << 20, end_offset=3, minimum_one_batch=True)
    assert found is not None
    path = log.condemn()
    assert path is not None
    assert path.endswith("-delete")
    assert found.file.path == f"{path}/{log_path().rpartition('/')[2]}"
    again = open_log(filesystem)
    assert append(again, b"new").base_offset == 0
    filesystem.remove_tree(path)
    assert values(again) == [b"new"]


def test_looking_through_a_deleted_log_leaves_the_files_of_a_new_one_alone() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    fill(log, 40)
    log.checkpoint()
    closed = log.segments[0]
    path = log.condemn()
    again = open_log(filesystem)
    fill(again, 40, size=50)
    again.checkpoint()
    index = again.segments[0].path(Suffix.INDEX)
    before = filesystem.read_bytes(index)
    closed.examine(log.segments[1].base_offset, 10)
    assert filesystem.read_bytes(index) == before
    assert path is not None
    filesystem.remove_tree(path)
    closed.examine(closed.base_offset, 10)
    assert filesystem.read_bytes(index) == before
    assert not filesystem.exists(path)


# Transactions


def transactions(log: Log) -> list[tuple[int, int]]:
    return log.aborts.between(log.offsets.start, log.offsets.end)


def test_aborted_transactions_are_found_wherever_their_markers_are() -> None:
    log = open_log(disk())
    append(log, b"x" * 100, producer=1, sequence=0, transactional=True)
    fill(log, 20)
    append(log, b"x" * 100, producer=2, sequence=0, transactional=True)
    end_transaction(log, 2, committed=True)
    fill(log, 20)
    end_transaction(log, 1, committed=False)
    assert len(log.segments) > 4
    assert log.aborts.between(0, 5) == [(1, 0)]
    assert log.aborts.between(log.offsets.end - 1, log.offsets.end) == [(1, 0)]
    assert log.replayed.last_stable_offset(log.offsets.end) == log.offsets.end


@pytest.mark.parametrize("settings", [SMALL, ONE_SEGMENT])
def test_a_reader_is_told_of_the_aborted_transactions_in_its_slice_and_not_of_all_that_follow(
    settings: TopicSettings,
) -> None:
    written = open_log(disk(), settings)
    for producer in range(200):
        append(written, b"x" * 100, producer=producer, transactional=True)
        end_transaction(written, producer, committed=producer % 2 == 0)
    written.checkpoint()
    for log in (written, reopen(written, clean=True)):
        end, offset = log.offsets.end, 0
        while offset < end:
            found = log.read(offset, 500, end_offset=end, minimum_one_batch=True)
            assert found is not None
            batches = [header for _, header in batches_in(found.file.read(found.position, found.length))]
            in_it = {header.producer_id for header in batches if not header.control and header.producer_id % 2}
            told = log.aborts.in_slice(found, offset, end)
            assert in_it <= {producer for producer, _ in told}
            assert len(told) <= 12
            offset = batches[-1].next_offset


@pytest.mark.parametrize("how", ["clean", "unclean", "half written", "damaged", "missing"])
def test_aborted_transactions_are_known_after_a_restart(how: str) -> None:
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    for number in range(3):
        append(log, producer=number, transactional=True)
        end_transaction(log, number, committed=number == 1)
    log.checkpoint()
    append(log, producer=8, transactional=True)
    end_transaction(log, 8, committed=False)
    append(log, producer=9, transactional=True)
    expected = [(0, 0), (2, 4), (8, 6)]
    assert transactions(log) == expected
    path = beside(Suffix.TXN_INDEX)
    if how == "clean":
        log.checkpoint()
    elif how == "half written":
        filesystem.open(path).append(b"\0" * 17)
    elif how == "damaged":
        filesystem.corrupt(path, 0, b"\xff\xff")
    elif how == "missing":
        filesystem.remove(path)
        for name in filesystem.list(DIRECTORY):
            if name.endswith(".snapshot"):
                filesystem.remove(f"{DIRECTORY}/{name}")
    log = reopen(log, clean=how == "clean")
    assert transactions(log) == expected
    assert log.replayed.producers.first_open_offset == 8
    end_transaction(log, 9, committed=False)
    assert transactions(log) == [*expected, (9, 8)]


def test_a_damaged_transaction_index_of_a_closed_segment_is_made_again() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log, producer=1, transactional=True)
    fill(log, 3)
    end_transaction(log, 1, committed=False)
    fill(log, 30)
    log.checkpoint()
    right = filesystem.read_bytes(beside(Suffix.TXN_INDEX))
    filesystem.corrupt(beside(Suffix.TXN_INDEX), 0, b"\xff\xff")
    log = reopen(log, clean=True)
    assert transactions(log) == [(1, 0)]
    assert filesystem.read_bytes(beside(Suffix.TXN_INDEX)) == right


def test_truncation_takes_back_an_abort() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    append(log, producer=1, transactional=True)
    end_transaction(log, 1, committed=False)
    log.checkpoint()
    log.truncate_to(1)
    assert transactions(log) == []
    assert log.replayed.producers.first_open_offset == 0


def test_old_readers_of_removed_files_fail_instead_of_reading_others() -> None:
    log = open_log(disk())
    fill(log, 40)
    found = log.read(39, 300, end_offset=40, minimum_one_batch=True)
    assert found is not None
    assert isinstance(log.directory.filesystem, CrashingFilesystem)
    log.truncate_to(3)
    assert found.file.path.endswith(".gone")
    with pytest.raises((StorageFailure, FileNotFoundError)):
        log.directory.filesystem.open(found.file.path)
