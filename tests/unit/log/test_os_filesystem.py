"""The machine's own disk: bounded handles, all-or-nothing appends, reads that never wait, caches left as found."""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.log.files import os_file
from cordwood.log.files.cold_pages import PAGE_SIZE, pages_not_cached
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure

NO_NOWAIT = Path("/dev/shm")
"""tmpfs refuses RWF_NOWAIT."""


@contextlib.contextmanager
def full_disk_at(size: int) -> Iterator[None]:
    """Files cannot grow beyond this size: a write gets as far as it can, then fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing more can be opened in this process, but for what is closed before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_appended_can_be_read_in_every_way(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    file = filesystem.open(f"{tmp_path}/f", create=True)
    file.append(b"one")
    file.append(memoryview(b"two"))
    file.append(bytearray(b"three"))
    assert file.size == 11
    assert file.read(0, 100) == b"onetwothree"
    assert file.read(3, 3) == b"two"
    assert file.read(11, 5) == b""
    for read in (file.read_now, file.read_cold):
        into = bytearray(20)
        assert read(6, memoryview(into)) == 5
        assert into[:5] == b"three"
        assert read(11, memoryview(into)) == 0
    assert filesystem.open(f"{tmp_path}/f").size == 11


def test_a_missing_file_is_not_created_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsFilesystem(str(tmp_path)).open(f"{tmp_path}/f")


def test_an_append_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = OsFilesystem(str(tmp_path)).open(f"{tmp_path}/f", create=True)
    file.append(b"a" * 1000)
    with full_disk_at(1500), pytest.raises(StorageFailure):
        file.append(b"b" * 1000)
    assert file.size == 1000
    assert os.stat(file.path).st_size == 1000
    file.append(b"c" * 1000)
    assert file.read(0, 3000) == b"a" * 1000 + b"c" * 1000


def test_no_space_left_is_a_full_disk(tmp_path: Path) -> None:
    file = OsFilesystem(str(tmp_path)).open(f"{tmp_path}/f", create=True)
    file.append(b"there")
    full = os.open("/dev/full", os.O_RDWR)
    real = file._descriptor  # type: ignore[attr-defined]
    try:
        file._descriptor = full  # type: ignore[attr-defined]
        with pytest.raises(DiskFull):
            file.append(b"not there")
    finally:
        file._descriptor = real  # type: ignore[attr-defined]
        os.close(full)
    assert file.size == 5
    assert file.read(0, 100) == b"there"


def test_open_handles_are_bounded_and_come_back_when_needed(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path), max_open_files=8)
    files = [filesystem.open(f"{tmp_path}/{number}", create=True) for number in range(30)]
    for file in files:
        file.append(file.path.encode())
        file.sync()
    assert filesystem.open_files <= 8
    before = len(os.listdir("/proc/self/fd"))
    for file in files:
        assert file.read(0, 1000) == file.path.encode()
    assert len(os.listdir("/proc/self/fd")) <= before + 8


def test_a_handle_with_unsynced_writes_is_synced_before_it_is_given_up(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path), max_open_files=4)
    dirty = [filesystem.open(f"{tmp_path}/dirty{number}", create=True) for number in range(3)]
    for file in dirty:
        file.append(b"not synced")
    clean = [filesystem.open(f"{tmp_path}/clean{number}", create=True) for number in range(10)]
    for file in clean:
        file.read(0, 1)
    assert filesystem.forced_syncs == 0, "clean handles go first"
    assert filesystem.unsynced_files == 3
    for number in range(4):
        filesystem.open(f"{tmp_path}/more{number}", create=True).append(b"not synced either")
    assert filesystem.forced_syncs >= 3
    assert filesystem.open_files <= 4


def test_a_handle_is_not_closed_while_a_thread_syncs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFilesystem(str(tmp_path)).open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    inside, closed = threading.Event(), threading.Event()

    def slow_sync(descriptor: int) -> None:
        inside.set()
        assert closed.wait(60)
        os.fstat(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    failures: list[BaseException] = []

    def sync() -> None:
        try:
            file.sync()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    assert inside.wait(60)
    file.close()
    closed.set()
    thread.join(60)
    assert not failures
    monkeypatch.undo()
    assert file.read(0, 1) == b"x"


def test_after_one_failed_sync_nothing_is_ever_called_durable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    first, second = (filesystem.open(f"{tmp_path}/{name}", create=True) for name in "ab")
    first.append(b"x")

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(SyncFailure, match="Input/output error"):
        first.sync()
    monkeypatch.undo()
    for call in (first.sync, second.sync, filesystem.sync_everything, lambda: filesystem.sync_directory(str(tmp_path))):
        with pytest.raises(SyncFailure):
            call()


def test_where_others_have_taken_every_descriptor_handles_are_given_up_for_what_has_to_be_opened(
    tmp_path: Path,
) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    files = [filesystem.open(f"{tmp_path}/{number}", create=True) for number in range(3)]
    for file in files:
        file.append(b"unsynced")
    with no_descriptor_left():
        filesystem.sync_everything()
        filesystem.sync_directory(str(tmp_path))
        filesystem.replace(f"{tmp_path}/replaced", b"new")
        files.append(filesystem.open(f"{tmp_path}/3", create=True))
        for file in files:
            file.append(b".")
            file.sync()
            assert file.read_cold(0, memoryview(bytearray(9))) == file.size
        assert filesystem.open_files < len(files)
        for file in files:
            file.close()
    assert [(tmp_path / str(number)).read_bytes() for number in range(4)] == [b"unsynced."] * 3 + [b"."]


def test_files_still_have_to_be_synced_if_syncing_everything_cannot_begin(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path / "gone"))
    file = filesystem.open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    with pytest.raises(StorageFailure, match="cannot open directory"):
        filesystem.sync_everything()
    assert filesystem.unsynced_files == 1


def test_where_the_page_cache_cannot_be_asked_recent_bytes_answer() -> None:
    root = NO_NOWAIT / f"cordwood-{os.getpid()}"
    root.mkdir()
    try:
        filesystem = OsFilesystem(str(root), tail_bytes=100_000)
        file = filesystem.open(f"{root}/f", create=True)
        for number in range(30):
            file.append(bytes([number]) * 10_000)
        assert filesystem.reads_without_waiting is False
        into = bytearray(15_000)
        assert file.read_now(285_000, memoryview(into)) == 15_000
        assert into == bytes([28]) * 5_000 + bytes([29]) * 10_000
        assert file.read_now(0, memoryview(into)) == 0, "the beginning is no longer in memory"
        assert filesystem.recent_bytes.used_bytes <= 100_000
        file.truncate(290_000)
        assert file.read_now(285_000, memoryview(into)) == 0, "a cut file is not answered from what it was"
        file.append(b"new")
        assert file.read_now(290_000, memoryview(into)) == 3
        assert into[:3] == b"new"
    finally:
        OsFilesystem(str(root)).remove_tree(str(root))


def test_a_cold_read_leaves_the_page_cache_as_it_found_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_file, "HOT_TAIL_BYTES", 0)
    path = tmp_path / "f"
    filesystem = OsFilesystem(str(tmp_path))
    file = filesystem.open(str(path), create=True)
    pages = 64
    content = os.urandom(pages * PAGE_SIZE)
    file.append(content)
    file.sync()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if pages_not_cached(descriptor, 0, pages * PAGE_SIZE) != [(0, pages * PAGE_SIZE)]:
            pytest.skip("this kernel does not drop pages when asked")
        os.pread(descriptor, PAGE_SIZE, 8 * PAGE_SIZE)
        wanted = [(0, 8 * PAGE_SIZE), (9 * PAGE_SIZE, (pages - 9) * PAGE_SIZE)]
        assert pages_not_cached(descriptor, 0, pages * PAGE_SIZE) == wanted
        into = bytearray(pages * PAGE_SIZE)
        assert file.read_now(PAGE_SIZE, memoryview(into)) == 0, "not cached, so not read"
        assert pages_not_cached(descriptor, 0, pages * PAGE_SIZE) == wanted, "and not read ahead"
        assert file.read_now(8 * PAGE_SIZE, memoryview(into)[:PAGE_SIZE]) == PAGE_SIZE
        assert file.read_cold(0, memoryview(into)) == pages * PAGE_SIZE
        assert into == content
        assert pages_not_cached(descriptor, 0, pages * PAGE_SIZE) == wanted
    finally:
        os.close(descriptor)


def test_replacing_a_file_is_all_or_nothing(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    path = f"{tmp_path}/f"
    filesystem.replace(path, b"first")
    filesystem.replace(path, b"second, longer")
    assert filesystem.read_bytes(path) == b"second, longer"
    with full_disk_at(4), pytest.raises(StorageFailure):
        filesystem.replace(path, b"third")
    assert filesystem.read_bytes(path) == b"second, longer"


def test_directories_are_listed_in_order_renamed_and_removed(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    filesystem.make_directory(f"{tmp_path}/a/b")
    for name in ("2", "1", "3"):
        filesystem.replace(f"{tmp_path}/a/b/{name}", b"")
    assert filesystem.list(f"{tmp_path}/a/b") == ["1", "2", "3"]
    filesystem.rename(f"{tmp_path}/a/b", f"{tmp_path}/a/c")
    assert filesystem.list(f"{tmp_path}/a/b") == []
    assert filesystem.exists(f"{tmp_path}/a/c/1")
    filesystem.remove(f"{tmp_path}/a/c/1")
    filesystem.remove_tree(f"{tmp_path}/a")
    filesystem.remove_tree(f"{tmp_path}/a")
    assert filesystem.list(str(tmp_path)) == []
    filesystem.sync_everything()
    total, usable = filesystem.free_bytes()
    assert total >= usable > 0


def test_a_data_directory_has_one_owner(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    lock = filesystem.lock(f"{tmp_path}/.lock")
    with pytest.raises(StorageFailure, match="another broker"):
        filesystem.lock(f"{tmp_path}/.lock")
    lock.release()
    lock.release()
    filesystem.lock(f"{tmp_path}/.lock").release()


def test_threads_sync_and_read_while_handles_come_and_go(tmp_path: Path) -> None:
    """More files than handles, appended to in one thread, synced and read in others: every byte is its own file's."""
    filesystem = OsFilesystem(str(tmp_path), max_open_files=4)
    files = [filesystem.open(f"{tmp_path}/{number}", create=True) for number in range(12)]
    block = 512
    stop = threading.Event()
    failures: list[BaseException] = []

    def check(turn: int) -> None:
        into = bytearray(8 * block)
        try:
            while not stop.is_set():
                turn += 1
                number = turn % len(files)
                file = files[number]
                if turn % 3 == 0:
                    file.sync()
                got = file.read_cold(0, memoryview(into)) if turn % 2 else len(file.read(0, len(into)))
                if turn % 2:
                    assert set(into[:got]) <= {number}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=check, args=(start,)) for start in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        for number, file in enumerate(files):
            file.append(bytes([number]) * block)
            if turn % 7 == 0:
                file.close()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    for number, file in enumerate(files):
        assert file.size == 60 * block
        assert file.read(0, file.size) == bytes([number]) * (60 * block)


def test_reserved_room_makes_no_file_longer_and_is_given_back(tmp_path: Path) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    file = filesystem.open(f"{tmp_path}/segment.log", create=True)
    path = tmp_path / "segment.log"
    file.append(b"a batch")
    file.reserve(1 << 20)
    if path.stat().st_blocks * 512 < 1 << 20:
        pytest.skip("this filesystem reserves nothing")
    assert (file.size, path.stat().st_size) == (7, 7)
    file.append(b" and another")
    file.reserve(0)
    assert path.read_bytes() == b"a batch and another"
    assert path.stat().st_blocks * 512 < 1 << 16


def test_room_that_is_not_there_is_not_reserved_and_nothing_fails(tmp_path: Path) -> None:
    file = OsFilesystem(str(tmp_path)).open(f"{tmp_path}/segment.log", create=True)
    file.reserve(1 << 60)
    file.append(b"a batch")
    assert file.read(0, 7) == b"a batch"
