"""A log whose first files are missing: the saved log start tells their loss from retention."""

import uuid

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, bases, batch_bytes, fill, values

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DamagedLog
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import assign_offset
from cordwood.records.build import build_batch
from cordwood.segments.checkpoint_witness import witness_path
from cordwood.segments.end_witness import ENTRY_SIZE
from cordwood.segments.end_witness import FILE_NAMES as END_WITNESS
from cordwood.segments.filesystem import remove_if_there
from cordwood.segments.leader_epochs import FILE_NAME as EPOCHS_FILE
from cordwood.segments.leader_epochs import WITNESS_FILE_NAME as EPOCHS_WITNESS
from cordwood.segments.names import SegmentFileName, Suffix, parse_segment_file, segment_file
from cordwood.segments.offset_checkpoint import LOG_START_FILE

PATH = "/broker/data"
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=42)
KEEPS_ALL = TopicSettings(segment_bytes=1000, index_interval_bytes=200)
KEEPS_LITTLE = TopicSettings(segment_bytes=1000, index_interval_bytes=200, retention_bytes=2000, file_delete_delay_ms=0)
COMPACTED = TopicSettings(segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",))


def opened(filesystem: CrashingFilesystem, settings: TopicSettings = KEEPS_ALL) -> tuple[DataDirectory, Log]:
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    return directory, directory.open_log(ORDERS, TOPIC_ID, settings, at(NOW_MS))


def end(directory: DataDirectory, log: Log, *, clean: bool) -> None:
    """Ends the life of a broker; without `clean` by kill -9."""
    if clean:
        directory.close()
    else:
        log.close()


def files(filesystem: CrashingFilesystem) -> list[SegmentFileName]:
    names = [parse_segment_file(name) for name in filesystem.list(f"{PATH}/{ORDERS}")]
    return [name for name in names if name is not None]


def lose(filesystem: CrashingFilesystem, *base_offsets: int) -> None:
    """Removes all files of segments, as a wrong command of an operator does."""
    for name in files(filesystem):
        if name.base_offset in base_offsets and name.suffix is not Suffix.SNAPSHOT:
            filesystem.remove(segment_file(f"{PATH}/{ORDERS}", *name))


def damaged(log: Log) -> list[tuple[int, int]]:
    return [(each.first_offset, each.end_offset) for each in log.reports.damage]


@pytest.mark.parametrize("settings", [KEEPS_ALL, KEEPS_LITTLE, COMPACTED])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [1, 2])
def test_missing_first_files_are_damage_and_the_rest_is_served(clean: bool, lost: int, settings: TopicSettings) -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, settings)
    expected = fill(log, 40)
    directory.checkpoint()
    there = bases(log)
    end(directory, log, clean=clean)
    lose(filesystem, *there[:lost])
    for _ in range(3):
        directory, log = opened(filesystem, settings)
        assert damaged(log) == [(0, there[lost])]
        assert (log.offsets.start, log.offsets.end) == (0, 40)
        with pytest.raises(DamagedLog):
            batch_bytes(log, 0)
        assert values(log, there[lost]) == expected[there[lost] :]
        end(directory, log, clean=False)


def test_a_log_that_retention_had_shortened_says_which_of_its_files_are_missing() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, KEEPS_LITTLE)
    fill(log, 60)
    directory.checkpoint()
    assert log.apply_retention(at(NOW_MS), limit_offset=60)
    start, second = bases(log)[:2]
    assert start > 0
    directory.close()
    lose(filesystem, start)
    _, log = opened(filesystem, KEEPS_LITTLE)
    assert damaged(log) == [(start, second)]


