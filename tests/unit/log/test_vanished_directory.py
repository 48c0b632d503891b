"""A data directory that is renamed, removed or unmounted while it is in use: nothing is made in its place."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.in_steps import in_one_step
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.build import build_batch

NOW = Moment(1_000, 1_000)
TOPIC_ID = TopicId(int=1)


def renamed(root: Path) -> None:
    root.rename(root.with_name("away"))


def removed(root: Path) -> None:
    shutil.rmtree(root)


def another_in_its_place(root: Path) -> None:
    """As when a disk is unmounted, and its mount point is an empty directory."""
    renamed(root)
    root.mkdir()


def a_copy_in_its_place(root: Path) -> None:
    renamed(root)
    shutil.copytree(root.with_name("away"), root)


Vanish = Callable[[Path], None]
every_way = pytest.mark.parametrize("vanish", [renamed, removed, another_in_its_place, a_copy_in_its_place])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def filesystem(root: Path) -> OsFilesystem:
    filesystem = OsFilesystem(str(root))
    filesystem.make_directory(str(root))
    filesystem.make_directory(f"{root}/orders-0")
    return filesystem


def names_below(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


@every_way
@pytest.mark.parametrize("what", ["make", "create", "replace", "list", "sync a name", "sync everything", "look"])
def test_nothing_is_made_or_found_missing_where_a_directory_in_use_was(
    root: Path, filesystem: OsFilesystem, vanish: Vanish, what: str
) -> None:
    vanish(root)
    before = names_below(root)
    call: Callable[[], object] = {
        "make": lambda: filesystem.make_directory(f"{root}/orders-1"),
        "create": lambda: filesystem.open(f"{root}/orders-0/segment", create=True),
        "replace": lambda: filesystem.replace(f"{root}/checkpoint", b"offsets"),
        "list": lambda: filesystem.list(f"{root}/orders-0"),
        "sync a name": lambda: filesystem.sync_directory(str(root)),
        "sync everything": filesystem.sync_everything,
        "look": lambda: filesystem.check_present(str(root)),
    }[what]
    with pytest.raises(SyncFailure, match="is gone") as failure:
        call()
    assert failure.value.root == str(root)
    assert names_below(root) == before


@pytest.mark.parametrize("what", ["open", "read", "rename", "remove", "remove a tree", "make the root"])
def test_a_file_that_is_missing_with_its_data_directory_is_a_failure_of_the_directory(
    root: Path, filesystem: OsFilesystem, what: str
) -> None:
    filesystem.replace(f"{root}/file", b"content")
    renamed(root)
    call: Callable[[], object] = {
        "open": lambda: filesystem.open(f"{root}/file"),
        "read": lambda: filesystem.read_bytes(f"{root}/file"),
        "rename": lambda: filesystem.rename(f"{root}/file", f"{root}/other"),
        "remove": lambda: filesystem.remove(f"{root}/file"),
        "remove a tree": lambda: filesystem.remove_tree(f"{root}/orders-0"),
        "make the root": lambda: filesystem.make_directory(str(root)),
    }[what]
    with pytest.raises(SyncFailure, match="is gone"):
        call()
    assert not root.exists()


def test_a_file_that_is_missing_alone_is_a_missing_file(root: Path, filesystem: OsFilesystem) -> None:
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/file")
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/orders-7/file", create=True)
    assert filesystem.list(f"{root}/orders-7") == []
    filesystem.check_present(str(root))


def test_nothing_is_synced_any_more_once_a_directory_was_found_gone(root: Path, filesystem: OsFilesystem) -> None:
    file = filesystem.open(f"{root}/orders-0/segment", create=True)
    renamed(root)
    file.append(b"first")
    file.sync()
    assert (root.with_name("away") / "orders-0" / "segment").read_bytes() == b"first", "the open file is the old one"
    with pytest.raises(SyncFailure):
        filesystem.check_present(str(root))
    root.with_name("away").rename(root)
    file.append(b"second")
    with pytest.raises(SyncFailure, match="is gone"):
        file.sync()


def test_a_directory_below_a_data_directory_is_made_with_its_parents(root: Path, filesystem: OsFilesystem) -> None:
    filesystem.make_directory(f"{root}/workers/1")
    filesystem.make_directory(f"{root}/workers/1")
    assert (root / "workers" / "1").is_dir()
    (root / "file").write_bytes(b"")
    with pytest.raises(StorageFailure, match="cannot make directory"):
        filesystem.make_directory(f"{root}/file")


# Logs in data directories


@pytest.fixture
def directories(tmp_path: Path) -> DataDirectories:
    paths = [str(tmp_path / name) for name in ("home", "data")]
    logs = DataDirectories([DataDirectory(OsFilesystem(path), path) for path in paths])
    for directory in logs.directories:
        directory.take()
    logs.open()
    return logs


def append(logs: DataDirectories, partition: TopicPartition) -> None:
    log = logs.open_log(partition, TOPIC_ID, TopicSettings(), NOW)
    log.append(memoryview(bytearray(build_batch([(NOW.wall_ms, None, b"value", [])]))), leader_epoch=0, now=NOW)


@every_way
def test_a_log_is_neither_begun_nor_opened_in_a_directory_that_is_gone(
    directories: DataDirectories, root: Path, vanish: Vanish
) -> None:
    home, other = directories.directories
    new, opened = TopicPartition("orders", 0), TopicPartition("orders", 1)
    directories.prefer(new, other)
    directories.prefer(opened, other)
    directories.open_log(opened, TOPIC_ID, TopicSettings(), NOW)
    vanish(root)
    for partition in (new, opened):
        with pytest.raises(SyncFailure, match="is gone"):
            append(directories, partition)
    assert not list(root.glob("orders-*"))
    assert [directory for directory, _ in directories.gone()] == [other]
    assert [directory for directory, _ in directories.probe()] == [other]
    assert home not in directories.lost


@every_way
def test_a_checkpoint_of_a_directory_that_is_gone_fails_and_those_of_others_are_saved(
    directories: DataDirectories, root: Path, tmp_path: Path, vanish: Vanish
) -> None:
    home, other = directories.directories
    for number, directory in enumerate((home, other)):
        partition = TopicPartition("orders", number)
        directories.prefer(partition, directory)
        append(directories, partition)
    vanish(root)
    checkpoint = in_one_step(directories.begin_checkpoint_in_steps())
    checkpoint.write()
    assert list(checkpoint.failures) == [other]
    booked: list[TopicPartition] = []
    in_one_step(directories.finish_checkpoint_in_steps(checkpoint, lambda log: booked.append(log.partition)))()
    assert booked == [TopicPartition("orders", 0)]
    assert "orders 0 1" in (tmp_path / "home" / "recovery-point-offset-checkpoint").read_text()


def test_a_checkpoint_names_a_partition_that_is_gone_alone_and_is_saved_when_it_is_back(
    directories: DataDirectories, tmp_path: Path
) -> None:
    home, _ = directories.directories
    partition = TopicPartition("orders", 0)
    directories.prefer(partition, home)
    append(directories, partition)
    renamed(tmp_path / "home" / "orders-0")
    checkpoint = in_one_step(directories.begin_checkpoint_in_steps())
    checkpoint.write()
    assert str(checkpoint.failures[home]).startswith(f"{tmp_path}/home/orders-0 is gone: it was renamed or removed")
    (tmp_path / "home" / "away").rename(tmp_path / "home" / "orders-0")
    home.checkpoint()
    assert "orders 0 1" in (tmp_path / "home" / "recovery-point-offset-checkpoint").read_text()


def test_a_broker_that_stops_closes_the_other_directories_cleanly(
    directories: DataDirectories, root: Path, tmp_path: Path
) -> None:
    renamed(root)
    with pytest.raises(SyncFailure, match="is gone"):
        directories.close()
    assert (tmp_path / "home" / ".kafka_cleanshutdown").exists()
    assert not root.exists()
