"""A whole broker on a loop: how it stops, and what ends it."""

import asyncio
import logging
import resource
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.cluster.metadata.image import ImageDelta
from cordwood.model.errors import StorageFailure
from cordwood.model.moment import Moment
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.node.node import Node

WAIT_MS = 60_000


def settings(**texts: str) -> BrokerSettings:
    return BrokerSettings.from_texts(
        {"listeners": "127.0.0.1:0"} | {name.replace("_", "."): text for name, text in texts.items()}
    )


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def fetch_that_waits(wait_ms: int) -> bytes:
    """Fetch v4 of partition 0 of topic `t`, for one byte more than there is."""
    header = struct.pack(">hhih", 1, 4, 5, -1)
    body = struct.pack(">iiiibi", -1, wait_ms, 1, 1 << 20, 0, 1) + text("t") + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return framed(header + body)


def metadata_that_creates() -> bytes:
    return framed(struct.pack(">hhih", 3, 4, 4, -1) + struct.pack(">i", 1) + text("t") + b"\x01")


class Peer:
    def __init__(self, server: Server) -> None:
        self.loop = asyncio.get_running_loop()
        self.socket = socket.create_connection(server.address)
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.socket, data)

    async def receive(self) -> bytes:
        """The next response, without its size; empty if the connection is closed."""
        data = b""
        size = 4
        while len(data) < size:
            try:
                part = await self.loop.sock_recv(self.socket, size - len(data))
            except ConnectionError:
                return b""
            if not part:
                return b""
            data += part
            if len(data) == 4:
                size = 4 + struct.unpack(">i", data)[0]
        return data[4:]


async def test_a_stopping_broker_answers_who_waits_for_more_to_read() -> None:
    server = await Server.start(settings(), memory=Memory())
    peer = Peer(server)
    await peer.send(metadata_that_creates())
    assert struct.unpack_from(">i", await peer.receive())[0] == 4
    await peer.send(fetch_that_waits(WAIT_MS))
    while not server.node.parked.by_connection:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    started_s = time.monotonic()
    stopping = asyncio.create_task(server.stop())
    assert struct.unpack_from(">i", await peer.receive())[0] == 5
    assert await peer.receive() == b""
    await stopping
    assert time.monotonic() - started_s < WAIT_MS / 1000
    peer.socket.close()


async def test_a_stopped_broker_listens_no_more(tmp_path: Path) -> None:
    server = await Server.start(settings(log_dirs=str(tmp_path)))
    address = server.address
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    again = await Server.start(settings(log_dirs=str(tmp_path)))
    await again.stop()


async def test_a_stop_that_fails_gives_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await Server.start(settings(log_dirs=str(tmp_path)))

    def fail() -> None:
        raise StorageFailure("the disk fails")

    monkeypatch.setattr(server._storage, "close_logs", fail)
    with pytest.raises(StorageFailure):
        await server.stop()
    again = await Server.start(settings(log_dirs=str(tmp_path)))
    await again.stop()


async def test_fewer_connections_than_the_default_are_no_news_where_they_are_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    try:
        server = await Server.start(settings(log_dirs=str(tmp_path)))
        assert server._connections is not None
        assert server._connections.limits.max_connections < 10_000
        await server.stop()
        assert "ulimit" not in caplog.text
        asked_for = await Server.start(settings(log_dirs=str(tmp_path), max_connections="9000"))
        asked_for._bound_connections(ImageDelta(1, broker_settings_changed=True))
        await asked_for.stop()
        (warned,) = [text for text in caplog.messages if "few file descriptors (ulimit -Hn is 4096)" in text]
        assert "not max.connections (9000). Raise the limit" in warned
        assert "open.files.max" not in warned, "there are descriptors for all open log files"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_leave_descriptors_for_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    try:
        server = await Server.start(settings(log_dirs=str(tmp_path)))
        assert server._storage.max_open_files == 500
        assert server._connections is not None
        assert server._connections.limits.max_connections == (1000 - 500 - 64) // 2
        assert "up to 218 connections, not max.connections (10000)" in caplog.text
        await server.stop()
        modest = await Server.start(settings(max_connections="10"), memory=Memory())
        assert modest._connections is not None
        assert modest._connections.limits.max_connections == 10
        await modest.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_broken_invariant_ends_the_broker_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await Server.start(settings(), memory=Memory())
    bystander, peer = Peer(server), Peer(server)
    await bystander.send(metadata_that_creates())
    await bystander.receive()

    def broken(*_: Any) -> None:
        raise AssertionError("the log end went back")

    monkeypatch.setattr(Node, "handle", broken)
    await peer.send(metadata_that_creates())
    assert isinstance(await server.failed, AssertionError)
    assert await peer.receive() == b""
    assert await bystander.receive() == b""
    await server.stop()
    for each in (bystander, peer):
        each.socket.close()


async def test_any_other_failure_of_a_request_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await Server.start(settings(), memory=Memory())
    peer, other = Peer(server), Peer(server)
    handle = Node.handle

    def sometimes(node: Node, header: Any, frame: memoryview, reply: Any, now: Moment) -> None:
        if header.correlation_id == 5:
            raise LookupError("a bug in one handler")
        handle(node, header, frame, reply, now)

    monkeypatch.setattr(Node, "handle", sometimes)
    await peer.send(fetch_that_waits(0))
    assert await peer.receive() == b""
    await other.send(metadata_that_creates())
    assert struct.unpack_from(">i", await other.receive())[0] == 4
    assert any("a bug in one handler" in line for line in caplog.messages)
    await server.stop()
    for each in (peer, other):
        each.socket.close()


async def test_nothing_is_left_of_a_broker_that_could_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="cannot listen"):
            await Server.start(BrokerSettings.from_texts({"listeners": f"127.0.0.1:{port}", "log.dirs": str(tmp_path)}))
    server = await Server.start(settings(log_dirs=str(tmp_path)))
    await server.stop()
