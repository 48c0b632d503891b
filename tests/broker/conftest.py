"""Real sockets on a real loop, with a node that does what the test says: the broker's side of a connection alone."""

import asyncio
import contextlib
import inspect
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.certificates import TlsFiles, tls_files
from tests.deadline import eventually, eventually_here
from tests.moments import at

from cordwood.broker.machine.loop_watch import LoopWatch
from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.connection import Connection
from cordwood.broker.network.connections import ConnectionLimits, Connections
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.network.sending import SendingResources
from cordwood.broker.network.tls.layer import TlsLayer
from cordwood.broker.network.tls.listeners import TlsListeners
from cordwood.broker.network.tls.sender import TlsSender
from cordwood.model.moment import Moment
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import ONLY_ENTRANCE, Callers, Entrance
from cordwood.wire.requests import RequestHeader, Sender

BROKER = Sender(2, 77)
"""The sender of requests that prove that another broker sent them."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that are coroutines run on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 100))
    return True


def no_new_threads(before: set[threading.Thread]) -> None:
    """Waits until no other threads than `before` run; threads of earlier tests may end meanwhile."""
    eventually(lambda: set(threading.enumerate()) <= before, what="the end of all new threads")


def request(correlation_id: int, body: bytes = b"", api_key: int = 3, api_version: int = 0) -> bytes:
    payload = struct.pack(">hhih", api_key, api_version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class ScriptedNode:
    """Keeps what it was asked; answers with `answer` at once, or not at all if there is none."""

    def __init__(self) -> None:
        self.requests: list[tuple[RequestHeader, bytes, Any]] = []
        self.closed: list[int] = []
        self.answer: Callable[[RequestHeader, bytes, Any], None] | None = echo

    def handle(self, header: RequestHeader, frame: memoryview, reply: Any, now: Moment) -> None:
        body = bytes(frame[header.body_start :])
        self.requests.append((header, body, reply))
        if self.answer is not None:
            self.answer(header, body, reply)

    def connection_closed(self, connection_id: int) -> None:
        self.closed.append(connection_id)

    def reply(self, index: int) -> Any:
        return self.requests[index][2]


def echo(header: RequestHeader, body: bytes, reply: Any) -> None:
    reply.send(response(header.correlation_id, body))


class Client:
    """A raw socket that sends and receives exactly what it is told to."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.socket, data)

    async def some(self, most: int) -> bytes:
        """The next bytes; none at the end."""
        return await self.loop.sock_recv(self.socket, most)

    async def receive(self, count: int) -> bytes:
        """Exactly so many bytes, fewer only if the other side closes."""
        data = bytearray()
        while len(data) < count:
            part = await self.some(min(count - len(data), 1 << 20))
            if not part:
                break
            data += part
        return bytes(data)

    async def receive_response(self) -> tuple[int, bytes]:
        (size,) = struct.unpack(">i", await self.receive(4))
        data = await self.receive(size)
        assert len(data) == size
        return struct.unpack_from(">i", data)[0], data[4:]

    async def closed(self) -> bool:
        """Waits until the other side has closed, dropping what it still sends."""
        with contextlib.suppress(ConnectionError):
            while await self.some(1 << 20):
                pass
        return True

    def close(self) -> None:
        self.socket.close()


class TlsClient(Client):
    """As `Client`, with TLS between. Keeps the bytes that came over the wire."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        super().__init__(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.wire = bytearray()
        self._sending = asyncio.Lock()

    async def _flush(self) -> None:
        async with self._sending:
            if self._outgoing.pending:
                await self.loop.sock_sendall(self.socket, self._outgoing.read())

    async def _arrive(self) -> bool:
        part = await self.loop.sock_recv(self.socket, 1 << 16)
        self.wire += part
        self._incoming.write(part)
        return bool(part)

    async def handshake(self) -> None:
        """Raises ssl.SSLError or ConnectionError if it fails."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._arrive():
                    raise ConnectionResetError("the broker closed the connection") from None
            except ssl.SSLError:
                await self._flush()  # the broker hears why
                raise
            else:
                await self._flush()
                return

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), 1 << 17):
            self.tls.write(data[start : start + (1 << 17)])
            await self._flush()

    async def some(self, most: int) -> bytes:
        while True:
            try:
                return self.tls.read(most)
            except ssl.SSLWantReadError:
                if not await self._arrive():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""


def client_context(files: TlsFiles, certificate: Path | None = None) -> ssl.SSLContext:
    """The context of a client that trusts the authority of the files; `certificate`: and proves who it is."""
    context = ssl.create_default_context(cafile=str(files.truststore))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


PLAIN_AND_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
"""The mark of a module or test that runs on connections in plain text and with TLS."""


