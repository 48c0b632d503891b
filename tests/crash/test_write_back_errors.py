"""A disk that takes writes into its cache and loses them later: whoever syncs must hear of it, whoever else has."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.mounts import LosingDisk, MountUnavailable
from tests.moments import at

from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import SyncFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.build import build_batch

SYNC_ALL = "import ctypes, os, sys; sys.exit(-ctypes.CDLL(None).syncfs(os.open(sys.argv[1], os.O_RDONLY)))"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LosingDisk]:
    try:
        disk = LosingDisk(tmp_path)
    except MountUnavailable as reason:
        pytest.skip(f"no disk can be made to lose writes here: {reason}")
    yield disk
    disk.destroy()


def another_process_syncs(disk: LosingDisk) -> bool:
    """Whether its sync of the whole filesystem succeeded."""
    return subprocess.run([sys.executable, "-c", SYNC_ALL, str(disk.path)], timeout=60, check=False).returncode == 0


def test_a_write_that_was_lost_is_not_called_durable_because_another_process_heard_of_it_first(
    disk: LosingDisk,
) -> None:
    filesystem = OsFilesystem(str(disk.path))
    try:
        file = filesystem.open(f"{disk.path}/f", create=True)
        with disk.losing():
            file.append(os.urandom(1 << 20))
            assert not another_process_syncs(disk)
        assert another_process_syncs(disk), "the kernel tells each descriptor once"
        with pytest.raises(SyncFailure):
            filesystem.sync_everything()
        with pytest.raises(SyncFailure):
            file.sync()
        file.close()
    finally:
        filesystem.close()


def test_recovery_does_not_believe_memory_what_the_disk_has_lost(disk: LosingDisk) -> None:
    """The kernel keeps the pages of a lost write as clean: they can be read, and a sync of them says yes."""
    directory = f"{disk.path}/orders-0"
    settings = TopicSettings()

    def open_log(filesystem: OsFilesystem) -> Log:
        return Log.open(
            filesystem, directory, TopicPartition("orders", 0), settings, recovery_point=0, clean=False, now=at(0)
        )

    def append(log: Log) -> None:
        log.append(build_batch([(0, None, os.urandom(900_000), ())]), leader_epoch=0, now=at(0))

    before, after = OsFilesystem(str(disk.path)), OsFilesystem(str(disk.path))
    logs = [open_log(before)]
    try:
        append(logs[0])
        ticket = logs[0].begin_flush()
        assert ticket is not None
        ticket.sync()
        with disk.losing():
            for _ in range(10):
                append(logs[0])
            ticket = logs[0].begin_flush()
            assert ticket is not None
            with pytest.raises(SyncFailure):
                ticket.sync()
        logs.append(open_log(after))
        assert 1 <= logs[1].offsets.end < 11
        assert [cut.first_offset for cut in logs[1].reports.recovery.cuts] == [logs[1].offsets.end]
    finally:
        for log in logs:
            log.close()
        before.close()
        after.close()
