"""What the metadata does not know is moved out of the way whole, and comes back whole."""

import uuid
from contextlib import suppress

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, append, fill, values

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.set_aside import read_note
from cordwood.log.directory.strays import Fate, Known
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DiskFull, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.set_aside import NOTE_FILE, Note, decode_note, encode_note, set_aside_part

PATH = "/broker/data"
SETTINGS = TopicSettings(segment_bytes=1000, index_interval_bytes=200)
ORDERS = TopicPartition("orders", 0)
TOPIC_ID, OTHER_ID = uuid.UUID(int=42), uuid.UUID(int=43)
NOTHING = Known(lambda partition: None, {})


def opened(filesystem: Filesystem) -> DataDirectory:
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    return directory


def log_of(directory: DataDirectory, partition: TopicPartition = ORDERS, topic_id: TopicId = TOPIC_ID) -> Log:
    return directory.open_log(partition, topic_id, SETTINGS, at(NOW_MS))


def with_records(filesystem: Filesystem, partition: TopicPartition = ORDERS) -> list[bytes]:
    """20 records, of which DeleteRecords took the first 5, cleanly closed."""
    directory = opened(filesystem)
    log = log_of(directory, partition)
    written = fill(log, 20)
    directory.checkpoint()
    log.delete_records_before(5)
    directory.set_clean_offset(partition, 3)
    directory.close()
    return written[5:]


def set_aside_what_is_unknown(directory: DataDirectory) -> None:
    for partition, verdict in directory.strays(NOTHING).items():
        assert verdict.fate is Fate.SET_ASIDE
        directory.set_aside(partition, verdict.reason, NOW_MS)


def put_back(filesystem: Filesystem, partition: TopicPartition = ORDERS) -> None:
    (name,) = (name for name in filesystem.list_directories(PATH) if set_aside_part(name) is not None)
    filesystem.rename(f"{PATH}/{name}", f"{PATH}/{partition}")


@pytest.mark.parametrize("topic", ["orders", "n" * 249])
def test_a_directory_that_is_put_back_has_all_it_had(topic: str) -> None:
    filesystem = MemoryFilesystem()
    partition = TopicPartition(topic, 0)
    expected = with_records(filesystem, partition)
    directory = opened(filesystem)
    set_aside_what_is_unknown(directory)
    (path,) = directory.on_disk.set_aside_directories
    assert len(path.rpartition("/")[2]) <= 255
    note = read_note(filesystem, path)
    assert note is not None
    assert (note.partition, note.topic_id) == (partition, TOPIC_ID)
    assert (note.recovery_point, note.log_start_offset, note.cleaned_to) == (20, 5, 3)
    directory.close()

    put_back(filesystem, partition)
    directory = opened(filesystem)
    log = log_of(directory, partition)
    assert values(log) == expected
    assert (log.offsets.start, log.offsets.end, directory.clean_offset(partition)) == (5, 20, 3)
    assert append(log).base_offset == 20
    assert not filesystem.exists(f"{PATH}/{partition}/{NOTE_FILE}")
    directory.close()


def test_a_later_topic_of_the_same_name_begins_at_zero_and_what_is_set_aside_is_never_written_over() -> None:
    filesystem = MemoryFilesystem()
    for life in range(3):
        directory = opened(filesystem)
        set_aside_what_is_unknown(directory)
        assert len(directory.on_disk.set_aside_directories) == life
        log = log_of(directory, topic_id=uuid.UUID(int=life + 1))
        assert (log.offsets.start, log.offsets.end) == (0, 0)
        fill(log, 5 + life)
        directory.close()
    directory = opened(filesystem)
    set_aside_what_is_unknown(directory)
    notes = [read_note(filesystem, path) for path in directory.on_disk.set_aside_directories]
    assert [note.topic_id for note in notes if note is not None] == [uuid.UUID(int=life + 1) for life in range(3)]


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_while_it_is_set_aside_loses_nothing(seed: int) -> None:
    """Cut at each sync of the way in turn; the next start sets it aside for good."""
    filesystem = CrashingFilesystem(seed)
    expected = with_records(filesystem)
    directory = opened(filesystem)
    filesystem.fail_sync_at = filesystem.syncs + seed % 8
    with suppress(SyncFailure):
        set_aside_what_is_unknown(directory)
    filesystem.crash()
    filesystem.fail_sync_at = None
    directory = opened(filesystem)
    set_aside_what_is_unknown(directory)
    log = log_of(directory, topic_id=OTHER_ID)
    assert (log.offsets.start, log.offsets.end) == (0, 0), "these are the offsets of another topic"
    directory.close()
    put_back(filesystem)
    directory = opened(filesystem)
    log = log_of(directory)
    assert (values(log), log.offsets.start, directory.clean_offset(ORDERS)) == (expected, 5, 3)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_put_back_survives_a_power_cut_during_the_next_start(seed: int) -> None:
    filesystem = CrashingFilesystem(seed)
    expected = with_records(filesystem)
    directory = opened(filesystem)
    set_aside_what_is_unknown(directory)
    directory.close()
    put_back(filesystem)
    filesystem.sync_directory(PATH)
    opened(filesystem)
    filesystem.crash()
    log = log_of(opened(filesystem))
    assert (values(log), log.offsets.start, log.offsets.end) == (expected, 5, 20)


