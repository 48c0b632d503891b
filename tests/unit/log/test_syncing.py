"""Of two syncs one of which failed, none says yes: a kernel that reports a lost write once, played by the test."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.log.files import syncing
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import SyncFailure


class ForgetfulKernel:
    """Has lost a write, and says so to the first call; the answer takes its time to be written down."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.first_is_inside = threading.Event()
        self.let_first_go = threading.Event()
        self._told = False
        self._lock = threading.Lock()

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self.descriptors.append(descriptor)
            told, self._told = self._told, True
        if not told:
            self.first_is_inside.set()
            assert self.let_first_go.wait(60)
            raise OSError(5, "Input/output error")


def outcome(call: Callable[[], None], outcomes: list[str]) -> None:
    try:
        call()
    except SyncFailure:
        outcomes.append("failure")
    else:
        outcomes.append("success")


@pytest.mark.parametrize("what", ["file", "directory", "everything"])
def test_a_sync_beside_one_that_fails_does_not_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    filesystem = OsFilesystem(str(tmp_path))
    file = filesystem.open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    kernel = ForgetfulKernel()
    monkeypatch.setattr(os, "fdatasync", kernel.sync)
    monkeypatch.setattr(os, "fsync", kernel.sync)
    monkeypatch.setattr(syncing, "_syncfs", kernel.sync)
    call = {
        "file": file.sync,
        "directory": lambda: filesystem.sync_directory(str(tmp_path)),
        "everything": filesystem.sync_everything,
    }[what]
    outcomes: list[str] = []
    threads = [threading.Thread(target=outcome, args=(call, outcomes)) for _ in range(2)]
    threads[0].start()
    assert kernel.first_is_inside.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    assert outcomes == [], "the second waits until it is known how the first ended"
    kernel.let_first_go.set()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["failure", "failure"]
    assert len(kernel.descriptors) == 1, "after a failure the kernel is not asked again"


def test_one_descriptor_opened_before_the_first_write_serves_every_sync_of_the_filesystem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    filesystem = OsFilesystem(str(root))
    filesystem.make_directory(str(root))
    kept = [name for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(root)]
    descriptors: list[int] = []
    monkeypatch.setattr(syncing, "_syncfs", descriptors.append)
    for _ in range(3):
        filesystem.sync_everything()
    assert [str(descriptor) for descriptor in descriptors] == kept * 3
    filesystem.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])


def test_a_forgotten_filesystem_gives_its_descriptor_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors: list[int] = []
    monkeypatch.setattr(syncing, "_syncfs", descriptors.append)
    filesystem = OsFilesystem(str(tmp_path))
    filesystem.sync_everything()
    del filesystem
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
