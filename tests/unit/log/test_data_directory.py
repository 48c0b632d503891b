"""A broker's data directory: whose it is, where its logs stand, and what a stop leaves for the next start."""

import os
import uuid
import zlib
from pathlib import Path

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, append, fill, flush, values

from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from cordwood.log.directory.identity import Identity
from cordwood.log.directory.strays import Fate, Known
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.files.os_file import OsFile
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.checkpoint_witness import witness_path
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.names import Suffix
from cordwood.segments.offset_checkpoint import CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, decode_offsets

PATH = "/broker/data"
SETTINGS = TopicSettings(segment_bytes=1000, index_interval_bytes=200)
COMPACTED = TopicSettings(segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",))
SHORT_LIVED = TopicSettings(segment_bytes=1000, index_interval_bytes=200, retention_bytes=0, file_delete_delay_ms=0)
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=42)


def nothing_known() -> Known:
    return Known(lambda partition: None, {})


def opened(filesystem: Filesystem, path: str = PATH, identity: Identity | None = None) -> DataDirectory:
    directory = DataDirectory(filesystem, path)
    directory.open(identity)
    return directory


def log_of(directory: DataDirectory, partition: TopicPartition = ORDERS, topic_id: TopicId | None = TOPIC_ID) -> Log:
    return directory.open_log(partition, topic_id, SETTINGS, at(NOW_MS))


@pytest.fixture(params=["memory", "crashing", "os"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Filesystem, str]:
    if request.param == "os":
        return OsFilesystem(str(tmp_path), max_open_files=8), f"{tmp_path}/data"
    return (MemoryFilesystem() if request.param == "memory" else CrashingFilesystem()), PATH


def test_logs_come_back_after_a_clean_stop_without_a_look_at_them(place: tuple[Filesystem, str]) -> None:
    filesystem, path = place
    directory = opened(filesystem, path)
    assert not directory.clean
    written = {}
    for number in range(12):
        partition = TopicPartition("many-words", number)
        written[partition] = fill(log_of(directory, partition), number * 3)
    directory.close()
    directory = opened(filesystem, path)
    assert directory.clean
    assert not filesystem.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"), "from now on a stop is unclean"
    for partition, expected in written.items():
        log = log_of(directory, partition)
        assert log.replayed.ready == (not expected)
        assert log.offsets.end == len(expected)
        assert values(log) == expected
        assert log.reports.recovery.clean
    directory.close()


def test_a_stop_without_room_gives_the_handles_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = OsFilesystem(str(tmp_path), max_open_files=8)
    directory = opened(filesystem, f"{tmp_path}/data")
    written = fill(log_of(directory), 20)

    def full(*_: object) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "append", full)
        with pytest.raises(DiskFull):
            directory.close()
    filesystem.close()
    left = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in left if path.startswith(str(tmp_path))]
    assert values(log_of(opened(filesystem, f"{tmp_path}/data"))) == written


def test_logs_are_recovered_after_any_other_stop(place: tuple[Filesystem, str]) -> None:
    filesystem, path = place
    directory = opened(filesystem, path)
    log = log_of(directory)
    written = fill(log, 10)
    directory.checkpoint()
    written += fill(log, 10)
    directory.close(clean=False)
    directory = opened(filesystem, path)
    assert not directory.clean
    log = log_of(directory)
    assert log.offsets.recovery_point == 10
    assert not log.reports.recovery.clean
    assert values(log) == written
    directory.close()


def test_a_clean_stop_counts_once() -> None:
    for seed in range(20):
        filesystem = CrashingFilesystem(seed)
        directory = opened(filesystem)
        append(log_of(directory))
        directory.close()
        assert opened(filesystem).clean
        filesystem.crash()
        assert not opened(filesystem).clean


def test_a_log_is_opened_once() -> None:
    directory = opened(MemoryFilesystem())
    assert log_of(directory) is log_of(directory)
    assert directory.log(ORDERS) is log_of(directory)
    assert directory.logs == [log_of(directory)]


def test_recovery_points_and_log_starts_are_kept_for_all_logs() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    fill(log, 40)
    directory.checkpoint()
    log.delete_records_before(25)
    directory.set_clean_offset(ORDERS, 7)
    directory.checkpoints.save_offsets()()
    filesystem.crash()
    directory = opened(filesystem)
    assert directory.clean_offset(ORDERS) == 7
    log = log_of(directory)
    assert (log.offsets.start, log.offsets.recovery_point, log.offsets.end) == (25, 40, 40)