def test_on_a_full_disk_it_stays_where_it_is_and_no_other_topic_gets_it() -> None:
    filesystem = MemoryFilesystem()
    expected = with_records(filesystem)
    filesystem.capacity_bytes = filesystem.used_bytes
    directory = opened(filesystem)
    for partition, verdict in directory.strays(Known(lambda partition: OTHER_ID, {})).items():
        with pytest.raises(DiskFull):
            directory.set_aside(partition, verdict.reason, NOW_MS)
    with pytest.raises(DiskFull):
        log_of(directory, topic_id=OTHER_ID)
    filesystem.capacity_bytes += 10_000
    assert log_of(directory, topic_id=OTHER_ID).offsets.end == 0
    directory.close()
    put_back(filesystem)
    assert values(log_of(opened(filesystem))) == expected


def test_a_damaged_topic_id_is_written_again_where_the_name_leaves_no_doubt() -> None:
    filesystem = CrashingFilesystem(0)
    expected = with_records(filesystem)
    path = f"{PATH}/orders-0/{METADATA_FILE}"
    whole = filesystem.read_bytes(path)
    for bit in range(0, len(whole) * 8, 5):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        filesystem.corrupt(path, 0, bytes(flipped))
        directory = opened(filesystem)
        verdict = directory.strays(Known({ORDERS: TOPIC_ID}.get, {}))[ORDERS]
        assert verdict.fate is Fate.REPAIRED
        assert values(log_of(directory)) == expected
        directory.close()
        assert filesystem.read_bytes(path) == whole


def test_where_the_name_leaves_a_doubt_a_damaged_topic_id_sets_the_directory_aside() -> None:
    filesystem = CrashingFilesystem(0)
    with_records(filesystem)
    filesystem.corrupt(f"{PATH}/orders-0/{METADATA_FILE}", 25, b"??")
    directory = opened(filesystem)
    assert directory.strays(Known({ORDERS: OTHER_ID}.get, {TOPIC_ID: "orders"}))[ORDERS].fate is Fate.SET_ASIDE
    assert directory.strays(NOTHING)[ORDERS].fate is Fate.SET_ASIDE


def test_a_directory_of_others_that_is_named_as_one_to_delete_stays() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(f"{PATH}/letters.1-delete")
    filesystem.replace(f"{PATH}/letters.1-delete/draft.txt", b"mine")
    opened(filesystem).close()
    assert filesystem.read_bytes(f"{PATH}/letters.1-delete/draft.txt") == b"mine"


def test_temporary_files_of_others_stay() -> None:
    filesystem = MemoryFilesystem()
    with_records(filesystem)
    for name in ("draft.tmp", f"{METADATA_FILE}.tmp", "00000000000000000000.snapshot.tmp"):
        filesystem.replace(f"{PATH}/orders-0/{name}", b"mine")
    log_of(opened(filesystem))
    assert [name for name in filesystem.list(f"{PATH}/orders-0") if name.endswith(".tmp")] == ["draft.tmp"]


def test_a_note_is_whole_or_refused() -> None:
    note = Note(ORDERS, TOPIC_ID, "nobody knows it", NOW_MS, 20, None, 3)
    data = encode_note(note)
    assert decode_note(data) == note
    assert decode_note(encode_note(note._replace(topic_id=None))).topic_id is None
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with suppress(DamagedCheckpoint):
            assert decode_note(flipped) == note, "only white space may have changed"


OTHER = TopicPartition(ORDERS.topic, 7)
"""A number that the topic has, and that has no directory."""


def named(filesystem: Filesystem) -> list[str]:
    return filesystem.list_directories(PATH)


def test_a_directory_that_was_renamed_within_its_topic_gets_its_name_back() -> None:
    """Under another number its records would be in a partition that their keys do not lead to."""
    filesystem = CrashingFilesystem()
    written = with_records(filesystem)
    filesystem.rename(f"{PATH}/{ORDERS}", f"{PATH}/{OTHER}")
    directory = opened(filesystem)
    assert f"it was renamed to {OTHER}, and its partition.metadata names {ORDERS}" in directory.problems[0]
    assert named(filesystem) == [str(ORDERS)]
    assert values(log_of(directory)) == written
    assert log_of(directory, OTHER).offsets.end == 0
    assert not filesystem.exists(f"{PATH}/{ORDERS}/{NOTE_FILE}")


class Killed(BaseException):
    pass


class KilledFilesystem(MemoryFilesystem):
    """Ends the process before one of its changes to names, by number."""

    changes_left = 10**6

    def rename(self, old: str, new: str) -> None:
        if self.changes_left == 0:
            raise Killed
        self.changes_left -= 1
        super().rename(old, new)