@pytest.fixture
def tls() -> bool:
    """True if the connections of `serving` have TLS."""
    return False


class Harness:
    def __init__(
        self,
        limits: ConnectionLimits,
        buffer_count: int,
        max_waiting_bytes: int,
        files: TlsFiles | None,
        settings: dict[str, str],
    ) -> None:
        """`files`: those of a listener with TLS; None: it speaks plain text. `settings`: further ones of TLS."""
        self.files = files
        self.loop = asyncio.get_running_loop()
        self.node = ScriptedNode()
        self.failures: list[Exception] = []
        self.cold_readers = Workers(self.loop, "cold-read", 1)
        self.sending = SendingResources(self.loop, self.cold_readers, buffer_count, max_waiting_bytes)
        self.outbox = Outbox(self.loop)
        self.loop_watch = LoopWatch(self.loop)
        self.connections = Connections(
            self.loop,
            self.node,
            limits,
            self.outbox,
            self.sending,
            self.failures.append,
            lambda: at(1234),
            loop_watch=self.loop_watch,
            is_broker=lambda header: header.sender == BROKER,
        )
        self.clients: list[Client] = []
        self.tls: TlsListeners | None = None
        if files is not None:
            texts = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(files.keystore)}
            self.tls = TlsListeners(BrokerSettings.from_texts({**texts, **settings}).tls_listeners)
            self.tls_resources = self.tls.begin(self.loop)

    def make_connection(self, entrance: Entrance = ONLY_ENTRANCE) -> asyncio.BaseProtocol:
        if self.tls is None:
            return Connection(self.connections, entrance)
        return TlsLayer(Connection(self.connections, entrance, TlsSender), self.tls["SSL"], self.tls_resources)

    async def start(self) -> None:
        brokers = Entrance("BROKERS", Callers.BROKERS)
        self.server = await self.loop.create_server(self.make_connection, "127.0.0.1", 0)
        self.inner = await self.loop.create_server(lambda: self.make_connection(brokers), "127.0.0.1", 0)
        self.address = self.server.sockets[0].getsockname()

    async def connect(
        self,
        receive_buffer: int | None = None,
        *,
        source: str = "127.0.0.1",
        to_brokers: bool = False,
        context: ssl.SSLContext | None = None,
    ) -> Client:
        """`source`: the address of the client. `to_brokers`: at the listener of brokers. `context`: that of a client
        with TLS. Raises ssl.SSLError or ConnectionError if the handshake fails."""
        connection = await self.connected(receive_buffer, source, to_brokers=to_brokers)
        if self.files is None:
            client = Client(connection)
            self.clients.append(client)
            return client
        with_tls = TlsClient(connection, context or client_context(self.files))
        self.clients.append(with_tls)
        await with_tls.handshake()
        return with_tls

    async def connected(
        self, receive_buffer: int | None = None, source: str = "127.0.0.1", *, to_brokers: bool = False
    ) -> socket.socket:
        connection = socket.socket()
        connection.bind((source, 0))
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await self.loop.sock_connect(connection, self.inner.sockets[0].getsockname() if to_brokers else self.address)
        return connection

    async def stranger(self) -> Client:
        """A client that begins no handshake by itself."""
        client = Client(await self.connected())
        self.clients.append(client)
        return client

    def idle_after(self, max_idle_s: float) -> None:
        """From now on connections are closed that are idle for so long: a slow machine does not close them earlier."""
        self.connections.limits = self.connections.limits._replace(max_idle_s=max_idle_s)
        self.connections._idle_check_s = max_idle_s / 4
        self.connections._next_idle_check_s = 0.0
        self.connections._sweep_timer.cancel()
        self.connections._sweep()

    async def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.server.close()
        self.inner.close()
        self.connections.close()
        await eventually_here(lambda: len(self.connections), to_be=0)
        self.cold_readers.close()
        if self.tls is not None:
            self.tls.close()
        self.loop_watch.close()


@pytest.fixture
def serving(tmp_path: Path, tls: bool) -> Callable[..., contextlib.AbstractAsyncContextManager[Harness]]:
    @contextlib.asynccontextmanager
    async def serve(
        *,
        buffer_count: int = 4,
        max_waiting_bytes: int = 1 << 30,
        settings: dict[str, str] | None = None,
        **limits: Any,
    ) -> AsyncIterator[Harness]:
        files = tls_files(tmp_path) if tls else None
        harness = Harness(ConnectionLimits(**limits), buffer_count, max_waiting_bytes, files, settings or {})
        await harness.start()
        try:
            yield harness
        finally:
            await harness.stop()

    return serve


@pytest.fixture(name="request_frame")
def _request_frame() -> Callable[..., bytes]:
    return request


@pytest.fixture(name="response_frame")
def _response_frame() -> Callable[..., bytes]:
    return response