def test_a_checkpoint_can_be_done_in_steps_while_the_log_goes_on() -> None:
    directory = opened(MemoryFilesystem())
    log = log_of(directory)
    fill(log, 5)
    checkpoint = directory.checkpoints.begin()
    fill(log, 5)
    checkpoint.write()
    save = directory.checkpoints.finish(checkpoint)
    assert log.offsets.recovery_point == 5
    save()
    assert decode_offsets(directory.filesystem.read_bytes(f"{PATH}/{RECOVERY_POINT_FILE}")) == {ORDERS: 5}
    assert not directory.checkpoints.begin([]).tickets


class FuseFilesystem(CrashingFilesystem):
    """One whose syncfs says yes and does nothing."""

    def sync_everything(self) -> None:
        pass


def test_where_syncfs_cannot_be_trusted_a_checkpoint_of_many_logs_is_as_durable_as_of_one() -> None:
    filesystem = FuseFilesystem()
    directory = DataDirectory(filesystem, PATH, sync_together=False)
    directory.open()
    names = [TopicPartition("orders", number) for number in range(6)]
    written = {name: fill(log_of(directory, name), 5) for name in names}
    directory.checkpoint()
    assert all(log.offsets.durable_end == 5 for log in directory.logs)
    filesystem.crash()
    again = opened(filesystem)
    for name in names:
        log = log_of(again, name)
        assert (values(log), log.reports.damage) == (written[name], [])


def test_a_stop_in_the_middle_of_a_checkpoint_is_clean() -> None:
    """The thread finished its work, and nobody was there any more to book it."""
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    for _ in range(2):
        append(log)
        directory.checkpoint()
    append(log)
    directory.checkpoints.begin().write()
    directory.close()
    again = opened(filesystem)
    assert again.clean
    assert log_of(again).offsets.end == 3


def test_an_old_save_never_overwrites_a_newer_one() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    fill(log, 20)
    directory.checkpoint()
    late = directory.checkpoints.save_offsets()
    log.truncate_to(5)
    late()
    saved = decode_offsets(filesystem.read_bytes(f"{PATH}/{RECOVERY_POINT_FILE}"))
    assert saved[ORDERS] <= 5
    filesystem.crash()
    log = log_of(opened(filesystem))
    assert log.offsets.end == 5
    assert not log.reports.damage


def test_a_truncation_is_durable_before_it_returns() -> None:
    for seed in range(10):
        filesystem = CrashingFilesystem(seed)
        directory = opened(filesystem)
        log = log_of(directory)
        written = fill(log, 40)
        directory.checkpoint()
        log.truncate_to(11)
        filesystem.crash()
        log = log_of(opened(filesystem))
        assert values(log) == written[:11]
        assert not log.reports.damage


def test_recovery_points_that_are_lost_cost_a_scan_and_no_data() -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    written = fill(log_of(directory), 20)
    directory.close()
    filesystem.remove(f"{PATH}/{witness_path(RECOVERY_POINT_FILE)}")
    filesystem.corrupt(f"{PATH}/{RECOVERY_POINT_FILE}", 2, b"x")
    directory = opened(filesystem)
    assert not directory.clean
    assert "recovery-point-offset-checkpoint is damaged" in directory.problems[0]
    log = log_of(directory)
    assert values(log) == written
    assert log.reports.recovery.scanned_bytes == log.segments.size_bytes


OFFSETS = {LOG_START_FILE: b" 15", RECOVERY_POINT_FILE: b" 40", CLEANER_FILE: b" 12"}


def with_offsets(filesystem: Filesystem) -> list[bytes]:
    """The values of a log of 40 records, the first 15 deleted, the first 12 compacted, stopped in order."""
    directory = opened(filesystem)
    log = log_of(directory)
    written = fill(log, 40)
    log.delete_records_before(15)
    directory.set_clean_offset(ORDERS, 12)
    directory.close()
    return written


def offsets_of(directory: DataDirectory) -> tuple[int, int, int]:
    log = log_of(directory)
    return log.offsets.start, directory.durable_recovery_point(ORDERS), directory.clean_offset(ORDERS)


