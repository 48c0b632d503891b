"""An open log whose records nobody else may have leaves its name, whole, while the broker runs."""

from contextlib import suppress

import pytest
from tests.unit.log.log_making import NOW_MS, append, fill, values
from tests.unit.log.test_set_aside import (
    NOTHING,
    ORDERS,
    OTHER_ID,
    PATH,
    TOPIC_ID,
    log_of,
    opened,
    put_back,
    set_aside_what_is_unknown,
    with_records,
)

from cordwood.log.directory.condemned import Removal
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.set_aside import read_note
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.model.errors import DiskFull, SyncFailure

ASIDE = f"{PATH}/{ORDERS}.0-stray"


def begin(directory: DataDirectory) -> Removal:
    return directory.set_logs_aside([(TOPIC_ID, ORDERS)], "it was given up", NOW_MS)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_log_leaves_its_name_with_its_offsets(is_open: bool) -> None:
    filesystem = MemoryFilesystem()
    expected = with_records(filesystem)
    directory = opened(filesystem)
    if is_open:
        log_of(directory)
    begin(directory).run()
    assert not directory.has_log(ORDERS)
    assert directory.on_disk.set_aside_directories == [ASIDE]
    note = read_note(filesystem, ASIDE)
    assert note is not None
    assert (note.partition, note.topic_id, note.reason) == (ORDERS, TOPIC_ID, "it was given up")
    assert (note.recovery_point, note.log_start_offset, note.cleaned_to) == (20, 5, 3)
    directory.close()
    put_back(filesystem)
    log = log_of(opened(filesystem))
    assert (values(log), log.offsets.start, log.offsets.end) == (expected, 5, 20)


def test_the_name_is_free_before_a_thread_has_renamed_the_directory() -> None:
    filesystem = MemoryFilesystem()
    with_records(filesystem)
    directory = opened(filesystem)
    old = log_of(directory)
    removal = begin(directory)
    log = log_of(directory, topic_id=OTHER_ID)
    assert log is not old
    assert (log.offsets.start, log.offsets.end) == (0, 0)
    new = fill(log, 3)
    removal.run()
    assert values(log) == new
    directory.close()
    directory = opened(filesystem)
    assert values(log_of(directory, topic_id=OTHER_ID)) == new
    assert directory.on_disk.set_aside_directories == [ASIDE]


def test_a_partition_without_files_leaves_nothing_behind() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    log_of(directory)
    begin(directory).run()
    begin(directory).run()
    assert directory.on_disk.set_aside_directories == []
    directory.checkpoint()


@pytest.mark.parametrize("saved_meanwhile", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_meanwhile_loses_nothing(seed: int, saved_meanwhile: bool) -> None:
    """Cut at each sync of the way in turn; the next start sets it aside if it has its old name."""
    filesystem = CrashingFilesystem(seed)
    expected = with_records(filesystem)
    directory = opened(filesystem)
    expected.append(append_one(directory))
    directory.checkpoint()
    filesystem.fail_sync_at = filesystem.syncs + seed % 14
    with suppress(SyncFailure):
        removal = begin(directory)
        if saved_meanwhile:
            directory.checkpoint()
        removal.run()
    filesystem.crash()
    filesystem.fail_sync_at = None
    directory = opened(filesystem)
    set_aside_what_is_unknown(directory)
    assert directory.strays(NOTHING) == {}
    log = log_of(directory, topic_id=OTHER_ID)
    assert (log.offsets.start, log.offsets.end) == (0, 0), "these are the offsets of another topic"
    directory.close()
    put_back(filesystem)
    directory = opened(filesystem)
    log = log_of(directory)
    assert (values(log), log.offsets.start, directory.clean_offset(ORDERS)) == (expected, 5, 3)


def append_one(directory: DataDirectory) -> bytes:
    log = log_of(directory)
    append(log, b"one more")
    return b"one more"


def test_records_that_were_not_durable_yet_are_durable_with_the_new_name() -> None:
    filesystem = CrashingFilesystem(1)
    expected = with_records(filesystem)
    directory = opened(filesystem)
    expected.append(append_one(directory))
    begin(directory).run()
    filesystem.crash()
    put_back(filesystem)
    assert values(log_of(opened(filesystem))) == expected


def test_on_a_full_disk_the_name_is_free_once_there_is_room() -> None:
    filesystem = MemoryFilesystem()
    expected = with_records(filesystem)
    directory = opened(filesystem)
    log_of(directory)
    filesystem.capacity_bytes = filesystem.used_bytes
    with pytest.raises(DiskFull):
        begin(directory).run()
    with pytest.raises(DiskFull):
        log_of(directory, topic_id=OTHER_ID)
    filesystem.capacity_bytes += 10_000
    assert log_of(directory, topic_id=OTHER_ID).offsets.end == 0
    directory.close()
    put_back(filesystem)
    assert values(log_of(opened(filesystem))) == expected
