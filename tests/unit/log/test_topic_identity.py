"""A log's directory says which topic it belongs to, whatever stopped the process that made it."""

import uuid

import pytest
from tests.unit.log.log_making import DATA, DIRECTORY, NOW_MS, PARTITION, SMALL, disk, fill, flush, values

from cordwood.log.crashing_filesystem import CrashingFilesystem
from cordwood.log.data_directory import DataDirectory
from cordwood.log.log import Log
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE

TOPIC_ID = uuid.UUID(int=42)
METADATA = f"{DIRECTORY}/{METADATA_FILE}"


def opened(filesystem: CrashingFilesystem) -> tuple[DataDirectory, Log]:
    directory = DataDirectory(filesystem, DATA)
    directory.open()
    return directory, directory.open_log(PARTITION, TOPIC_ID, SMALL, NOW_MS)


def topic_id_on_disk(filesystem: CrashingFilesystem) -> uuid.UUID | None:
    directory = DataDirectory(filesystem, DATA)
    directory.open()
    return directory.partitions_on_disk()[PARTITION]


def harm(filesystem: CrashingFilesystem, how: str) -> None:
    if how == "removed":
        filesystem.remove(METADATA)
        filesystem.sync_directory(DIRECTORY)
    else:
        filesystem.cut(METADATA, 0)


def test_it_is_written_into_a_directory_that_a_killed_process_left_empty() -> None:
    filesystem = disk()
    filesystem.make_directory(DIRECTORY)
    _, log = opened(filesystem)
    fill(log, 1)
    flush(log)
    filesystem.crash()
    assert topic_id_on_disk(filesystem) == TOPIC_ID


def test_what_a_killed_process_wrote_is_durable_with_the_first_flush_of_the_next() -> None:
    """The kill came before the first segment."""
    for seed in range(20):
        filesystem = disk(seed)
        _, log = opened(filesystem)
        fill(log, 1)
        for name in filesystem.list(DIRECTORY):
            if name != METADATA_FILE:
                filesystem.remove(f"{DIRECTORY}/{name}")
        _, log = opened(filesystem)
        fill(log, 1)
        flush(log)
        filesystem.crash()
        assert topic_id_on_disk(filesystem) == TOPIC_ID


def test_what_a_killed_process_wrote_is_durable_when_its_log_is_recovered() -> None:
    for seed in range(20):
        filesystem = disk(seed)
        _, log = opened(filesystem)
        fill(log, 5)
        opened(filesystem)
        filesystem.crash()
        assert topic_id_on_disk(filesystem) == TOPIC_ID


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_recovery_writes_it_anew_and_durably(how: str) -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    fill(log, 5)
    directory.checkpoint()
    harm(filesystem, how)
    opened(filesystem)
    filesystem.crash()
    assert topic_id_on_disk(filesystem) == TOPIC_ID


def test_one_that_is_missing_is_written_anew_also_after_a_clean_stop() -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    fill(log, 5)
    directory.close()
    harm(filesystem, "removed")
    directory, _ = opened(filesystem)
    assert directory.clean
    assert topic_id_on_disk(filesystem) == TOPIC_ID


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_full_disk_keeps_nobody_from_reading_and_delays_it_to_the_next_start(how: str) -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    expected = fill(log, 5)
    directory.checkpoint()
    harm(filesystem, how)
    filesystem.free_for_appends = 0
    directory, log = opened(filesystem)
    assert values(log) == expected
    filesystem.free_for_appends = None
    directory.close()
    directory, _ = opened(filesystem)
    assert directory.clean
    assert topic_id_on_disk(filesystem) == TOPIC_ID
