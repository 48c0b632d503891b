"""GET /metrics, /live and /ready over HTTP/1.1, with TLS or without: one answer per connection, a few at a time.

For a scrape the loop only copies counters; a thread makes the text, one scrape at a time. A probe is never refused: a
broker whose `/live` fails is restarted. When there are too many connections, the oldest without a whole request makes
room.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from cordwood.broker.network.listening import bind, stop_listening
from cordwood.metrics.exposition import CONTENT_TYPE
from cordwood.model.settings.listeners import ListenerAddress

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


class MetricsEndpoint:
    def __init__(self, prepare: Prepare, not_ready: Readiness, remark: Readiness) -> None:
        self._prepare = prepare
        self._not_ready = not_ready
        self._remark = remark
        self._scrapes = 0
        self._open: dict[asyncio.WriteTransport, None] = {}
        """Connections, the oldest first."""
        self._one_text = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None

    @classmethod
    async def start(
        cls,
        listener: ListenerAddress,
        prepare: Prepare,
        not_ready: Readiness,
        remark: Readiness = lambda: "",
        context: ssl.SSLContext | None = None,
    ) -> "MetricsEndpoint":
        """Starts to listen. Raises OSError, with the setting and the address in its text, if that fails."""
        endpoint = cls(prepare, not_ready, remark)
        try:
            endpoint._socket = bind(listener)
        except OSError as error:
            raise OSError(error.errno, f"metrics.listener: {error.strerror}") from error
        endpoint._server = await asyncio.start_server(
            endpoint._serve,
            sock=endpoint._socket,
            limit=MAX_HEAD_BYTES,
            ssl=context,
            ssl_handshake_timeout=None if context is None else TIMEOUT_S,
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        if len(self._open) >= MAX_CONNECTIONS:
            # The oldest one sends its request slowly, or reads its answer slowly.
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[transport] = None
        with_tls = transport.get_extra_info("ssl_object") is not None
        if not with_tls:
            # With this limit `drain` returns once the kernel has all bytes, so `abort` drops none.
            transport.set_write_buffer_limits(0)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(TIMEOUT_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
                    if with_tls:
                        # A transport with TLS does not tell when the kernel has all bytes; only its end does.
                        writer.close()
                        await writer.wait_closed()
        finally:
            self._open.pop(transport, None)
            # `close` would wait for ever for a peer that does not read.
            transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
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
