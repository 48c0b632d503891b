"""`File.send_now`: from the page cache to a socket inside the kernel, and never a wait for the disk."""

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.log.files.cold_pages import would_not_wait
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.segments.filesystem import File

CONTENT = random.Random(5).randbytes(300_000)


@pytest.fixture
def file(tmp_path: Path) -> File:
    filesystem = OsFilesystem(str(tmp_path))
    made = filesystem.open(str(tmp_path / "a.log"), create=True)
    made.append(CONTENT)
    if not filesystem.reads_without_waiting:
        pytest.skip("this filesystem cannot be read without waiting")
    return made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    with left, right:
        yield left, right


def drop_from_cache(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def receive(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


@pytest.mark.parametrize(("position", "length"), [(0, 10), (4095, 2), (1, 70_000), (123_456, 50_000)])
def test_bytes_in_the_cache_are_sent(
    file: File, pair: tuple[socket.socket, socket.socket], position: int, length: int
) -> None:
    sender, peer = pair
    assert file.send_now(sender.fileno(), position, length) == length
    assert receive(peer, length) == CONTENT[position : position + length]


def test_no_more_is_sent_than_there_is(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, peer = pair
    assert file.send_now(sender.fileno(), len(CONTENT) - 5, 100) == 5
    assert receive(peer, 5) == CONTENT[-5:]
    assert file.send_now(sender.fileno(), len(CONTENT), 100) == 0


def test_bytes_that_are_not_in_the_cache_are_not_sent(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    drop_from_cache(file.path)
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        if would_not_wait(descriptor, 0, len(CONTENT)):
            pytest.skip("the kernel keeps the pages")
        assert file.send_now(pair[0].fileno(), 0, len(CONTENT)) == 0
        # One page that is missing is enough.
        os.pread(descriptor, 1, 0)
        assert file.send_now(pair[0].fileno(), 0, len(CONTENT)) == 0
    finally:
        os.close(descriptor)


def test_a_full_socket_says_so(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, _ = pair

    def fill() -> None:
        while True:
            file.send_now(sender.fileno(), 0, len(CONTENT))

    with pytest.raises(BlockingIOError):
        fill()


def test_a_peer_that_has_gone_is_the_sockets_failure(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, peer = pair
    peer.close()
    with pytest.raises(BrokenPipeError):
        file.send_now(sender.fileno(), 0, 1000)


def test_a_filesystem_that_cannot_do_it_is_read_instead(
    file: File, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sendfile", refuse)
    assert file.send_now(pair[0].fileno(), 0, 1000) == 0


def test_without_cachestat_the_pages_are_looked_at_one_by_one(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.log.files.cold_pages._SYS_CACHESTAT", 100_000)
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        assert would_not_wait(descriptor, 0, len(CONTENT))
        drop_from_cache(file.path)
        if would_not_wait(descriptor, 0, len(CONTENT)):
            pytest.skip("the kernel keeps the pages")
    finally:
        os.close(descriptor)