@pytest.mark.parametrize("name", OFFSETS)
def test_a_bit_flipped_anywhere_in_a_checkpoint_or_its_witness_changes_no_offset(name: str) -> None:
    """A log start that is too high hides records, and retention deletes hidden records next."""
    filesystem = MemoryFilesystem()
    written = with_offsets(filesystem)
    checkpoint = f"{PATH}/{name}"
    assert OFFSETS[name] in filesystem.read_bytes(checkpoint)
    for path in (checkpoint, witness_path(checkpoint)):
        whole = filesystem.read_bytes(path)
        for place in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            filesystem.replace(path, bytes(flipped))
            directory = opened(filesystem)
            assert offsets_of(directory) == (15, 40, 12)
            assert values(log_of(directory)) == written[15:]
            said = [problem for problem in directory.problems if f"{name} is damaged" in problem]
            assert len(said) == (path == checkpoint)
            directory.close()
            assert filesystem.read_bytes(checkpoint).count(OFFSETS[name]) == 1
            filesystem.replace(path, whole)


@pytest.mark.parametrize("name", OFFSETS)
def test_a_checkpoint_that_is_missing_is_taken_from_its_witness(name: str) -> None:
    filesystem = MemoryFilesystem()
    with_offsets(filesystem)
    filesystem.remove(f"{PATH}/{name}")
    directory = opened(filesystem)
    assert f"{name} is damaged (it is missing)" in directory.problems[0]
    assert offsets_of(directory) == (15, 40, 12)
    directory.close()
    assert OFFSETS[name] in filesystem.read_bytes(f"{PATH}/{name}")


def test_a_crash_between_a_witness_and_its_checkpoint_loses_neither() -> None:
    filesystem = MemoryFilesystem()
    with_offsets(filesystem)
    before = filesystem.read_bytes(f"{PATH}/{LOG_START_FILE}")
    directory = opened(filesystem)
    log_of(directory).delete_records_before(20)
    directory.close()
    filesystem.replace(f"{PATH}/{LOG_START_FILE}", before)
    directory = opened(filesystem)
    assert directory.clean
    assert not directory.problems


@pytest.mark.parametrize("harm", ["missing", "damaged", "without a copy, as an earlier version left it"])
def test_checkpoints_without_a_witness_are_believed(harm: str) -> None:
    filesystem = MemoryFilesystem()
    with_offsets(filesystem)
    for name in OFFSETS:
        witness = witness_path(f"{PATH}/{name}")
        if harm == "missing":
            filesystem.remove(witness)
        elif harm == "damaged":
            filesystem.replace(witness, filesystem.read_bytes(witness)[:-3])
        else:
            sums = b"%08x" % zlib.crc32(filesystem.read_bytes(f"{PATH}/{name}"))
            filesystem.replace(witness, sums + b"\n%08x\n" % zlib.crc32(sums))
    directory = opened(filesystem)
    assert directory.clean
    assert offsets_of(directory) == (15, 40, 12)


@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_recovery_points_cost_no_compacted_log_what_follows_its_gaps(harm: str, clean: bool) -> None:
    """Neither the logs that the next life opens, nor those that only a later one does."""
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    names = [TopicPartition("latest", number) for number in range(2)]
    expected = {}
    for name in names:
        log = directory.open_log(name, TOPIC_ID, COMPACTED, at(NOW_MS))
        written = fill(log, 20)
        directory.checkpoint()
        second = log.segments[1].base_offset
        expected[name] = written[second:]
        directory.expect_compaction(name)()
        filesystem.cut(log.segments[0].file.path, 0)
    directory.close(clean=clean)
    filesystem.remove(f"{PATH}/{witness_path(RECOVERY_POINT_FILE)}")
    if harm == "missing":
        filesystem.remove(f"{PATH}/{RECOVERY_POINT_FILE}")
    else:
        filesystem.cut(f"{PATH}/{RECOVERY_POINT_FILE}", 5)
    for name in names:
        directory = opened(filesystem)
        log = directory.open_log(name, TOPIC_ID, COMPACTED, at(NOW_MS))
        assert (values(log), log.offsets.end, log.reports.recovery.cuts) == (expected[name], 20, [])
        directory.close(clean=clean)