def test_directories_that_were_swapped_are_swapped_back_also_if_the_process_is_killed_in_between() -> None:
    for changes in range(12):
        filesystem = KilledFilesystem()
        written = {each: with_records(filesystem, each) for each in (ORDERS, OTHER)}
        directory = opened(filesystem)
        append(log_of(directory, OTHER), b"only here")
        written[OTHER].append(b"only here")
        directory.close()
        for old, new in ((ORDERS, "x"), (OTHER, ORDERS), ("x", OTHER)):
            filesystem.rename(f"{PATH}/{old}", f"{PATH}/{new}")
        filesystem.changes_left = changes
        with suppress(Killed):
            opened(filesystem)
        filesystem.changes_left = 10**6
        directory = opened(filesystem)
        assert named(filesystem) == sorted(map(str, written))
        for each, expected in written.items():
            log = log_of(directory, each)
            assert (log.offsets.start, values(log), log.reports.damage) == (5, expected, [])


def test_a_copy_of_a_directory_under_another_number_is_set_aside() -> None:
    filesystem = MemoryFilesystem()
    written = with_records(filesystem)
    filesystem.make_directory(f"{PATH}/{OTHER}")
    for name in filesystem.list(f"{PATH}/{ORDERS}"):
        filesystem.replace(f"{PATH}/{OTHER}/{name}", filesystem.read_bytes(f"{PATH}/{ORDERS}/{name}"))
    directory = opened(filesystem)
    assert f"{OTHER}.0-stray is a copy of {PATH}/{ORDERS}" in directory.problems[0]
    assert directory.on_disk.set_aside_directories == [f"{PATH}/{OTHER}.0-stray"]
    assert values(log_of(directory)) == written
    assert log_of(directory, OTHER).offsets.end == 0


KNOWN = Known(lambda partition: TOPIC_ID, {})
"""The metadata has the topic with all partitions."""


@pytest.mark.parametrize("harm", [b"", b"version: 0\ntopic_id: scribble\n", None])
def test_a_directory_that_was_renamed_and_no_longer_says_whose_it_is_is_set_aside(harm: bytes | None) -> None:
    """Served under its new name, its records would be another partition's, and its offsets given out twice."""
    filesystem = CrashingFilesystem()
    with_records(filesystem)
    filesystem.rename(f"{PATH}/{ORDERS}", f"{PATH}/{OTHER}")
    spoil_metadata(filesystem, OTHER, harm)
    verdict = opened(filesystem).strays(KNOWN)[OTHER]
    assert verdict.fate is Fate.SET_ASIDE
    assert f"{ORDERS}, which had records, has no directory" in verdict.reason


def spoil_metadata(filesystem: Filesystem, partition: TopicPartition, harm: bytes | None) -> None:
    path = f"{PATH}/{partition}/{METADATA_FILE}"
    if harm is None:
        filesystem.remove(path)
    else:
        filesystem.replace(path, harm)


def test_of_two_swapped_directories_the_one_that_names_its_partition_is_served_in_the_end() -> None:
    filesystem = CrashingFilesystem()
    written = {each: with_records(filesystem, each) for each in (ORDERS, OTHER)}
    for old, new in ((ORDERS, "x"), (OTHER, ORDERS), ("x", OTHER)):
        filesystem.rename(f"{PATH}/{old}", f"{PATH}/{new}")
    spoil_metadata(filesystem, ORDERS, b"")
    directory = opened(filesystem)
    strays = directory.strays(KNOWN)
    assert [(each, verdict.fate) for each, verdict in strays.items()] == [(ORDERS, Fate.SET_ASIDE)]
    directory.set_aside(ORDERS, strays[ORDERS].reason, NOW_MS)
    directory.close(clean=False)
    directory = opened(filesystem)
    assert not directory.strays(KNOWN)
    assert values(log_of(directory)) == written[ORDERS]


def test_a_copy_that_does_not_say_whose_it_is_is_set_aside() -> None:
    filesystem = CrashingFilesystem()
    with_records(filesystem)
    filesystem.make_directory(f"{PATH}/{OTHER}")
    for name in filesystem.list(f"{PATH}/{ORDERS}"):
        filesystem.replace(f"{PATH}/{OTHER}/{name}", filesystem.read_bytes(f"{PATH}/{ORDERS}/{name}"))
    spoil_metadata(filesystem, OTHER, b"")
    verdict = opened(filesystem).strays(KNOWN)[OTHER]
    assert verdict.fate is Fate.SET_ASIDE
    assert "it may be a copy" in verdict.reason


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_under_its_own_name_is_opened_without_its_metadata(clean: bool) -> None:
    filesystem = CrashingFilesystem()
    written = with_records(filesystem)
    if not clean:
        opened(filesystem)
    spoil_metadata(filesystem, ORDERS, b"")
    directory = opened(filesystem)
    assert directory.strays(KNOWN)[ORDERS].fate is Fate.REPAIRED
    assert values(log_of(directory)) == written
