"""The security trail's queue, thread and file: it loses nothing while the disk writes, and counts while it does not."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import eventually, eventually_here

from cordwood.broker.trail import writer as writer_module
from cordwood.broker.trail.recorder import SecurityTrail
from cordwood.broker.trail.rotating_file import RotatingFile
from cordwood.broker.trail.writer import TrailWriter
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.security.sessions import Principal, Session
from cordwood.security.trail.events import Event, Told, What
from cordwood.security.trail.port import Changed

MALLORY = Session(Entrance("USERS", Callers.CLIENTS), "10.0.0.9", Principal("User", "mallory"))
KEPT = 3


def told(number: int) -> Told:
    return Told(Event(What.CHANGE, "User:alice", "10.0.0.9", "USERS", "CreateTopics", name=f"t{number}"), 1, 1, 1)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All lines, of the oldest file first."""
    files = sorted(path.parent.glob(f"{path.name}*"), key=lambda file: -int(file.suffix[1:].replace("jsonl", "0")))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class Failing(RotatingFile):
    """A file whose disk is full until `mended`."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), 1 << 20, KEPT)
        self.mended = threading.Event()

    def append(self, lines: bytes) -> None:
        if not self.mended.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(lines)


def test_a_file_is_renamed_at_its_size_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "trail" / "broker-1.jsonl"
    file = RotatingFile(str(path), 100, KEPT)
    for number in range(9):
        file.append(b"%d" % number + b"x" * 58 + b"\n")
    file.close()
    assert {name: (path.parent / name).read_bytes()[:1] for name in sorted(os.listdir(path.parent))} == {
        "broker-1.jsonl": b"8",
        "broker-1.jsonl.1": b"7",
        "broker-1.jsonl.2": b"6",
        "broker-1.jsonl.3": b"5",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_was_renamed_or_deleted_by_others_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "trail" / "broker-1.jsonl"
    file = RotatingFile(str(path), 1 << 20, KEPT)
    file.append(b"one\n")
    path.rename(path.with_suffix(".kept"))
    file.append(b"two\n")
    assert path.read_bytes() == b"two\n"
    assert path.with_suffix(".kept").read_bytes() == b"one\n"
    path.unlink()
    path.with_suffix(".kept").unlink()
    path.parent.rmdir()
    file.append(b"three\n")
    assert path.read_bytes() == b"three\n"
    file.close()


def test_a_line_that_was_cut_by_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.jsonl"
    path.write_bytes(b'{"whole":1}\n{"half"')
    file = RotatingFile(str(path), 1 << 20, KEPT)
    file.append(b'{"next":1}\n')
    file.close()
    assert path.read_bytes().splitlines()[-1] == b'{"next":1}'


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "broker-1.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match=r"Too many levels|symbolic"):
        RotatingFile(str(tmp_path / "broker-1.jsonl"), 1 << 20, KEPT).append(b"x\n")


def test_a_piece_that_does_not_fit_the_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The kernel's bound on the size of files stands for the full disk: it writes the bytes that still fit."""
    program = """
import resource, signal, sys
from cordwood.broker.trail.rotating_file import RotatingFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = RotatingFile(sys.argv[1], 1 << 20, 3)
try:
    while True:
        file.append(b"x" * 299 + b"\\n")
except OSError as error:
    print(error.errno)
"""
    path = tmp_path / "broker-1.jsonl"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == errno.EFBIG
    assert path.read_bytes() == (b"x" * 299 + b"\n") * 3


def test_lines_are_written_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.jsonl"
    writer = TrailWriter(RotatingFile(str(path), 100_000, 1000), 1)
    for number in range(2_000):
        writer.put(told(number))
    writer.close()
    assert [line["resources"][0]["name"] for line in lines_of(path) if "resources" in line] == []
    assert [line["message"] for line in lines_of(path)] == ["User:alice changed"] * 2_000
    assert (writer.written, writer.lost) == (2_000, 0)


def test_a_full_disk_is_waited_for_and_events_beyond_the_queue_are_counted_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MOST_WAITING", 50)
    path = tmp_path / "broker-1.jsonl"
    file = Failing(path)
    writer = TrailWriter(file, 1, retry_s=0.01)
    for number in range(80):
        writer.put(told(number))
    assert writer.lost == 30
    eventually(lambda: "the security trail cannot be written" in caplog.text)
    caplog.set_level(logging.INFO)
    file.mended.set()
    eventually(lambda: writer.written, to_be=51)
    writer.close()
    *whole, last = lines_of(path)
    assert len(whole) == 50
    assert (last["count"], "30 events are lost" in last["status_detail"]) == (30, True)
    assert "No space left on device" in caplog.text
    assert "is written again" in caplog.text
    assert "lost 30 events" in caplog.text


def test_a_broker_stops_though_its_trail_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = TrailWriter(Failing(tmp_path / "broker-1.jsonl"), 1, retry_s=60)
    writer.put(told(1))
    eventually(lambda: "cannot be written" in caplog.text)
    writer.close()
    assert writer.lost == 1
    assert "lost 1 events" in caplog.text


def test_a_flood_of_refusals_is_two_lines_a_window(tmp_path: Path) -> None:
    asyncio.run(flood(tmp_path / "broker-1.jsonl"))


async def flood(path: Path) -> None:
    trail = SecurityTrail(asyncio.get_running_loop(), TrailWriter(RotatingFile(str(path), 1 << 20, KEPT), 1), 20)
    for number in range(10_000):
        trail.refused(MALLORY, "Fetch", Operation.READ, ResourceKind.TOPIC, f"t{number}", enforced=True)
    await eventually_here(lambda: trail.lines == 2)
    trail.changed(MALLORY, "DeleteTopics", Changed(Operation.DELETE, ResourceKind.TOPIC, "orders", 0))
    trail.refused(MALLORY, "Fetch", Operation.READ, ResourceKind.TOPIC, "again", enforced=True)
    trail.refused(MALLORY, "Fetch", Operation.READ, ResourceKind.TOPIC, "again", enforced=True)
    trail.close()
    lines = lines_of(path)
    refusals = [line for line in lines if line["status_id"] == 2]
    assert sum(line["count"] for line in refusals) == 10_002
    assert [line["message"] for line in lines if line["status_id"] == 1] == [
        "User:mallory changed: Delete of the topic orders"
    ]
    trail.logged_in(MALLORY)
    assert trail.lines == len(lines)