def test_a_log_of_which_no_recovery_point_was_ever_saved_has_lost_none() -> None:
    """Another log's was saved meanwhile, and also the whole directory may be as new as the log."""
    for other in (None, TopicPartition("other", 0)):
        filesystem = CrashingFilesystem()
        directory = opened(filesystem)
        log = directory.open_log(ORDERS, TOPIC_ID, COMPACTED, at(NOW_MS))
        written = fill(log, 20)
        if other is not None:
            directory.checkpoints.begin([log_of(directory, other)]).write()
            directory.checkpoints.save_offsets()()
        first, second = (segment.base_offset for segment in log.segments[:2])
        filesystem.cut(log.segments[0].file.path, log.segments[0].size // (second - first))
        directory = opened(filesystem)
        log = directory.open_log(ORDERS, TOPIC_ID, COMPACTED, at(NOW_MS))
        assert (values(log), log.offsets.end) == (written[:1], 1)


def test_one_process_owns_a_directory(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    directory = opened(filesystem, str(tmp_path))
    with pytest.raises(StorageFailure, match="another broker"):
        opened(filesystem, str(tmp_path))
    directory.close()
    opened(filesystem, str(tmp_path)).close()


def test_a_directory_belongs_to_one_node_of_one_cluster() -> None:
    filesystem = MemoryFilesystem()
    directory = DataDirectory(filesystem, PATH)
    assert directory.identity() is None
    ours = Identity("cluster-a", 3)
    opened(filesystem, identity=ours).close()
    assert directory.identity() == ours
    opened(filesystem, identity=ours).close()
    for other in (Identity("cluster-b", 3), Identity("cluster-a", 4)):
        with pytest.raises(StorageFailure, match="node 3 in cluster cluster-a"):
            opened(filesystem, identity=other)


def test_a_directory_keeps_its_first_storage_id_and_an_old_one_is_given_one() -> None:
    filesystem = MemoryFilesystem()
    directory = DataDirectory(filesystem, PATH)
    opened(filesystem, identity=Identity("cluster-a", 3)).close()
    for proposed in ("first", "second", ""):
        opened(filesystem, identity=Identity("cluster-a", 3, proposed)).close()
        assert directory.identity() == Identity("cluster-a", 3, "first")
    with pytest.raises(StorageFailure, match="node 3 in cluster cluster-a"):
        opened(filesystem, identity=Identity("cluster-b", 3, "first"))


@pytest.mark.parametrize(
    "content", [b"", b"version=9\ncluster.id=a\nnode.id=1\n", b"version=1\ncluster.id=a\nnode.id=x\n"]
)
def test_properties_that_cannot_be_understood_are_not_overwritten(content: bytes) -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(PATH)
    filesystem.replace(f"{PATH}/meta.properties", content)
    with pytest.raises(StorageFailure, match=r"meta\.properties"):
        opened(filesystem, identity=Identity("a", 1))
    assert filesystem.read_bytes(f"{PATH}/meta.properties") == content


def test_directories_of_unknown_and_missing_partitions_are_named() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    gone, other, kept = (TopicPartition(name, 0) for name in ("gone", "other", "kept"))
    for partition in (gone, other, kept):
        append(log_of(directory, partition))
    directory.close()
    directory = opened(filesystem)
    assert directory.on_disk.topic_ids() == {gone: TOPIC_ID, kept: TOPIC_ID, other: TOPIC_ID}
    wanted = {kept: TOPIC_ID, other: uuid.UUID(int=7)}
    fates = {name: verdict.fate for name, verdict in directory.strays(Known(wanted.get, {})).items()}
    assert fates == {gone: Fate.SET_ASIDE, other: Fate.SET_ASIDE}
    assert {verdict.fate for verdict in directory.strays(Known(wanted.get, {TOPIC_ID: "gone"})).values()} == {
        Fate.DELETED
    }
    filesystem.remove_tree(f"{PATH}/kept-0")
    directory = DataDirectory(filesystem, PATH)
    directory.open()
    assert directory.on_disk.missing([kept, other, TopicPartition("never", 0)]) == [kept]
    assert not directory.has_log(kept)
    assert directory.has_log(other)


def test_a_deleted_log_frees_its_disk_and_its_name(place: tuple[Filesystem, str]) -> None:
    filesystem, path = place
    directory = opened(filesystem, path)
    fill(log_of(directory), 20)
    directory.checkpoint()
    removal = directory.condemn_logs([ORDERS, TopicPartition("never", 1)])
    assert not directory.has_log(ORDERS)
    again = log_of(directory, topic_id=uuid.UUID(int=43))
    assert append(again, b"new").base_offset == 0
    removal.run()
    assert [name for name in filesystem.list(path) if name.startswith("orders")] == ["orders-0"]
    assert not [name for name in filesystem.list(path) if name.endswith("-delete")]
    directory.close()
    directory = opened(filesystem, path)
    assert values(log_of(directory)) == [b"new"]
    directory.close()


def test_a_deleted_log_whose_directory_cannot_be_moved_gives_its_records_to_nobody() -> None:
    class Unmovable(MemoryFilesystem):
        refuses = False

        def rename(self, source: str, target: str) -> None:
            if self.refuses:
                raise StorageFailure(f"cannot rename {source}")
            super().rename(source, target)

    filesystem = Unmovable()
    directory = opened(filesystem)
    stuck, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for partition in (stuck, other):
        fill(log_of(directory, partition), 5)
    filesystem.refuses = True
    removal = directory.condemn_logs([stuck, other])
    with pytest.raises(StorageFailure, match="cannot rename"):
        removal.run()
    with pytest.raises(StorageFailure, match="cannot rename"):
        log_of(directory, stuck, topic_id=uuid.UUID(int=43))
    filesystem.refuses = False
    for partition in (stuck, other):
        log = log_of(directory, partition, topic_id=uuid.UUID(int=43))
        assert append(log, b"new").base_offset == 0
        assert values(log) == [b"new"]
    directory.close()
    directory = opened(filesystem)
    assert list(directory.on_disk.topic_ids().values()) == [uuid.UUID(int=43)] * 2
    assert not [name for name in filesystem.list(PATH) if name.endswith("-delete")]


def test_a_topic_of_the_same_name_begins_at_zero_even_if_the_power_went_during_the_deletion() -> None:
    for seed in range(20):
        filesystem = CrashingFilesystem(seed)
        directory = opened(filesystem)
        fill(log_of(directory), 20)
        directory.checkpoint()
        directory.condemn_logs([ORDERS]).rename()
        filesystem.crash()
        directory = opened(filesystem)
        if directory.has_log(ORDERS):
            directory.delete_log(ORDERS)
        log = log_of(directory, topic_id=uuid.UUID(int=43))
        assert (log.offsets.end, log.reports.damage) == (0, [])
        assert append(log).base_offset == 0


def test_so_does_one_whose_name_is_too_long_for_that_of_a_condemned_directory() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    names = [TopicPartition("n" * 248 + last, 0) for last in "ab"]
    for name in names:
        fill(log_of(directory, name), 20)
    directory.checkpoint()
    directory.condemn_logs([names[0]]).rename()
    directory = opened(filesystem)
    log = log_of(directory, names[0], topic_id=uuid.UUID(int=43))
    assert (log.offsets.start, log.offsets.end) == (0, 0)
    assert append(log).base_offset == 0
    assert log_of(directory, names[1]).offsets.end == 20


def test_what_is_not_ours_in_the_data_directory_is_left_alone(place: tuple[Filesystem, str]) -> None:
    filesystem, path = place
    directory = opened(filesystem, path)
    append(log_of(directory))
    directory.close()
    for name in ("backup-2024", "to-delete", "old.x-delete", "torn-0"):
        filesystem.make_directory(f"{path}/{name}")
    others = [f"{path}/{name}" for name in ("heapdump-7", "a.1-delete", "backup-2024/it", "to-delete/it")]
    for file in others:
        filesystem.open(file, create=True).append(b"mine")
    directory = opened(filesystem, path)
    assert [(str(name), verdict.fate) for name, verdict in directory.strays(nothing_known()).items()] == [
        ("backup-2024", Fate.LEFT_ALONE),
        ("orders-0", Fate.SET_ASIDE),
        ("torn-0", Fate.LEFT_ALONE),
    ]
    assert [filesystem.read_bytes(file) for file in others] == [b"mine"] * 4
    assert not directory.has_log(TopicPartition("backup", 2024))
    assert not directory.has_log(TopicPartition("torn", 0))
    assert append(log_of(directory, TopicPartition("backup", 2024))).base_offset == 0, "a topic may have that name"
    assert filesystem.read_bytes(f"{path}/backup-2024.0-stray/it") == b"mine"
    directory.close()


def test_a_full_disk_has_room_again_after_a_start_that_finds_a_deleted_log() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    fill(log_of(directory), 20)
    directory.checkpoint()
    directory.condemn_logs([ORDERS]).rename()
    filesystem.capacity_bytes = filesystem.used_bytes
    directory = opened(filesystem)
    assert not [name for name in filesystem.list(PATH) if name.endswith("-delete")]
    assert decode_offsets(filesystem.read_bytes(f"{PATH}/{RECOVERY_POINT_FILE}")) == {}
    assert append(log_of(directory, topic_id=uuid.UUID(int=43))).base_offset == 0


def test_a_deleted_log_that_left_no_room_is_still_known_at_the_next_start() -> None:
    """What keeps the disk full is somebody else's."""
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    fill(log_of(directory), 20)
    directory.checkpoint()
    directory.condemn_logs([ORDERS]).rename()
    filesystem.free_for_appends = 0
    directory = opened(filesystem)
    assert not directory.has_log(ORDERS)
    with pytest.raises(DiskFull):
        log_of(directory, topic_id=uuid.UUID(int=43))
    filesystem.crash()
    assert decode_offsets(filesystem.read_bytes(f"{PATH}/{RECOVERY_POINT_FILE}")) == {ORDERS: 20}
    filesystem.free_for_appends = None
    assert not opened(filesystem).has_log(ORDERS)
    assert not [name for name in filesystem.list(PATH) if name.endswith("-delete")]
    assert decode_offsets(filesystem.read_bytes(f"{PATH}/{RECOVERY_POINT_FILE}")) == {}


@pytest.mark.parametrize("power", [False, True])
def test_a_new_log_never_gets_the_offsets_of_a_deleted_one_of_the_same_name(power: bool) -> None:
    """The new one was written to before the deletion had saved anything, and then the process died."""
    for seed in range(10):
        filesystem = CrashingFilesystem(seed)
        directory = opened(filesystem)
        log = log_of(directory)
        fill(log, 40)
        directory.checkpoint()
        log.delete_records_before(25)
        directory.expect_compaction(ORDERS)()
        directory.checkpoints.save_offsets()()
        directory.condemn_logs([ORDERS])
        log = log_of(directory, topic_id=uuid.UUID(int=43))
        written = fill(log, 5)
        flush(log)
        if power:
            filesystem.crash()
        for _ in range(2):
            directory = opened(filesystem)
            log = log_of(directory, topic_id=uuid.UUID(int=43))
            assert (log.offsets.start, log.offsets.end, log.segments.ever_compacted) == (0, 5, False)
            assert (values(log), log.reports.damage) == (written, [])


@pytest.mark.parametrize("removed", [False, True])
def test_a_new_log_keeps_its_offsets_though_a_deleted_one_of_the_same_name_is_still_there(removed: bool) -> None:
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    fill(log_of(directory), 40)
    directory.checkpoint()
    removal = directory.condemn_logs([ORDERS])
    log = log_of(directory, topic_id=uuid.UUID(int=43))
    written = fill(log, 20)
    directory.checkpoint()
    log.delete_records_before(12)
    directory.checkpoints.save_offsets()()
    if removed:
        removal.run()
    assert filesystem.exists(f"{PATH}/{ORDERS}.0-delete") != removed
    log = log_of(opened(filesystem))
    assert (log.offsets.start, log.offsets.recovery_point, log.offsets.end) == (12, 20, 20)
    assert values(log) == written[12:]


def test_a_checkpoint_of_a_deleted_log_leaves_a_new_one_of_its_name_alone() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    log = log_of(directory)
    for _ in range(2):
        fill(log, 3)
        directory.checkpoint()
    fill(log, 3)
    (ticket,) = directory.checkpoints.begin().tickets
    ticket.write()
    ticket.sync()
    directory.condemn_logs([ORDERS]).rename()
    fill(log_of(directory, topic_id=uuid.UUID(int=43)), 3)
    before = filesystem.list(f"{PATH}/{ORDERS}")
    ticket.install()
    ticket.sync_names()
    assert filesystem.list(f"{PATH}/{ORDERS}") == before


def test_ten_thousand_empty_partitions_cost_no_file() -> None:
    filesystem = MemoryFilesystem()
    directory = opened(filesystem)
    for number in range(10_000):
        log_of(directory, TopicPartition("wide", number))
    directory.checkpoint()
    directory.close()
    assert not [name for name in filesystem.list(PATH) if name.startswith("wide")]


def test_a_recovery_point_is_durable_when_it_is_saved_and_not_before(place: tuple[Filesystem, str]) -> None:
    """Compaction leaves gaps only below it: a crash before the save would take them for damage."""
    filesystem, path = place
    directory = opened(filesystem, path)
    log = log_of(directory)
    fill(log, 10)
    checkpoint = directory.checkpoints.begin()
    checkpoint.write()
    save = directory.checkpoints.finish(checkpoint)
    assert (log.offsets.recovery_point, directory.durable_recovery_point(ORDERS)) == (10, 0)
    save()
    assert directory.durable_recovery_point(ORDERS) == 10
    directory.close()
    assert opened(filesystem, path).durable_recovery_point(ORDERS) == 10


@pytest.mark.parametrize("killed", [False, True])
def test_until_a_recovery_point_is_saved_nothing_goes_that_a_crash_would_miss(killed: bool) -> None:
    """Between a checkpoint and the save of its recovery point segments went; a kill made their producers unknown."""
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = directory.open_log(ORDERS, TOPIC_ID, SHORT_LIVED, at(NOW_MS))
    append(log, producer=7, sequence=0)
    directory.checkpoint()
    fill(log, 20)
    checkpoint = directory.checkpoints.begin()
    checkpoint.write()
    save = directory.checkpoints.finish(checkpoint)
    assert not log.apply_retention(at(NOW_MS), limit_offset=21)
    log.delete_records_before(21)
    assert log.segments[0].base_offset == 0
    if not killed:
        save()
        assert log.apply_retention(at(NOW_MS), limit_offset=21)
    log = opened(filesystem).open_log(ORDERS, TOPIC_ID, SHORT_LIVED, at(NOW_MS))
    assert append(log, producer=7, sequence=0).duplicate


def test_a_new_log_does_not_take_the_recovery_point_of_a_deleted_one_for_its_own() -> None:
    directory = opened(MemoryFilesystem())
    fill(log_of(directory), 40)
    directory.checkpoint()
    removal = directory.condemn_logs([ORDERS])
    log = log_of(directory, topic_id=uuid.UUID(int=43))
    fill(log, 10)
    checkpoint = directory.checkpoints.begin()
    checkpoint.write()
    save = directory.checkpoints.finish(checkpoint)
    removal.run()
    assert (directory.durable_recovery_point(ORDERS), log.offsets.saved_recovery_point) == (0, 0)
    save()
    assert (directory.durable_recovery_point(ORDERS), log.offsets.saved_recovery_point) == (10, 10)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("producer", [-1, 7])
def test_the_snapshot_at_the_saved_recovery_point_stays_until_the_next_is_saved(compacted: bool, producer: int) -> None:
    """Compaction may have taken from the segments what the snapshot says; elsewhere an empty one can be spared."""
    filesystem = CrashingFilesystem()
    directory = opened(filesystem)
    log = directory.open_log(ORDERS, TOPIC_ID, COMPACTED if compacted else SETTINGS, at(NOW_MS))
    for sequence in range(3):
        append(log, producer=producer, sequence=sequence)
        append(log)
        checkpoint = directory.checkpoints.begin()
        checkpoint.write()
        kept = sequence > 0 and (compacted or producer >= 0)
        assert snapshots_in(filesystem) == [log.offsets.end - 2] * kept + [log.offsets.end]
        directory.checkpoints.finish(checkpoint)()


def snapshots_in(filesystem: Filesystem) -> list[int]:
    names = filesystem.list(f"{PATH}/{ORDERS}")
    return sorted(int(name.partition(".")[0]) for name in names if name.endswith(Suffix.SNAPSHOT))
