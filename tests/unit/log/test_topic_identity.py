"""A log's directory says which topic it belongs to, whatever stopped the process that made it."""

import uuid

import pytest
from tests.moments import at
from tests.unit.log.log_making import DATA, DIRECTORY, NOW_MS, PARTITION, SMALL, disk, fill, flush, values

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import TopicDescription, decode_partition_metadata

TOPIC_ID = uuid.UUID(int=42)
METADATA = f"{DIRECTORY}/{METADATA_FILE}"


def opened(filesystem: CrashingFilesystem) -> tuple[DataDirectory, Log]:
    directory = DataDirectory(filesystem, DATA)
    directory.open()
    return directory, directory.open_log(PARTITION, TOPIC_ID, SMALL, at(NOW_MS))


def topic_id_on_disk(filesystem: CrashingFilesystem) -> uuid.UUID | None:
    directory = DataDirectory(filesystem, DATA)
    directory.open()
    return directory.on_disk.topic_ids()[PARTITION]


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


DESCRIBED = TopicDescription(3, {"retention.ms": "1000"})
CHANGED = TopicDescription(7, {})


def description_on_disk(filesystem: CrashingFilesystem) -> TopicDescription | None:
    return decode_partition_metadata(filesystem.read_bytes(METADATA)).description


def test_the_number_of_partitions_and_the_settings_are_durable_with_the_first_flush() -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    directory.describe_topic(TOPIC_ID, DESCRIBED)
    fill(log, 1)
    flush(log)
    filesystem.crash()
    assert description_on_disk(filesystem) == DESCRIBED


def test_a_change_of_them_is_durable_with_the_next_checkpoint_also_of_a_log_that_is_not_open() -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    directory.describe_topic(TOPIC_ID, DESCRIBED)
    fill(log, 1)
    directory.checkpoint()
    directory.describe_topic(TOPIC_ID, CHANGED)
    directory.checkpoint()
    filesystem.crash()
    assert description_on_disk(filesystem) == CHANGED
    directory = DataDirectory(filesystem, DATA)
    directory.open()
    assert directory.on_disk.topic_ids() == {PARTITION: TOPIC_ID}
    directory.describe_topic(TOPIC_ID, DESCRIBED)
    directory.checkpoint()
    filesystem.crash()
    assert description_on_disk(filesystem) == DESCRIBED


def test_a_late_change_does_not_name_a_deleted_topic_in_the_directory_of_the_next_one_of_its_name() -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    fill(log, 1)
    directory.checkpoint()
    directory.describe_topic(TOPIC_ID, CHANGED)
    checkpoint = directory.checkpoints.begin()
    save = directory.checkpoints.finish(checkpoint)
    directory.delete_log(PARTITION)
    other_id = uuid.UUID(int=43)
    fill(directory.open_log(PARTITION, other_id, SMALL, at(NOW_MS)), 1)
    save()
    assert topic_id_on_disk(filesystem) == other_id
    assert filesystem.list_directories(DATA) == [str(PARTITION)]
    assert not [name for name in filesystem.list(DATA) if "draft" in name]


def test_a_change_that_finds_no_room_waits_for_the_next_checkpoint() -> None:
    filesystem = disk()
    directory, log = opened(filesystem)
    fill(log, 1)
    directory.checkpoint()
    directory.describe_topic(TOPIC_ID, CHANGED)
    filesystem.free_for_appends = 10
    directory.checkpoint()
    assert description_on_disk(filesystem) is None
    filesystem.free_for_appends = None
    directory.checkpoint()
    assert description_on_disk(filesystem) == CHANGED
