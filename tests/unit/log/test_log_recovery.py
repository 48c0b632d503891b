"""After a stop that was not clean: what is cut, what is only reported, what is made again, how much is read for it."""

import struct

import pytest
from tests.moments import at
from tests.unit.log.log_making import (
    DIRECTORY,
    NOW_MS,
    ONE_SEGMENT,
    SMALL,
    append,
    bases,
    batch_bytes,
    beside,
    disk,
    end_transaction,
    fill,
    flush,
    log_path,
    open_log,
    reopen,
    values,
)

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.log.upkeep.checkpoint import write_checkpoints
from cordwood.model.errors import DamagedLog, StorageFailure
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import HEADER_SIZE
from cordwood.segments.leader_epochs import FILE_NAME as EPOCHS_FILE
from cordwood.segments.leader_epochs import WITNESS_FILE_NAME as EPOCHS_WITNESS
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Suffix
from cordwood.segments.producer_snapshot import encode_snapshot

COMPACTED = TopicSettings(segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",))


def written(batches: int, settings: TopicSettings = ONE_SEGMENT, *, checkpoint_at: int = 0) -> tuple[Log, list[bytes]]:
    """A log with so many batches on a disk that holds all of them, its recovery point somewhere."""
    log = open_log(disk(), settings)
    expected: list[bytes] = []
    if checkpoint_at:
        expected += fill(log, checkpoint_at)
        log.checkpoint()
    expected += fill(log, batches - checkpoint_at)
    if batches > checkpoint_at:
        flush(log)
    return log, expected


def size_of(log: Log, offset: int) -> int:
    return len(batch_bytes(log, offset, 1))


def crashing(log: Log) -> CrashingFilesystem:
    assert isinstance(log.directory.filesystem, CrashingFilesystem)
    return log.directory.filesystem


def damaged(log: Log) -> list[tuple[int, int]]:
    return [(damage.first_offset, damage.end_offset) for damage in log.reports.damage]


@pytest.mark.parametrize("missing", [1, 40, 120])
def test_a_torn_tail_is_cut_and_said_with_its_offsets(missing: int) -> None:
    log, expected = written(10)
    crashing(log).cut(log_path(), log.segments.size_bytes - missing)
    log = reopen(log, clean=False)
    assert log.offsets.end == log.offsets.durable_end == 9
    assert values(log) == expected[:9]
    [cut] = log.reports.recovery.cuts
    assert (cut.partition, cut.first_offset, cut.position) == (log.partition, 9, log.segments.size_bytes)
    assert cut.claimed_end_offset in (10, None)
    assert "offset 9" in str(cut)
    assert cut.kept_in is None, "a torn batch is no loss"
    assert not log.reports.damage
    assert append(log, b"again").base_offset == 9
    assert values(log) == [*expected[:9], b"again"]


@pytest.mark.parametrize("place", [0, 8, 12, 16, 17, 21, 30, HEADER_SIZE + 5])
def test_a_flipped_bit_above_the_recovery_point_ends_the_log_there(place: int) -> None:
    log, expected = written(10, checkpoint_at=3)
    size = size_of(log, 0)
    position = 6 * size + place
    [byte] = log.segments[0].file.read(position, 1)
    behind = log.segments[0].file.read(7 * size, 3 * size)
    crashing(log).corrupt(log_path(), position, bytes([byte ^ 0x40]))
    log = reopen(log, clean=False)
    if place == 12:
        # The leader epoch is outside of the CRC: nobody can tell that it is not what was written.
        assert log.offsets.end == 10
        return
    assert log.offsets.end == 6
    assert values(log) == expected[:6]
    [cut] = log.reports.recovery.cuts
    assert (cut.first_offset, cut.size_bytes, cut.kept_in) == (6, 4 * size, f"{log_path()}.cut-{6 * size}")
    assert cut.kept_in is not None
    assert cut.kept_in in str(cut)
    kept = log.directory.filesystem.read_bytes(cut.kept_in)
    assert kept[size:] == behind, "batches that were acknowledged are kept"
    append(log, b"again")
    crashing(log).crash()
    log = reopen(log, clean=False)
    assert log.directory.filesystem.read_bytes(cut.kept_in) == kept


def test_zeros_where_a_batch_should_be_end_the_log() -> None:
    log, expected = written(4)
    file = log.segments[0].file
    file.append(bytes(5000))
    file.sync()
    log = reopen(log, clean=False)
    assert values(log) == expected
    assert log.reports.recovery.cuts[0].size_bytes == 5000


def test_a_cut_removes_the_segments_behind_it() -> None:
    log, expected = written(40, SMALL)
    second = log.segments[1].base_offset
    crashing(log).cut(log_path(second), 150)
    later = bases(log)[2:]
    behind = {base: log.directory.filesystem.read_bytes(log_path(base)) for base in later}
    log = reopen(log, clean=False)
    assert log.offsets.end == second
    assert values(log) == expected[:second]
    assert bases(log) == [0, second]
    cut = {each.file for each in log.reports.recovery.cuts}
    assert cut == {log_path(second), *(log_path(base) for base in later)}
    for base in later:
        names = [name for name in log.directory.filesystem.list(DIRECTORY) if name.startswith(f"{base:020d}.log")]
        assert names == [f"{base:020d}.log.cut-0"], "a segment that was acknowledged is kept"
        assert log.directory.filesystem.read_bytes(f"{log_path(base)}.cut-0") == behind[base]
    written_again = fill(log, 40)
    assert values(log) == expected[:second] + written_again


def test_a_missing_segment_above_the_recovery_point_ends_the_log() -> None:
    log, expected = written(40, SMALL)
    second, third = bases(log)[1:3]
    log.directory.filesystem.remove(log_path(second))
    log = reopen(log, clean=False)
    assert log.offsets.end == second
    assert values(log) == expected[:second]
    assert str(third) in log.reports.recovery.cuts[-1].reason


def test_below_the_recovery_point_nothing_is_cut_and_the_rest_is_served() -> None:
    log, expected = written(20, checkpoint_at=12)
    size = size_of(log, 0)
    # Behind the last index entry below the recovery point, so that recovery meets it.
    crashing(log).corrupt(log_path(), 11 * size + HEADER_SIZE + 4, b"\xff")
    before, readable = log.segments.size_bytes, batch_bytes(log, 0, 11 * size)
    log = reopen(log, clean=False)
    assert (log.segments.size_bytes, log.offsets.end) == (before, 20)
    assert damaged(log) == [(11, 12)]
    assert not log.reports.recovery.cuts
    assert values(log, 12) == expected[12:]
    assert batch_bytes(log, 0) == readable
    with pytest.raises(DamagedLog, match=r"orders-0.*offsets 11 to 11.*CRC"):
        batch_bytes(log, 11)
    assert "offsets 11 to 11" in str(log.reports.damage[0])
    assert append(log, b"more").base_offset == 20


@pytest.mark.parametrize("place", [0, 8, 16])
def test_behind_a_destroyed_header_the_next_batch_is_found_again(place: int) -> None:
    log, expected = written(20, checkpoint_at=12)
    size = size_of(log, 0)
    crashing(log).corrupt(log_path(), 11 * size + place, b"\xee\xee\xee\xee")
    log = reopen(log, clean=False)
    assert log.offsets.end == 20
    assert damaged(log) == [(11, 12)]
    assert values(log, 12) == expected[12:]


def test_a_log_cut_short_below_the_recovery_point_goes_on_behind_it() -> None:
    log, _ = written(12, checkpoint_at=12)
    size = size_of(log, 0)
    readable = batch_bytes(log, 0, 9 * size)
    crashing(log).cut(log_path(), 9 * size + 30)
    log = reopen(log, clean=False)
    assert log.offsets.end == log.offsets.recovery_point == 12, "acknowledged offsets are never given out again"
    assert damaged(log) == [(9, 12)]
    assert append(log, b"new").base_offset == 12
    assert bases(log) == [0, 12], "the damaged file is left as it is"
    assert values(log, 12) == [b"new"]
    assert batch_bytes(log, 0) == readable
    with pytest.raises(DamagedLog):
        batch_bytes(log, 9)
    log.checkpoint()
    log = reopen(log, clean=True)
    assert values(log, 12) == [b"new"]


def test_what_follows_damage_that_reaches_the_recovery_point_is_cut() -> None:
    log, _ = written(20, checkpoint_at=12)
    size = size_of(log, 0)
    readable = batch_bytes(log, 0, 11 * size)
    crashing(log).corrupt(log_path(), 11 * size, b"\xee" * (size + 50))
    log = reopen(log, clean=False)
    assert log.offsets.end == 12
    assert damaged(log) == [(11, 12)]
    assert [cut.first_offset for cut in log.reports.recovery.cuts] == [12]
    assert log.reports.recovery.cuts[0].claimed_end_offset == 20
    assert batch_bytes(log, 0) == readable
    assert append(log).base_offset == 12


def test_a_lost_directory_is_reported_and_its_offsets_are_not_used_again() -> None:
    log, _ = written(12, checkpoint_at=12)
    log.directory.filesystem.remove_tree(DIRECTORY)
    for clean in (True, False):
        found = open_log(log.directory.filesystem, recovery_point=12, clean=clean)
        assert damaged(found) == [(0, 12)]
        assert found.offsets.end == 12
    assert append(found).base_offset == 12


def test_a_closed_segment_with_a_bad_end_is_reported_at_the_next_start() -> None:
    log, expected = written(40, SMALL, checkpoint_at=40)
    first_end = bases(log)[1]
    crashing(log).cut(log_path(), log.segments[0].size - 10)
    log = reopen(log, clean=False)
    assert damaged(log) == [(first_end - 1, first_end)]
    assert log.offsets.end == 40
    assert values(log, first_end) == expected[first_end:]
    with pytest.raises(DamagedLog):
        batch_bytes(log, first_end - 1)


def test_a_missing_closed_segment_is_reported_while_the_rest_is_served() -> None:
    log, expected = written(40, SMALL, checkpoint_at=40)
    first, second = bases(log)[1:3]
    log.directory.filesystem.remove(log_path(first))
    log = reopen(log, clean=False)
    assert damaged(log) == [(first, second)]
    assert values(log, second) == expected[second:]
    with pytest.raises(DamagedLog):
        batch_bytes(log, first)


def test_gaps_that_compaction_left_are_no_damage() -> None:
    log = open_log(disk(), COMPACTED)
    fill(log, 40)
    log.checkpoint()
    log.directory.filesystem.remove(log_path(bases(log)[1]))
    log = reopen(log, clean=False)
    assert not log.reports.damage
    assert log.offsets.end == 40


def with_emptied_ends() -> tuple[Log, list[bytes]]:
    """A log of a compacted topic whose first two segments have lost batches at their end; what is left."""
    log, expected = written(40, COMPACTED)
    first, second, third = bases(log)[:3]
    crashing(log).cut(log_path(first), 0)
    crashing(log).cut(log_path(second), size_of(log, second))
    return log, [expected[second], *expected[third:]]


@pytest.mark.parametrize("policies", [("compact",), ("delete",)])
def test_a_compacted_log_without_a_recovery_point_keeps_what_follows_its_gaps(policies: tuple[str, ...]) -> None:
    """The file of recovery points was lost: the first segment whose end compaction had emptied ended the log."""
    log, expected = with_emptied_ends()
    settings = TopicSettings(segment_bytes=1000, index_interval_bytes=200, cleanup_policy=policies)
    log = open_log(log.directory.filesystem, settings, clean=False, ever_compacted=True, recovery_point_lost=True)
    assert values(log) == expected
    assert log.offsets.end == 40
    assert not log.reports.recovery.cuts
    assert not log.reports.damage


def test_what_follows_a_cut_goes_also_where_compaction_may_have_left_gaps() -> None:
    log, expected = with_emptied_ends()
    second = bases(log)[1]
    size = crashing(log).open(log_path(second)).size
    crashing(log).open(log_path(second)).append(b"torn")
    log = open_log(log.directory.filesystem, COMPACTED, recovery_point_lost=True, clean=False)
    assert values(log) == expected[:1]
    assert log.offsets.end == second + 1
    assert log.reports.recovery.cuts[0].position == size


@pytest.mark.parametrize("recovery_point", [0, 2])
def test_above_a_recovery_point_a_gap_between_segments_is_never_compaction(recovery_point: int) -> None:
    """A power cut took the end of a closed segment and left the one behind it: the log ends where the gap begins."""
    log, expected = written(40, COMPACTED, checkpoint_at=recovery_point)
    second, third = bases(log)[1:3]
    crashing(log).cut(log_path(second), size_of(log, second))
    log = reopen(log, clean=False)
    assert values(log) == expected[: second + 1]
    assert f"offset {third} where {second + 1} must come" in log.reports.recovery.cuts[-1].reason


def test_recovery_reads_only_what_is_behind_the_last_index_entry_below_the_recovery_point() -> None:
    log, expected = written(1000, checkpoint_at=990)
    size = size_of(log, 0)
    log = reopen(log, clean=False)
    assert values(log, 985) == expected[985:]
    assert 10 * size <= log.reports.recovery.scanned_bytes <= 10 * size + ONE_SEGMENT.index_interval_bytes + 2 * size


@pytest.mark.parametrize("harm", ["half an entry", "zeros", "garbage", "missing", "wrong last entry", "empty"])
@pytest.mark.parametrize("suffix", [Suffix.INDEX, Suffix.TIME_INDEX])
def test_a_half_written_index_is_put_right(harm: str, suffix: Suffix) -> None:
    log, expected = written(60, checkpoint_at=40)
    filesystem = crashing(log)
    path = beside(suffix)
    if harm == "missing":
        filesystem.remove(path)
    elif harm == "empty":
        filesystem.cut(path, 0)
    elif harm == "wrong last entry":
        size = len(filesystem.read_bytes(path))
        filesystem.corrupt(path, size - 4, struct.pack(">i", 39 if suffix is Suffix.TIME_INDEX else 5001))
    else:
        tail = {"half an entry": b"\0\0\0", "zeros": bytes(48), "garbage": b"\xa5" * 31}[harm]
        file = filesystem.open(path)
        file.append(tail)
        file.sync()
    log = reopen(log, clean=False)
    for offset in (0, 17, 39, 40, 59):
        assert values(log, offset) == expected[offset:]
    assert not log.reports.damage
    written_again = fill(log, 20)
    log.checkpoint()
    log = reopen(log, clean=True)
    assert values(log) == expected + written_again
    assert log.reports.recovery.clean


def test_indexes_after_recovery_are_those_that_appending_made() -> None:
    log, _ = written(60, checkpoint_at=31)
    made = log.segments[0].indexes
    assert made is not None
    log = reopen(log, clean=False)
    again = log.segments[0].indexes
    assert again is not None
    assert again.offsets == made.offsets
    assert (again.max_timestamp_ms, again.max_timestamp_offset) == (made.max_timestamp_ms, made.max_timestamp_offset)


def test_a_clean_stop_that_lied_is_found_out_at_the_first_use() -> None:
    log, _ = written(20, checkpoint_at=20)
    file = log.directory.filesystem.open(log_path())
    crashing(log).cut(log_path(), file.size - 5)
    log = reopen(log, clean=True)
    assert not log.replayed.ready
    assert log.offsets.end == 20
    assert append(log).base_offset == 20
    assert damaged(log) == [(19, 20)]
    assert not log.reports.recovery.clean


def test_a_clean_stop_with_more_on_disk_than_it_said_loses_nothing() -> None:
    log, expected = written(20, checkpoint_at=12)
    log = open_log(log.directory.filesystem, log.settings, recovery_point=12, clean=True)
    assert append(log, b"next").base_offset == 20
    assert values(log) == [*expected, b"next"]


def test_an_epoch_begins_at_the_end_that_the_first_use_finds() -> None:
    log, _ = written(20, checkpoint_at=12)
    log = open_log(log.directory.filesystem, log.settings, recovery_point=12, clean=True)
    log.begin_epoch(5)
    assert log.replayed.leader_epochs.entries[-1] == (5, 20)


def test_the_log_start_is_never_beyond_the_end() -> None:
    log, _ = written(5)
    log = open_log(log.directory.filesystem, log.settings, recovery_point=0, clean=False, log_start_offset=9)
    assert (log.offsets.start, log.offsets.end) == (9, 9)
    assert append(log).base_offset == 9


def test_what_is_appended_at_a_log_start_that_nothing_reaches_survives_the_next_recovery() -> None:
    """Seed 5068 of the game of the log: the batches before the start left a gap, and all that followed it was cut."""
    for recovery_point in (0, 5, 21):
        log = open_log(disk())
        fill(log, 20)
        append(log, b"the last of it", producer=7)
        log = open_log(
            log.directory.filesystem, log.settings, recovery_point=recovery_point, clean=False, log_start_offset=30
        )
        expected = fill(log, 20)
        assert bases(log)[-4:] == [30, 35, 40, 45]
        for _ in range(3):
            log = open_log(
                log.directory.filesystem, log.settings, recovery_point=recovery_point, clean=False, log_start_offset=30
            )
            assert values(log) == expected
            assert not log.reports.damage
            assert not log.reports.recovery.cuts
        assert append(log, b"the last of it", producer=7).duplicate


def test_what_is_before_a_log_start_that_nothing_reached_goes_with_retention() -> None:
    log = open_log(disk())
    fill(log, 20)
    log = open_log(log.directory.filesystem, log.settings, recovery_point=5, clean=False, log_start_offset=30)
    expected = fill(log, 20)
    flush(log)
    log.checkpoint()
    log.apply_retention(at(NOW_MS), limit_offset=50)
    assert bases(log)[0] == 30
    assert values(log) == expected
    assert values(reopen(log, clean=False)) == expected


def test_what_is_behind_damage_before_the_log_start_is_kept() -> None:
    log, expected = written(20, SMALL)
    crashing(log).cut(log_path(), 10)
    log = open_log(log.directory.filesystem, log.settings, recovery_point=0, clean=False, log_start_offset=12)
    assert values(log) == expected[12:]
    assert not log.reports.damage


def test_recovery_can_be_interrupted_by_power_cuts_any_number_of_times() -> None:
    for seed in range(20):
        filesystem = disk(seed)
        log = open_log(filesystem)
        expected = fill(log, 12)
        log.checkpoint()
        expected += fill(log, 8)
        flush(log)
        fill(log, 10)
        for _ in range(4):
            filesystem.crash()
            log = open_log(filesystem, recovery_point=12, clean=False)
            assert values(log)[:20] == expected
            assert not log.reports.damage
        expected = values(log)
        expected += fill(log, 3)
        flush(log)
        filesystem.crash()
        assert values(open_log(filesystem, recovery_point=12, clean=False)) == expected


def test_epochs_and_transactions_come_back_from_the_batches_alone() -> None:
    log = open_log(disk())
    append(log, leader_epoch=2)
    append(log, leader_epoch=2)
    append(log, leader_epoch=5, producer=4, transactional=True)
    flush(log)
    log = reopen(log, clean=False)
    assert log.replayed.leader_epochs.entries == ((2, 0), (5, 2))
    assert log.replayed.producers.first_open_offset == 2
    assert log.replayed.last_stable_offset(3) == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", [EPOCHS_FILE, EPOCHS_WITNESS])
def test_a_bit_flipped_anywhere_in_the_epochs_or_their_witness_changes_no_epoch(name: str, clean: bool) -> None:
    def made() -> Log:
        log = open_log(disk())
        for epoch in (2, 2, 5, 8):
            append(log, leader_epoch=epoch)
            log.checkpoint()
        return log

    path = f"{DIRECTORY}/{name}"
    size = len(made().directory.filesystem.read_bytes(path))
    rebuilt = 0
    for bit in range(8 * size):
        log = made()
        byte = log.directory.filesystem.read_bytes(path)[bit // 8]
        crashing(log).corrupt(path, bit // 8, bytes([byte ^ 1 << bit % 8]))
        log = reopen(log, clean=clean)
        assert log.replayed.leader_epochs.entries == ((2, 0), (5, 2), (8, 3)), bit
        rebuilt += f"{DIRECTORY}/{EPOCHS_FILE}" in log.reports.recovery.rebuilt
        log.checkpoint()
        assert log.replayed.leader_epochs == LeaderEpochs.from_bytes(
            log.directory.filesystem.read_bytes(f"{DIRECTORY}/{EPOCHS_FILE}")
        )
    assert rebuilt == (8 * size if name == EPOCHS_FILE else rebuilt), "the damage is in the report"


def test_epochs_that_an_earlier_version_saved_are_believed() -> None:
    log = open_log(disk())
    append(log, leader_epoch=3)
    log.checkpoint()
    log.directory.filesystem.remove(f"{DIRECTORY}/{EPOCHS_WITNESS}")
    log = reopen(log, clean=False)
    assert log.replayed.leader_epochs.entries == ((3, 0),)
    assert not log.reports.recovery.rebuilt


def test_snapshots_of_batches_that_were_lost_are_not_believed() -> None:
    log, _ = written(10, checkpoint_at=5)
    append(log, producer=77, sequence=0)
    log.checkpoint()
    assert log.directory.filesystem.exists(beside(Suffix.SNAPSHOT, 11))
    crashing(log).cut(log_path(), 10 * size_of(log, 0))
    log = open_log(log.directory.filesystem, log.settings, recovery_point=5, clean=False)
    assert log.offsets.end == 10
    assert not log.replayed.producers.describe()
    assert not log.directory.filesystem.exists(beside(Suffix.SNAPSHOT, 11))


@pytest.mark.parametrize("harm", ["missing", "torn"])
def test_without_a_usable_snapshot_the_log_itself_tells(harm: str) -> None:
    log = open_log(disk())
    for number in range(8):
        append(log, producer=3, sequence=number)
    log.checkpoint()
    path = beside(Suffix.SNAPSHOT, 8)
    if harm == "missing":
        log.directory.filesystem.remove(path)
    else:
        crashing(log).cut(path, 20)
    log = reopen(log, clean=True)
    assert append(log, producer=3, sequence=4).duplicate


def test_left_over_files_are_removed_at_the_next_start() -> None:
    log, expected = written(5, checkpoint_at=5)
    before = log.directory.filesystem.list(DIRECTORY)
    first = f"{0:020d}.log"
    for name in (f"{99:020d}.index", f"{first}.deleted", f"{first}.cleaned", "leader-epoch-checkpoint.tmp"):
        log.directory.filesystem.open(f"{DIRECTORY}/{name}", create=True)
    log = reopen(log, clean=True)
    assert log.directory.filesystem.list(DIRECTORY) == before
    assert values(log) == expected


def test_a_sound_batch_with_the_wrong_offset_ends_the_log() -> None:
    log, expected = written(10, checkpoint_at=3)
    size = size_of(log, 0)
    crashing(log).corrupt(log_path(), 6 * size, struct.pack(">q", 8))
    log = reopen(log, clean=False)
    assert log.offsets.end == 6
    assert values(log) == expected[:6]
    assert "offset 8 where 6 must come" in log.reports.recovery.cuts[0].reason


def test_a_snapshot_that_was_not_believed_once_is_never_believed() -> None:
    for seed in range(30):
        filesystem = disk(seed)
        log = open_log(filesystem, ONE_SEGMENT)
        fill(log, 5)
        log.checkpoint()
        append(log, producer=77, sequence=0)
        flush(log)
        filesystem.replace(beside(Suffix.SNAPSHOT, 6), encode_snapshot(log.replayed.producers.snapshot_entries()))
        filesystem.cut(log_path(), 5 * size_of(log, 0))
        log = open_log(filesystem, ONE_SEGMENT, recovery_point=5, clean=False)
        expected = fill(log, 3)
        flush(log)
        filesystem.crash()
        log = open_log(filesystem, ONE_SEGMENT, recovery_point=5, clean=False)
        assert values(log, 5) == expected
        assert not log.replayed.producers.describe()


@pytest.mark.parametrize("offset", [3, 12, 39])
def test_a_wrong_offset_in_a_batch_that_the_index_names_gives_nobody_another_record(offset: int) -> None:
    """Offsets are outside of the CRC, and far below the recovery point nothing is scanned."""
    log, expected = written(60, TopicSettings(index_interval_bytes=0), checkpoint_at=60)
    size = size_of(log, 0)
    for claimed in (offset + 1, offset + 5, offset - 1, 2**40):
        if claimed == offset:
            continue
        crashing(log).corrupt(log_path(), offset * size, struct.pack(">q", claimed))
        found = open_log(log.directory.filesystem, log.settings, recovery_point=60, clean=True)
        for wanted in range(60):
            if wanted == offset:
                with pytest.raises(DamagedLog):
                    batch_bytes(found, wanted, 1)
            else:
                assert expected[wanted] in batch_bytes(found, wanted, 1)
        assert damaged(found) == [(offset, offset + 1)]


def test_an_index_that_knows_more_than_the_log_is_not_trusted_after_a_clean_stop() -> None:
    log, expected = written(20, checkpoint_at=20)
    file = log.directory.filesystem.open(beside(Suffix.TIME_INDEX))
    file.append(struct.pack(">qi", NOW_MS + 10**9, 25))
    log = reopen(log, clean=True)
    assert append(log).base_offset == 20
    found = log.max_timestamp_offset(end_offset=21)
    assert found is not None
    assert found.timestamp_ms == NOW_MS
    assert values(log)[:20] == expected


def test_epochs_saved_for_a_log_start_that_a_crash_took_back_are_made_again() -> None:
    log = open_log(disk())
    append(log, leader_epoch=3)
    append(log, leader_epoch=4)
    log.checkpoint()
    log.delete_records_before(2)
    log.checkpoint()
    log = open_log(log.directory.filesystem, recovery_point=2, clean=False, log_start_offset=0)
    assert log.replayed.leader_epochs.entries == ((3, 0), (4, 1))


def test_aborted_transactions_are_known_though_only_the_snapshot_of_a_checkpoint_reached_the_disk() -> None:
    """The power went in the middle of a checkpoint: the recovery point is still the old one."""
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    append(log, b"aborted", producer=7, transactional=True)
    end_transaction(log, 7, committed=False)
    append(log, b"plain")
    log.checkpoint()
    assert filesystem.exists(beside(Suffix.SNAPSHOT, 3))
    log.close()
    filesystem.open(beside(Suffix.TXN_INDEX)).truncate(0)
    found = open_log(filesystem, ONE_SEGMENT, recovery_point=0, clean=False)
    assert found.aborts.between(0, 3) == [(7, 0)]


def test_an_aborted_transaction_whose_marker_a_crash_took_back_is_open_again() -> None:
    """The transaction index reached the disk before the marker did."""
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    append(log, b"open", producer=7, transactional=True)
    log.checkpoint()
    size, snapshot = filesystem.open(log_path()).size, filesystem.read_bytes(beside(Suffix.SNAPSHOT, 1))
    end_transaction(log, 7, committed=False)
    log.checkpoint()
    log.close()
    filesystem.open(log_path()).truncate(size)
    filesystem.replace(beside(Suffix.SNAPSHOT, 1), snapshot)
    found = open_log(filesystem, ONE_SEGMENT, recovery_point=1, clean=False)
    assert found.replayed.producers.first_open_offset == 0
    assert found.aborts.between(0, 1) == []
    end_transaction(found, 7, committed=False)
    assert found.aborts.between(0, 2) == [(7, 0)]


def test_a_damaged_transaction_index_is_made_again_without_a_moment_in_which_it_has_less() -> None:
    """A power cut left zeros for an entry, and then the file is caught while it is written again."""
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    append(log, b"aborted", producer=7, transactional=True)
    end_transaction(log, 7, committed=False)
    log.checkpoint()
    append(log, b"aborted too", producer=8, transactional=True)
    end_transaction(log, 8, committed=False)
    log.close()
    filesystem.open(beside(Suffix.TXN_INDEX)).append(bytes(34))
    filesystem.sync_everything()
    for _ in range(2):
        log = open_log(filesystem, ONE_SEGMENT, recovery_point=2, clean=False)
        assert log.aborts.between(0, 4) == [(7, 0), (8, 2)]
        ticket = log.begin_checkpoint()
        assert ticket is not None
        filesystem.free_for_appends = sum(
            len(write.data) for write in ticket.indexes if not write.path.endswith(Suffix.TXN_INDEX)
        )
        with pytest.raises(StorageFailure):
            ticket.write()
        filesystem.free_for_appends = None
        filesystem.sync_everything()


def test_an_aborted_transaction_is_known_though_its_segment_was_closed_during_a_checkpoint() -> None:
    """Its marker made no index entry, so the files of the closed segment looked complete without it."""
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    append(log, b"aborted", producer=7, transactional=True)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    end_transaction(log, 7, committed=False)
    later_ms = NOW_MS + ONE_SEGMENT.segment_ms
    assert log.roll_if_due(later_ms)
    append(log, b"plain", now_ms=later_ms)
    write_checkpoints(filesystem, [ticket])
    ticket.finish()
    log.checkpoint()
    found = reopen(log, clean=True)
    assert len(found.segments) == 2
    assert found.aborts.between(0, 3) == [(7, 0)]


def test_a_log_that_lost_an_index_file_can_be_read_on_a_full_disk() -> None:
    """Found by a seed: the index is made again, and there was no room for it."""
    log, expected = written(20, SMALL, checkpoint_at=20)
    filesystem = crashing(log)
    filesystem.remove(beside(Suffix.INDEX))
    filesystem.free_for_appends = 0
    log = reopen(log, clean=False)
    assert values(log) == expected
    filesystem.free_for_appends = None
    assert not filesystem.exists(beside(Suffix.INDEX))
    log = reopen(log, clean=False)
    assert values(log) == expected
    assert filesystem.exists(beside(Suffix.INDEX))


def test_a_start_on_a_full_disk_cuts_and_says_what_could_not_be_kept() -> None:
    log, expected = written(10, checkpoint_at=3)
    size = size_of(log, 0)
    crashing(log).corrupt(log_path(), 6 * size + HEADER_SIZE, b"\xff\xff")
    crashing(log).free_for_appends = size
    log = reopen(log, clean=False)
    assert values(log) == expected[:6]
    [cut] = log.reports.recovery.cuts
    assert cut.kept_in is None
    assert "whole batches in it are lost" in str(cut)
    assert not [name for name in log.directory.filesystem.list(DIRECTORY) if ".cut" in name]
