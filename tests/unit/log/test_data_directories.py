"""Several data directories as one: where partitions are, what a start finds, and what it refuses."""

import random
import uuid
from collections.abc import Sequence

import pytest
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, append, fill, flush, values

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import Place, check_apart, look_at
from cordwood.log.directory.identity import Identity, read_identity, write_identity
from cordwood.log.directory.strays import Fate, Known
from cordwood.log.directory.two_logs import two_logs
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.set_aside import Note, encode_note

SETTINGS = TopicSettings(segment_bytes=1000, index_interval_bytes=200)
OWNER = Identity("cluster", 1, "storage")
TOPIC_ID = uuid.UUID(int=42)
PARTITIONS = [TopicPartition("orders", number) for number in range(5)]
ALL_KNOWN = Known(lambda partition: TOPIC_ID, {})


class Disks:
    """Disks, each with one data directory."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.disks = {f"/disk-{number}": CrashingFilesystem(seed + number) for number in range(1, count + 1)}
        self.ids = 0

    def places(self, paths: Sequence[str] = ()) -> list[Place]:
        return [Place(self.disks[path], path) for path in paths or self.disks]

    def opened(self, *paths: str) -> DataDirectories:
        found = look_at(self.places(paths))
        order = list(paths or self.disks)
        home = order.pop(found.home)
        directories = DataDirectories([DataDirectory(self.disks[path], path) for path in (home, *order)])
        directories.open(OWNER, new_id=self._new_id)
        return directories

    def _new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def crash(self) -> None:
        for disk in self.disks.values():
            disk.crash()


def log_of(directories: DataDirectories, partition: TopicPartition, topic_id: TopicId = TOPIC_ID) -> Log:
    return directories.open_log(partition, topic_id, SETTINGS, at(NOW_MS))


def filled(directories: DataDirectories, partitions: Sequence[TopicPartition] = PARTITIONS) -> dict[str, list[bytes]]:
    written = {}
    for partition in partitions:
        written[str(partition)] = fill(log_of(directories, partition), 3)
    flush_all(directories)
    return written


def flush_all(directories: DataDirectories) -> None:
    for log in directories.logs:
        flush(log)


def checkpoint(directories: DataDirectories) -> None:
    for directory in directories.directories:
        directory.checkpoint()


def where(directories: DataDirectories) -> dict[str, str]:
    found = {str(partition): directories.directory_of(partition) for partition in PARTITIONS}
    return {name: directory.path for name, directory in found.items() if directory is not None}


def test_new_partitions_go_where_the_fewest_are_and_stay_there_in_any_order_of_directories() -> None:
    disks = Disks(2)
    directories = disks.opened()
    written = filled(directories)
    places = where(directories)
    assert sorted(places.values()).count("/disk-1") == 3
    assert sorted(places.values()).count("/disk-2") == 2
    directories.close()
    directories = disks.opened("/disk-2", "/disk-1")
    assert not any(directories.needs_check(each) for each in PARTITIONS)
    assert directories.home.path == "/disk-1", "the directory with the metadata is the home, wherever it is named"
    assert where(directories) == places
    assert {str(each): values(log_of(directories, each)) for each in PARTITIONS} == written
    directories.close()


def test_one_directory_is_kept_as_it_always_was_and_takes_others_beside_it_later() -> None:
    disks = Disks(2)
    directories = disks.opened("/disk-1")
    written = filled(directories)
    directories.close()
    assert read_identity(disks.disks["/disk-1"], "/disk-1") == OWNER
    directories = disks.opened("/disk-1", "/disk-2")
    assert set(where(directories).values()) == {"/disk-1"}
    more = TopicPartition("orders", 7)
    log_of(directories, more)
    assert directories.directory_of(more) is directories.directory_at("/disk-2")
    assert {str(each): values(log_of(directories, each)) for each in PARTITIONS} == written
    directories.close()
    home, other = (read_identity(disks.disks[path], path) for path in disks.disks)
    assert home is not None
    assert other is not None
    assert home.storage_id == OWNER.storage_id
    assert dict(home.directories) == {home.directory_id: "/disk-1", other.directory_id: "/disk-2"}
    assert other.home_id == home.directory_id


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_loses_nothing_durable_in_any_directory(seed: int) -> None:
    disks = Disks(3, seed)
    chance = random.Random(seed)
    expected: dict[TopicPartition, list[bytes]] = {}
    for life in range(4):
        directories = disks.opened(*chance.sample(list(disks.disks), 3))
        directories.strays(ALL_KNOWN)
        for partition in PARTITIONS:
            log = log_of(directories, partition)
            assert values(log)[: len(expected.get(partition, []))] == expected.get(partition, [])
            for number in range(3):
                append(log, f"{life} {number}".encode())
        for partition in chance.sample(PARTITIONS, 4):
            log = log_of(directories, partition)
            ticket = log.begin_flush()
            if ticket is not None:
                ticket.sync()
                directories.note_durable([ticket])
                ticket.finish()
            expected[partition] = values(log)
        if chance.random() < 0.5:
            checkpoint(directories)
            expected = {partition: values(log_of(directories, partition)) for partition in PARTITIONS}
        disks.crash()


def test_a_start_knows_which_directories_are_missing() -> None:
    disks = Disks(3)
    directories = disks.opened()
    filled(directories)
    directories.close()
    found = look_at(disks.places(["/disk-3", "/disk-1"]))
    assert (found.home, list(found.missing.values()), found.complete) == (1, ["/disk-2"], False)
    disks.disks["/disk-2"] = CrashingFilesystem()
    disks.disks["/disk-2"].make_directory("/disk-2")
    found = look_at(disks.places())
    assert list(found.missing.values()) == ["/disk-2"], "an empty disk in its place is not that directory"
    found = look_at(disks.places(["/disk-3"]))
    assert found.home_missing


def test_a_home_that_a_node_of_a_cluster_was_started_without_is_taken_in_again() -> None:
    disks = Disks(3)
    directories = disks.opened()
    written = filled(directories)
    directories.close()
    # Each start makes another directory the home.
    disks.opened("/disk-2", "/disk-3").close()
    disks.opened("/disk-3").close()
    for _ in range(2):
        found = look_at(disks.places())
        assert (found.home, found.complete, dict(found.others_homes)) == (2, True, {})
        directories = disks.opened()
        assert {str(each): values(log_of(directories, each)) for each in PARTITIONS} == written
        directories.close()
    owners = [read_identity(disk, path) for path, disk in disks.disks.items()]
    assert [owner is not None and owner.home_path for owner in owners] == ["/disk-3", "/disk-3", ""]
    assert not disks.disks["/disk-1"].exists("/disk-1/home.properties")


def test_a_home_that_lost_its_properties_is_known_by_their_copy() -> None:
    disks = Disks(2)
    disks.opened().close()
    owner = read_identity(disks.disks["/disk-1"], "/disk-1")
    disks.disks["/disk-1"].remove("/disk-1/meta.properties")
    assert DataDirectory(disks.disks["/disk-1"], "/disk-1").identity() == owner


def test_the_copy_of_the_properties_that_a_crash_left_goes_when_one_directory_is_left() -> None:
    disks = Disks(2)
    disks.opened().close()
    disk = disks.disks["/disk-1"]
    stale = disk.read_bytes("/disk-1/home.properties")
    home = read_identity(disk, "/disk-1")
    assert home is not None
    write_identity(disk, "/disk-1", home._replace(directories={}))
    # The process was killed before it had removed the copy.
    disk.replace("/disk-1/home.properties", stale)
    disks.opened("/disk-1").close()
    assert not disk.exists("/disk-1/home.properties")


def test_directories_that_cannot_be_those_of_one_broker_are_refused() -> None:
    disks = Disks(2)
    for path in disks.disks:
        disks.opened(path).close()
    with pytest.raises(StorageFailure, match="on their own"):
        look_at(disks.places())
    disks = Disks(2)
    disks.opened().close()
    disks.disks["/copy"] = CrashingFilesystem()
    disks.disks["/copy"].make_directory("/copy")
    copied = disks.disks["/disk-2"].read_bytes("/disk-2/meta.properties")
    disks.disks["/copy"].replace("/copy/meta.properties", copied)
    with pytest.raises(StorageFailure, match="is a copy of /disk-2"):
        look_at(disks.places())
    with pytest.raises(StorageFailure, match="twice"):
        check_apart(["/a", "/b", "/a"])
    with pytest.raises(StorageFailure, match="lies in /a"):
        check_apart(["/a/b", "/a"])
    check_apart(["/a", "/ab"])


def test_the_directory_of_another_node_is_refused_and_nothing_is_written() -> None:
    disks = Disks(2)
    directories = DataDirectories([DataDirectory(disks.disks["/disk-2"], "/disk-2")])
    directories.open(OWNER._replace(node_id=2))
    directories.close()
    directories = DataDirectories([DataDirectory(disk, path) for path, disk in disks.disks.items()])
    with pytest.raises(StorageFailure, match="data of node 2"):
        directories.open(OWNER)
    assert read_identity(disks.disks["/disk-1"], "/disk-1") is None


def test_a_release_that_knows_one_directory_refuses_each_of_several() -> None:
    disks = Disks(2)
    disks.opened().close()
    for path, disk in disks.disks.items():
        assert disk.read_bytes(f"{path}/meta.properties").startswith(b"version=2\n")


def copy_of(disk: Filesystem, path: str, other: Filesystem, target: str) -> None:
    other.make_directory(target)
    for name in disk.list(path):
        other.replace(f"{target}/{name}", disk.read_bytes(f"{path}/{name}"))


def test_a_partition_in_two_directories_is_refused_before_anything_is_changed() -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories, PARTITIONS[:1])
    directories.close()
    copy_of(disks.disks["/disk-1"], "/disk-1/orders-0", disks.disks["/disk-2"], "/disk-2/orders-0")
    directories = disks.opened()
    with pytest.raises(StorageFailure, match="/disk-1/orders-0 and /disk-2/orders-0 are logs of the same partition"):
        directories.strays(ALL_KNOWN)


def test_a_refusal_names_all_partitions_that_are_in_two_directories() -> None:
    refused = str(two_logs("/a/t-0", "/b/t-0", others=[(f"/a/t-{each}", f"/b/t-{each}") for each in range(1, 60)]))
    assert refused.startswith("/a/t-0 and /b/t-0 are logs of the same partition")
    assert "The same is so of /a/t-1 and /b/t-1; of /a/t-2 and /b/t-2; of" in refused
    assert refused.endswith("And of 9 pairs more.")


@pytest.mark.parametrize("crash", [False, True])
def test_a_log_that_began_anew_without_records_is_one_of_two_when_its_old_directory_is_back(crash: bool) -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories, PARTITIONS[:2])
    assert where(directories)["orders-1"] == "/disk-2"
    directories.close()
    directories = disks.opened("/disk-1")
    log = log_of(directories, PARTITIONS[1])
    log.restart_at(200)
    if crash:
        disks.crash()
    else:
        directories.close()
    directories = disks.opened("/disk-1")
    assert log_of(directories, PARTITIONS[1]).offsets.end == 200
    directories.close()
    directories = disks.opened()
    with pytest.raises(StorageFailure, match="/disk-1/orders-1 and /disk-2/orders-1 are logs of the same partition"):
        directories.strays(ALL_KNOWN)


@pytest.mark.parametrize("set_aside", [False, True])
def test_a_directory_that_was_renamed_within_its_topic_counts_under_its_own_name(set_aside: bool) -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories, PARTITIONS[:1])
    directories.close()
    disk = disks.disks["/disk-1"]
    copy_of(disk, "/disk-1/orders-0", disks.disks["/disk-2"], "/disk-2/orders-0")
    disk.rename("/disk-1/orders-0", "/disk-1/orders-1")
    renamed = "/disk-1/orders-1"
    if set_aside:
        # A crash came when the directory was to get its name back.
        renamed = "/disk-1/orders-1.0-stray"
        note = Note(PARTITIONS[0], TOPIC_ID, "it was renamed to orders-1", 0)
        disk.replace("/disk-1/orders-1/set-aside.json", encode_note(note))
        disk.rename("/disk-1/orders-1", renamed)
    directories = DataDirectories([DataDirectory(each, path) for path, each in disks.disks.items()])
    with pytest.raises(
        StorageFailure, match=rf"{renamed} \(of orders-0, .*\) and /disk-2/orders-0 are logs of the same"
    ):
        directories.open(OWNER, known=ALL_KNOWN)
    assert disk.list_directories("/disk-1") == [renamed.rpartition("/")[2]]
    assert directories.directories[0].stopped_cleanly()
    # The topic is not known: both would be set aside, and neither is served.
    directories.open(OWNER, known=Known(lambda partition: None, {}))


def test_an_empty_directory_of_a_killed_process_gives_way_to_the_partition_in_another_one() -> None:
    disks = Disks(2)
    directories = disks.opened()
    written = filled(directories, PARTITIONS[:2])
    directories.close()
    disks.disks["/disk-1"].make_directory("/disk-1/orders-1")
    directories = disks.opened()
    (stray,) = directories.strays(ALL_KNOWN)
    assert (stray.directory.path, stray.verdict.fate) == ("/disk-1", Fate.EMPTY)
    stray.directory.delete_log(stray.partition)
    assert values(log_of(directories, PARTITIONS[1])) == written["orders-1"]
    assert where(directories)["orders-1"] == "/disk-2"


def test_a_deleted_topics_directory_and_a_new_topics_one_are_told_apart_by_their_ids() -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories, PARTITIONS[:1])
    old = directories.condemn_logs(PARTITIONS[:1])
    new_id = uuid.UUID(int=43)
    other = directories.directory_at("/disk-2")
    assert other is not None
    directories.prefer(PARTITIONS[0], other)
    written = fill(log_of(directories, PARTITIONS[0], new_id), 2)
    flush_all(directories)
    del old  # the process is killed before a thread has removed the old directory
    directories = disks.opened()
    assert directories.strays(Known(lambda partition: new_id, {TOPIC_ID: "orders"})) == []
    assert values(log_of(directories, PARTITIONS[0], new_id)) == written


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_partition_that_left_and_came_back_to_another_directory_is_not_in_both_after_a_power_cut(
    seed: int, renamed: bool
) -> None:
    disks = Disks(2, seed)
    directories = disks.opened()
    filled(directories, PARTITIONS[:3])
    checkpoint(directories)
    directories.forget_ends([(TOPIC_ID, PARTITIONS[0])])()
    removal = directories.condemn_logs(PARTITIONS[:1])
    if renamed:
        # The thread stands at its sync, which comes too late.
        disk = disks.disks["/disk-1"]
        disk.fail_sync_at = disk.syncs + 1
        with pytest.raises(SyncFailure):
            removal.run()
        disk.fail_sync_at = None
        assert not disk.exists("/disk-1/orders-0")
    other = directories.directory_at("/disk-2")
    assert other is not None
    directories.prefer(PARTITIONS[0], other)
    log = log_of(directories, PARTITIONS[0])
    written = fill(log, 2)
    flush(log)
    disks.crash()
    directories = disks.opened()
    directories.strays(ALL_KNOWN)
    assert where(directories)["orders-0"] == "/disk-2"
    assert values(log_of(directories, PARTITIONS[0])) == written


def test_a_log_without_files_goes_on_where_its_offsets_are_saved() -> None:
    disks = Disks(2)
    directories = disks.opened()
    log_of(directories, PARTITIONS[0])
    log = log_of(directories, PARTITIONS[1])
    assert where(directories)["orders-1"] == "/disk-2"
    log.restart_at(100)
    checkpoint(directories)
    disks.crash()
    directories = disks.opened()
    assert log_of(directories, PARTITIONS[1]).offsets.end == 100
    assert where(directories)["orders-1"] == "/disk-2"


def test_a_log_whose_files_are_gone_is_missed_in_its_directory() -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories, PARTITIONS[:2])
    ticket = append_and_flush(directories, PARTITIONS[1])
    assert ticket > 0
    disks.disks["/disk-2"].remove_tree("/disk-2/orders-1")
    disks.disks["/disk-2"].sync_everything()
    directories = disks.opened()
    directories.strays(ALL_KNOWN)
    log = log_of(directories, PARTITIONS[1])
    assert where(directories)["orders-1"] == "/disk-2"
    assert log.offsets.end == ticket, "offsets that were acknowledged are not given out again"
    assert log.reports.damage


def append_and_flush(directories: DataDirectories, partition: TopicPartition) -> int:
    log = log_of(directories, partition)
    append(log, b"one more")
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    directories.note_durable([ticket])
    ticket.finish()
    return log.offsets.end


def test_deleted_partitions_are_removed_in_each_directory_and_their_places_are_free() -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories)
    directories.condemn_logs(PARTITIONS).run()
    assert where(directories) == {}
    for path, disk in disks.disks.items():
        assert disk.list_directories(path) == []
    filled(directories)
    assert sorted(where(directories).values()).count("/disk-2") == 2


def test_a_disk_that_fails_at_the_end_does_not_keep_the_others_from_closing_cleanly() -> None:
    disks = Disks(2)
    directories = disks.opened()
    filled(directories)
    disks.disks["/disk-2"].fail_sync_at = 0
    for log in directories.logs:
        append(log, b"more")
    with pytest.raises(SyncFailure):
        directories.close()
    assert [directory.stopped_cleanly() for directory in directories.directories] == [True, False]