def test_a_file_that_is_put_back_mends_the_log() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    expected = fill(log, 40)
    directory.close()
    path = segment_file(f"{PATH}/{ORDERS}", 0, Suffix.LOG)
    copy = filesystem.read_bytes(path)
    lose(filesystem, 0)
    directory, log = opened(filesystem)
    end(directory, log, clean=False)
    filesystem.replace(path, copy)
    _, log = opened(filesystem)
    assert damaged(log) == []
    assert values(log) == expected


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_files_that_retention_dropped_are_not_missed(steps: int, power: bool) -> None:
    """A crash after each step of a removal: dropped, start saved, files removed, checkpoint; and the next start."""
    for seed in range(10):
        filesystem = CrashingFilesystem(seed)
        directory, log = opened(filesystem, KEEPS_LITTLE)
        fill(log, 60)
        directory.checkpoint()
        assert log.apply_retention(at(NOW_MS), limit_offset=60)
        kept = bases(log)[0]
        due, save = log.segments.take_due_deletions(NOW_MS), log.offsets.on_removal()
        if steps > 0:
            save()
        for path in due if steps > 1 else ():
            remove_if_there(filesystem, path)
        if steps > 2:
            directory.checkpoint()
        for _ in range(2):
            if power:
                filesystem.crash()
            else:
                end(directory, log, clean=False)
            directory, log = opened(filesystem, KEEPS_LITTLE)
            assert damaged(log) == []
            assert log.offsets.start <= kept
        save = log.offsets.on_removal()
        save()
        for path in log.segments.take_due_deletions(NOW_MS):
            remove_if_there(filesystem, path)
        end(directory, log, clean=False)
        assert damaged(opened(filesystem, KEEPS_LITTLE)[1]) == []


def test_a_log_that_began_anew_further_on_misses_nothing() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 40)
    directory.checkpoint()
    directory.cuts.begin(log, 100, anew=True)()
    assert directory.cuts.end(log)
    end(directory, log, clean=False)
    _, log = opened(filesystem)
    assert (damaged(log), log.offsets.start, log.offsets.end) == ([], 100, 100)


@pytest.mark.parametrize("harm", ["no witness", "no entry"])
def test_a_start_that_is_not_known_is_where_the_first_file_begins(harm: str) -> None:
    """Kafka keeps no log start of a log that begins with its first file."""
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 40)
    second = bases(log)[1]
    directory.close()
    lose(filesystem, 0)
    path = f"{PATH}/{LOG_START_FILE}"
    filesystem.remove(witness_path(path))
    for name in END_WITNESS:
        remove_if_there(filesystem, f"{PATH}/{name}")
    if harm == "no entry":
        filesystem.replace(path, b"0\n0\n")
    for _ in range(2):
        directory, log = opened(filesystem)
        assert (damaged(log), log.offsets.start) == ([], second)
        assert log.offsets.start_in_doubt, "first files may be missing"
        assert log.offsets.told_start == 0, "followers keep their records"
        # A checkpoint must not make a fact of the start.
        directory.close()
    directory, log = opened(filesystem)
    log.delete_records_before(second)
    assert log.offsets.told_start == second
    directory.close()
    _, log = opened(filesystem)
    assert (log.offsets.start, log.in_doubt) == (second, False)


def refill(log: Log, first_offset: int, batches: int = 20, *, leader_epoch: int = 3) -> None:
    """Fills an empty follower's log with batches of a leader whose compaction left nothing before the first offset."""
    for offset in range(first_offset, first_offset + batches):
        batch = build_batch([(NOW_MS, b"key", b"%d" % offset + bytes(100), ())])
        assign_offset(batch, offset, leader_epoch)
        log.append_replicated(batch, leader_epoch=leader_epoch, now=at(NOW_MS))


def test_a_refilled_log_that_is_killed_before_its_first_checkpoint_is_in_doubt() -> None:
    """Its leader knows whether records lie before the first file: none do, or the log is filled once more."""
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, COMPACTED)
    refill(log, 190)
    end(directory, log, clean=False)
    _, log = opened(filesystem, COMPACTED)
    assert (damaged(log), log.offsets.start_in_doubt, log.offsets.told_start) == ([], True, 0)


