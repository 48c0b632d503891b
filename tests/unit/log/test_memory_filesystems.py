"""The filesystems without a disk: the one for embedded brokers, and the one that crashes."""

import pytest

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.files.recent_bytes import BLOCK_SIZE, RecentBytes, Tail
from cordwood.model.errors import DiskFull, SyncFailure
from cordwood.segments.filesystem import Filesystem


@pytest.fixture(params=["memory", "crashing"])
def filesystem(request: pytest.FixtureRequest) -> Filesystem:
    made: Filesystem = MemoryFilesystem() if request.param == "memory" else CrashingFilesystem()
    made.make_directory("/a/b")
    return made


def test_files_are_appended_to_read_and_cut(filesystem: Filesystem) -> None:
    file = filesystem.open("/a/b/f", create=True)
    file.append(b"one")
    file.append(memoryview(b"two"))
    assert (file.size, file.read(1, 4), file.read(4, 10), file.read(9, 1)) == (6, b"netw", b"wo", b"")
    into = bytearray(10)
    assert file.read_now(3, memoryview(into)) == 3
    assert file.read_cold(3, memoryview(into)) == 3
    assert into[:3] == b"two"
    file.truncate(4)
    assert filesystem.open("/a/b/f").read(0, 10) == b"onet"
    assert filesystem.read_bytes("/a/b/f") == b"onet"


def test_what_is_not_there_is_not_found(filesystem: Filesystem) -> None:
    for call in (filesystem.open, filesystem.remove, filesystem.read_bytes):
        with pytest.raises(FileNotFoundError):
            call("/a/b/missing")
    with pytest.raises(FileNotFoundError):
        filesystem.rename("/a/b/missing", "/a/b/other")
    with pytest.raises(FileNotFoundError):
        filesystem.open("/nowhere/f", create=True)
    assert filesystem.list("/a/missing") == []
    filesystem.remove_tree("/a/missing")


def test_names_are_listed_in_order_replaced_renamed_and_removed(filesystem: Filesystem) -> None:
    for name in ("2", "1", "3"):
        filesystem.replace(f"/a/b/{name}", name.encode())
    filesystem.rename("/a/b/3", "/a/b/1")
    assert filesystem.list("/a/b") == ["1", "2"]
    assert filesystem.read_bytes("/a/b/1") == b"3"
    filesystem.rename("/a/b", "/a/c")
    assert filesystem.list("/a") == ["c"]
    assert filesystem.read_bytes("/a/c/2") == b"2"
    filesystem.remove("/a/c/2")
    filesystem.remove_tree("/a")
    assert not filesystem.exists("/a/c/1")
    assert not filesystem.exists("/a")


def test_memory_is_bounded_and_given_back() -> None:
    filesystem = MemoryFilesystem(capacity_bytes=100)
    filesystem.make_directory("/a")
    file = filesystem.open("/a/f", create=True)
    file.append(b"x" * 90)
    with pytest.raises(DiskFull):
        file.append(b"x" * 20)
    assert file.size == 90
    assert filesystem.free_bytes() == (100, 10)
    file.truncate(50)
    filesystem.replace("/a/g", b"y" * 50)
    filesystem.rename("/a/g", "/a/f")
    assert filesystem.free_bytes() == (100, 50)
    filesystem.remove_tree("/a")
    assert filesystem.free_bytes() == (100, 100)


def test_a_power_cut_keeps_what_was_synced_and_only_that_for_sure() -> None:
    outcomes = set()
    for seed in range(60):
        filesystem = CrashingFilesystem(seed)
        filesystem.make_directory("/a")
        filesystem.sync_directory("/")
        file = filesystem.open("/a/f", create=True)
        file.append(b"s" * 600)
        file.sync()
        filesystem.sync_directory("/a")
        file.append(b"u" * 600)
        filesystem.crash()
        content = filesystem.read_bytes("/a/f")
        assert content[:600] == b"s" * 600
        assert set(content[600:]) <= set(b"u\0")
        outcomes.add("nothing" if len(content) == 600 else "all" if content == b"s" * 600 + b"u" * 600 else "torn")
    assert outcomes == {"nothing", "all", "torn"}


def test_a_name_survives_a_power_cut_only_if_its_directory_was_synced() -> None:
    survived = 0
    for seed in range(40):
        filesystem = CrashingFilesystem(seed)
        filesystem.make_directory("/a")
        filesystem.sync_directory("/")
        filesystem.open("/a/first", create=True)
        filesystem.sync_directory("/a")
        filesystem.open("/a/second", create=True).sync()
        filesystem.crash()
        assert filesystem.exists("/a/first")
        survived += filesystem.exists("/a/second")
    assert 0 < survived < 40


def test_a_replaced_file_has_the_old_or_the_new_content_after_a_power_cut() -> None:
    for seed in range(20):
        filesystem = CrashingFilesystem(seed)
        filesystem.make_directory("/a")
        filesystem.sync_directory("/")
        filesystem.replace("/a/f", b"old")
        filesystem.replace("/a/f", b"new")
        filesystem.crash()
        assert filesystem.read_bytes("/a/f") == b"new"


def test_a_file_from_before_the_crash_is_dead() -> None:
    filesystem = CrashingFilesystem()
    filesystem.make_directory("/a")
    file = filesystem.open("/a/f", create=True)
    filesystem.crash()
    with pytest.raises(AssertionError, match="before the crash"):
        file.append(b"x")


def test_the_crashing_disk_can_be_full_and_fail_to_sync() -> None:
    filesystem = CrashingFilesystem()
    filesystem.make_directory("/a")
    file = filesystem.open("/a/f", create=True)
    filesystem.free_for_appends = 5
    file.append(b"1234")
    with pytest.raises(DiskFull):
        file.append(b"56")
    assert file.size == 4
    file.sync()
    filesystem.fail_sync_at = filesystem.syncs + 1
    with pytest.raises(SyncFailure):
        file.sync()
    with pytest.raises(SyncFailure):
        filesystem.sync_everything()


def test_recent_bytes_let_the_oldest_block_of_any_file_go_first() -> None:
    recent = RecentBytes(3 * BLOCK_SIZE)
    first, second = Tail(1000), Tail(0)
    recent.add(first, b"a" * BLOCK_SIZE)
    recent.add(second, b"b" * (2 * BLOCK_SIZE))
    into = memoryview(bytearray(10))
    assert recent.read(first, 1000, into) == 10
    recent.add(second, b"c")
    assert recent.read(first, 1000, into) == 0
    assert recent.read(second, 0, into) == 10
    assert recent.read(second, 2 * BLOCK_SIZE - 5, into) == 6
    assert bytes(into[:6]) == b"bbbbbc"
    assert recent.read(second, 2 * BLOCK_SIZE + 1, into) == 0
    recent.forget(second)
    assert recent.used_bytes == 0
