"""GET /metrics, /live and /ready over HTTP/1.1, with TLS or without: one answer per connection, a few at a time.

For a scrape the loop only copies counters; a thread makes the text, one scrape at a time. A probe is never refused: a
broker whose `/live` fails is restarted. A connection counts from its accept on. When there are too many, the oldest
makes room: it does not end its handshake, sends its request slowly, or reads its answer slowly.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from cordwood.broker.network.listening import bind, stop_listening
from cordwood.broker.network.seldom import SaidSeldom
from cordwood.metrics.exposition import CONTENT_TYPE
from cordwood.model.settings.listeners import ListenerAddress
from cordwood.security.sessions import Principal

logger = logging.getLogger("cordwood.broker")

MAX_CONNECTIONS: Final = 64
MAX_SCRAPES: Final = 16
"""Scrapes that wait for their text at the same time. Probes need none."""
MAX_HEAD_BYTES: Final = 8192
TIMEOUT_S: Final = 10.0

Prepare = Callable[[], Callable[[], bytes]]
"""Copies the counters, in the loop. The returned function makes the text, in a thread."""


Readiness = Callable[[], str]
"""The reason why the broker takes no clients just now; an empty text while it takes them."""

Secured = Callable[["Visit"], asyncio.BaseProtocol]
"""Puts TLS below a visit."""


class Visit(asyncio.BufferedProtocol):
    """One connection: a request comes in, its answer goes out."""

    def __init__(self, endpoint: "MetricsEndpoint") -> None:
        self._endpoint = endpoint
        self._buffer = memoryview(bytearray(MAX_HEAD_BYTES))
        self._filled = 0
        self._asked = False
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle | None = None
        self.client_host = ""

    # Calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self._limit = asyncio.get_running_loop().call_later(TIMEOUT_S, self.abort)
        self._endpoint.came(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        # Bytes behind the request are read and dropped, until the connection is closed.
        return self._buffer if self._asked else self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._asked:
            return
        self._filled += count
        head, end, _ = bytes(self._buffer[: self._filled]).partition(b"\r\n\r\n")
        if end or self._filled == len(self._buffer):
            self._asked = True
            self._endpoint.answer(self, head if end else None)

    def eof_received(self) -> bool:
        # A peer that has asked may close its side first.
        return self._asked

    def pause_writing(self) -> None:
        """The answer is one piece, which waits in the transport."""

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, reason: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._endpoint.left(self)

    # Calls of the layer with TLS

    def shook_hands(self, principal: Principal | None) -> None:
        """Everybody who reaches the endpoint may read it."""

    def close(self, reason: str, level: int = logging.INFO) -> None:
        self._endpoint.say_closing(self, reason, level)
        self.abort()

    # Calls of the endpoint

    def send_last(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)
            # Closes behind the answer. `abort` ends the wait for a peer that does not read.
            self._transport.close()

    def abort(self) -> None:
        self._endpoint.left(self)
        self._transport.abort()


class MetricsEndpoint:
    def __init__(self, prepare: Prepare, not_ready: Readiness, remark: Readiness) -> None:
        self._prepare = prepare
        self._not_ready = not_ready
        self._remark = remark
        self._scrapes = 0
        self._open: dict[Visit, None] = {}
        """Connections, the oldest first."""
        self._answering: set[asyncio.Task[None]] = set()
        self._one_text = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._closings_said = SaidSeldom()

    @classmethod
    async def start(
        cls,
        listener: ListenerAddress,
        prepare: Prepare,
        not_ready: Readiness,
        remark: Readiness = lambda: "",
        secured: Secured | None = None,
    ) -> "MetricsEndpoint":
        """Starts to listen. Raises OSError, with the setting and the address in its text, if that fails."""
        endpoint = cls(prepare, not_ready, remark)
        try:
            endpoint._socket = bind(listener)
        except OSError as error:
            raise OSError(error.errno, f"metrics.listener: {error.strerror}") from error
        endpoint._server = await asyncio.get_running_loop().create_server(
            lambda: Visit(endpoint) if secured is None else secured(Visit(endpoint)), sock=endpoint._socket
        )
        return endpoint

    @property
    def address(self) -> tuple[str, int]:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        if self._server is not None and self._socket is not None:
            stop_listening(self._socket)
            self._server.close()

    def came(self, visit: Visit) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            next(iter(self._open)).abort()
        self._open[visit] = None

    def left(self, visit: Visit) -> None:
        self._open.pop(visit, None)

    def say_closing(self, visit: Visit, reason: str, level: int) -> None:
        if self._closings_said.count(reason, asyncio.get_running_loop().time()):
            logger.log(level, "closing a connection from %s to the metrics: %.500s", visit.client_host, reason)

    def answer(self, visit: Visit, head: bytes | None) -> None:
        """Answers a request. `head`: None if it has no end within MAX_HEAD_BYTES."""

        async def answered() -> None:
            visit.send_last(await self._answer(head))

        task = asyncio.get_running_loop().create_task(answered())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, head: bytes | None) -> bytes:
        if head is None:
            return _response("431 Request Header Fields Too Large", b"too long\n")
        line = head.split(b"\r\n", 1)[0].split(b" ")
        if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"not HTTP/1.1\n")
        method, target = line[0], line[1].split(b"?", 1)[0]
        if target not in (b"/metrics", b"/live", b"/ready"):
            return _response("404 Not Found", b"there are /metrics, /live and /ready\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET it\n", "Allow: GET, HEAD\r\n")
        with_body = method == b"GET"
        if target == b"/live":
            return _response("200 OK", b"the broker runs\n", with_body=with_body)
        if target == b"/ready":
            reason = self._not_ready()
            status = "503 Service Unavailable" if reason else "200 OK"
            words = reason or f"the broker takes clients{self._remark()}"
            return _response(status, f"{words}\n".encode(), with_body=with_body)
        if self._scrapes >= MAX_SCRAPES:
            return _response("503 Service Unavailable", b"too many scrapes at a time\n")
        self._scrapes += 1
        try:
            async with self._one_text:
                text = await asyncio.to_thread(self._prepare())
        finally:
            self._scrapes -= 1
        return _response("200 OK", text, content_type=CONTENT_TYPE, with_body=with_body)


def _response(
    status: str, body: bytes, more: str = "", *, content_type: str = "text/plain; charset=utf-8", with_body: bool = True
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n{more}\r\n"
    )
    return head.encode() + (body if with_body else b"")