def placeholder(filesystem: CrashingFilesystem, end_offset: int) -> None:
    """Puts a file in the place of first files that were never there, as an earlier release did."""
    text = f"The files of offsets 0 to {end_offset - 1} were missing when the log was opened."
    filesystem.replace(segment_file(f"{PATH}/{ORDERS}", 0, Suffix.LOG), text.encode())


@pytest.mark.parametrize("settings", [KEEPS_ALL, COMPACTED])
@pytest.mark.parametrize("clean", [True, False])
def test_a_refilled_log_whose_leader_had_compacted_its_first_batches_away_misses_nothing(
    clean: bool, settings: TopicSettings
) -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, settings)
    refill(log, 190)
    whole = batch_bytes(log, 0)
    directory.checkpoint()
    for _ in range(3):
        end(directory, log, clean=clean)
        directory, log = opened(filesystem, settings)
        assert (damaged(log), log.offsets.start, log.offsets.end) == ([], 0, 210)
        assert batch_bytes(log, 0) == whole


def test_a_refilled_log_that_then_loses_its_first_file_misses_its_records() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, COMPACTED)
    refill(log, 190)
    directory.close()
    first, second = bases(log)[:2]
    assert first == 190
    lose(filesystem, first)
    _, log = opened(filesystem, COMPACTED)
    assert damaged(log) == [(first, second)]


def test_a_refilled_log_that_is_cut_before_its_first_file_goes_on_there() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, COMPACTED)
    refill(log, 190)
    directory.checkpoint()
    directory.cuts.begin(log, 150, anew=False)()
    assert directory.cuts.end(log)
    refill(log, 150, leader_epoch=4)
    for clean in (False, True, False):
        assert (damaged(log), log.offsets.end, bases(log)[0]) == ([], 170, 150)
        end(directory, log, clean=clean)
        directory, log = opened(filesystem, COMPACTED)


def test_a_log_that_an_empty_leader_led_before_it_was_refilled_misses_nothing() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, COMPACTED)
    log.begin_epoch(2)
    refill(log, 190, leader_epoch=3)
    assert log.replayed.leader_epochs.entries[0] == (3, 190)
    directory.close()
    assert damaged(opened(filesystem, COMPACTED)[1]) == []


@pytest.mark.parametrize("clean", [True, False])
def test_the_file_that_an_earlier_release_put_in_the_place_of_files_that_never_were_is_removed(clean: bool) -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, COMPACTED)
    refill(log, 190)
    whole = batch_bytes(log, 0)
    directory.checkpoint()
    end(directory, log, clean=clean)
    placeholder(filesystem, 190)
    directory, log = opened(filesystem, COMPACTED)
    assert (damaged(log), log.offsets.start, bases(log)[0]) == ([], 0, 190)
    assert batch_bytes(log, 0) == whole
    end(directory, log, clean=clean)
    assert damaged(opened(filesystem, COMPACTED)[1]) == []


def test_missing_first_files_stay_damage_when_the_leader_epochs_are_lost_as_well() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 40)
    second = bases(log)[1]
    directory.checkpoint()
    end(directory, log, clean=False)
    lose(filesystem, 0)
    for name in (EPOCHS_FILE, EPOCHS_WITNESS):
        filesystem.remove(f"{PATH}/{ORDERS}/{name}")
    for _ in range(3):
        directory, log = opened(filesystem)
        assert damaged(log) == [(0, second)]
        directory.checkpoint()
        end(directory, log, clean=False)


# Before the first checkpoint


