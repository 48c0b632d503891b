"""What a broker keeps, and how it is taken and given back."""

import os
from pathlib import Path

import pytest

from cordwood.broker.storage.memory import Memory
from cordwood.broker.storage.storage import Storage
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.settings.broker_settings import BrokerSettings


def settings(directory: Path) -> BrokerSettings:
    return BrokerSettings.from_texts({"log.dirs": str(directory)})


async def test_a_broker_that_is_only_read_from_knows_whether_reads_can_be_told_not_to_wait(tmp_path: Path) -> None:
    storage = await Storage.open(settings(tmp_path))
    assert isinstance(storage.logs.home.filesystem, OsFilesystem)
    assert storage.logs.home.filesystem.reads_without_waiting is None
    storage.claim("cluster")
    assert storage.logs.home.filesystem.reads_without_waiting is not None
    await storage.release()


async def test_only_logs_that_were_closed_in_order_are_marked_so(tmp_path: Path) -> None:
    marks = []
    for in_order in (True, False, True):
        storage = await Storage.open(settings(tmp_path))
        storage.claim("cluster")
        marks.append(storage.logs.home.clean)
        if in_order:
            storage.close_logs()
        await storage.release()
    storage = await Storage.open(settings(tmp_path))
    storage.claim("cluster")
    marks.append(storage.logs.home.clean)
    await storage.release()
    assert marks == [False, True, False, True]


async def test_every_new_directory_on_the_way_to_the_data_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    path = tmp_path / "new" / "deep" / "data"
    for _ in range(2):
        # The second time the directories are there: a process was killed before it had synced them.
        storage = await Storage.open(settings(path))
        assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "deep")} <= synced
        await storage.release()
        synced.clear()
    storage = await Storage.open(settings(path))
    storage.claim("cluster")
    assert str(path) in synced
    await storage.release()


async def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    storage = await Storage.open(settings(tmp_path / "data"), memory=Memory())
    storage.claim("cluster")
    assert storage.in_memory
    storage.close_logs()
    await storage.release()
    assert not (tmp_path / "data").exists()


async def test_a_relative_data_directory_is_known_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = await Storage.open(settings(Path("data")))
    monkeypatch.chdir("/")
    storage.claim("cluster")
    assert storage.logs.path == f"{tmp_path}/data"
    storage.close_logs()
    await storage.release()