@pytest.mark.parametrize("settings", [KEEPS_ALL, COMPACTED])
@pytest.mark.parametrize("lost", [1, 2])
def test_first_files_that_are_missing_before_the_first_checkpoint_are_damage(
    lost: int, settings: TopicSettings
) -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem, settings)
    expected = fill(log, 40)
    there = bases(log)
    end(directory, log, clean=False)
    lose(filesystem, *there[:lost])
    for _ in range(3):
        directory, log = opened(filesystem, settings)
        assert damaged(log) == [(0, there[lost])]
        assert (log.offsets.start, log.offsets.end, log.offsets.end_in_doubt) == (0, 40, False)
        assert values(log, there[lost]) == expected[there[lost] :]
        end(directory, log, clean=False)
    directory, log = opened(filesystem, settings)
    directory.close()
    assert opened(filesystem, settings)[1].offsets.start == 0


def test_a_file_that_is_missing_after_the_log_began_anew_is_damage() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 40)
    directory.cuts.begin(log, 100, anew=True)()
    assert directory.cuts.end(log)
    refill(log, 100)
    first, second = bases(log)[:2]
    end(directory, log, clean=False)
    assert damaged(opened(filesystem)[1]) == []
    lose(filesystem, first)
    _, log = opened(filesystem)
    assert (first, damaged(log)) == (100, [(100, second)])


@pytest.mark.parametrize("checkpoint", ["none", "of another log", "that was not saved"])
def test_a_log_whose_directory_is_missing_before_its_first_checkpoint_is_lost(checkpoint: str) -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    if checkpoint == "of another log":
        other = directory.open_log(TopicPartition("other", 0), uuid.UUID(int=43), KEEPS_ALL, at(NOW_MS))
        fill(other, 3)
    fill(log, 10)
    if checkpoint == "of another log":
        directory.hold(log)
        directory.checkpoint()
        directory.checkpoint()
    elif checkpoint == "that was not saved":
        directory.checkpoints.begin().write()
    end(directory, log, clean=False)
    filesystem.remove_tree(f"{PATH}/{ORDERS}")
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    assert directory.lacks(TOPIC_ID, ORDERS)
    assert not directory.lacks(uuid.UUID(int=44), ORDERS), "a new topic of the same name has lost nothing"
    log = directory.open_log(ORDERS, TOPIC_ID, KEEPS_ALL, at(NOW_MS))
    assert log.lost
    fill(log, 1)
    end(directory, log, clean=False)
    directory, log = opened(filesystem)
    assert not log.lost, "it has records again"


def test_a_log_whose_loss_was_accepted_is_not_missed_again() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 10)
    end(directory, log, clean=False)
    filesystem.remove_tree(f"{PATH}/{ORDERS}")
    directory, log = opened(filesystem)
    log.accept_lost_end()
    assert not log.lost
    end(directory, log, clean=False)
    assert not opened(filesystem)[1].lost


def test_the_witness_does_not_grow_with_topics_that_come_and_go() -> None:
    filesystem = CrashingFilesystem()
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    for number in range(20):
        log = directory.open_log(ORDERS, uuid.UUID(int=number + 1), KEEPS_ALL, at(NOW_MS))
        fill(log, 1)
        directory.delete_log(ORDERS)
        directory.checkpoint()
    assert sum(filesystem.open(f"{PATH}/{name}").size for name in END_WITNESS) < 5 * ENTRY_SIZE


def test_a_log_that_left_its_directory_is_not_missed() -> None:
    filesystem = CrashingFilesystem()
    directory, log = opened(filesystem)
    fill(log, 10)
    directory.set_logs_aside([(TOPIC_ID, ORDERS)], "it is tested", NOW_MS).run()
    directory.close(clean=False)
    directory, log = opened(filesystem)
    assert not log.lost


def test_a_power_cut_before_the_first_checkpoint_leaves_neither_damage_nor_doubt() -> None:
    for seed in range(60):
        filesystem = CrashingFilesystem(seed)
        for _ in range(3):
            directory, log = opened(filesystem)
            assert (damaged(log), log.offsets.end_in_doubt) == ([], False)
            fill(log, 1 + seed % 20)
            if seed % 3 == 0 and (ticket := log.begin_flush()) is not None:
                ticket.sync()
                directory.note_durable([ticket])
                ticket.finish()
            filesystem.crash()
