"""One TCP connection to one broker: requests go out, answers come back in the same order.

Calls block, in one thread. Several requests may be on their way: `send` returns a token, `receive` waits for the
token's answer and keeps answers to other tokens for later. A connection that broke, or that did not answer in time, is
closed for good; every call then raises BrokerUnreachable. An answer is received into memory of its own, in one copy.
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from cordwood.client.errors import BrokerUnreachable
from cordwood.client.settings import Address, ClientSettings
from cordwood.wire.apis import APIS
from cordwood.wire.asking import BadResponse, correlation_id_of, request_start
from cordwood.wire.receive_buffers import ReceiveBuffers

Bytes = bytes | bytearray | memoryview

_SIZE: Final = struct.Struct(">i")
_TIMEVAL: Final = struct.Struct("@ll")
_MAX_PARTS: Final = 512
"""The system takes up to 1024 parts in one call."""
_MAX_CORRELATION_ID: Final = 2**31 - 1
_IDLE_S: Final = 0.5
"""A connection that was used within this time is not checked: if it broke, sending fails."""


class Connection:
    """A connection, made at once. `name` is the broker's name in messages."""

    def __init__(self, host: str, port: int, settings: ClientSettings, name: str = "") -> None:
        self.name = name or f"broker at {Address(host, port)}"
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._last_token = 0
        self._waiting: deque[tuple[int, int]] = deque()
        """Token and API key of the unanswered requests, in order."""
        self._arrived: dict[int, memoryview] = {}
        self._forgotten: set[int] = set()
        self._buffers = ReceiveBuffers()
        self._prefix = memoryview(bytearray(_SIZE.size))
        self._incoming = self._prefix
        """The memory being filled: a size prefix, or the answer that follows it."""
        self._filled = 0
        self._receive_timeout_ms = -1
        self._used_s = time.monotonic()
        self._failure: BrokerUnreachable | None = None
        self._socket = self._connect(host, port)

    def _connect(self, host: str, port: int) -> socket.socket:
        timeout_ms = self._settings.connect_timeout_ms
        try:
            connected = socket.create_connection((host, port), timeout=timeout_ms / 1000)
        except TimeoutError:
            raise BrokerUnreachable(
                f"{self.name} does not take connections: none within {timeout_ms} ms (connect_timeout_ms)"
            ) from None
        except (OSError, UnicodeError) as reason:  # some names are refused before any resolver is asked
            raise BrokerUnreachable(f"{self.name} cannot be reached: {reason}") from reason
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
            (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
        ):
            if size > 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)
        return connected

    @property
    def is_open(self) -> bool:
        """True if the connection can be used. Notices that the broker has closed an idle connection."""
        if self._failure is None and not self._waiting and time.monotonic() - self._used_s > _IDLE_S:
            try:
                if not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    self._break("the broker closed the connection")
            except BlockingIOError:
                pass
            except OSError as reason:
                self._break(str(reason))
        return self._failure is None

    def close(self) -> None:
        if self._failure is None:
            self._break("the connection was closed")

    def request(self, api_key: int, version: int, body: Bytes | Sequence[Bytes], *, wait_ms: int = 0) -> memoryview:
        """The answer, from its correlation id on. `wait_ms` is how long the broker may wait before it answers."""
        return self.receive(self.send(api_key, version, body), wait_ms=wait_ms)

    def send(self, api_key: int, version: int, body: Bytes | Sequence[Bytes], *, answered: bool = True) -> int:
        """Hands the request to the system, and returns the token for its answer. The body is not used afterwards."""
        self._check()
        token = self._last_token = self._last_token % _MAX_CORRELATION_ID + 1
        parts = [body] if isinstance(body, bytes | bytearray | memoryview) else body
        start = request_start(api_key, version, token, self._client_id, sum(map(len, parts)))
        try:
            self._send_all([start, *parts])
        except OSError as reason:
            raise self._break(f"{APIS[api_key].name} could not be sent: {reason}") from reason
        except BaseException:
            # Half a request was sent: the broker would take the next request for the rest of it.
            self._break(f"{APIS[api_key].name} was not sent to its end")
            raise
        if answered:
            self._waiting.append((token, api_key))
        return token

    def receive(self, token: int, *, wait_ms: int = 0) -> memoryview:
        """The answer to the request of this token, from its correlation id on."""
        found = self._arrived.pop(token, None)
        if found is not None:
            return found
        self._check()
        try:
            self._wait_for(token, self._settings.request_timeout_ms + wait_ms)
        except BrokerUnreachable:
            raise
        except BaseException:
            self._interrupted()
            raise
        return self._arrived.pop(token)

    def _wait_for(self, token: int, timeout_ms: int) -> None:
        deadline_s = time.monotonic() + timeout_ms / 1000
        self._set_receive_timeout(timeout_ms)
        while token not in self._arrived:
            try:
                # One call receives the whole answer, instead of one call for each piece.
                self._receive_some(socket.MSG_WAITALL)
                if time.monotonic() < deadline_s:
                    continue
            except BlockingIOError:
                pass
            except OSError as reason:
                raise self._break(f"{self._asked(token)} was not answered: {reason}") from reason
            if token not in self._arrived:
                raise self._break(f"{self._asked(token)} was not answered within {timeout_ms} ms")

    def has_arrived(self, token: int) -> bool:
        """True if `receive` would return at once. Reads bytes that have arrived, and never waits."""
        if self._failure is None and token not in self._arrived:
            self._receive_available()
        return token in self._arrived

    def forget(self, token: int) -> None:
        """Drops the answer of this token when it arrives."""
        if self._arrived.pop(token, None) is None and self._failure is None:
            self._forgotten.add(token)

    def _check(self) -> None:
        if self._failure is not None:
            raise BrokerUnreachable(str(self._failure))

    def _break(self, reason: str) -> BrokerUnreachable:
        self._failure = BrokerUnreachable(f"{self.name}: {reason}")
        self._waiting.clear()
        self._forgotten.clear()
        self._socket.close()
        return self._failure

    def _asked(self, token: int) -> str:
        return next((APIS[api_key].name for waiting, api_key in self._waiting if waiting == token), "a request")

    # Sending.

    def _send_all(self, parts: Sequence[Bytes]) -> None:
        deadline_s = time.monotonic() + self._settings.request_timeout_ms / 1000
        left = [memoryview(part) for part in parts if len(part)]
        first = 0
        while first < len(left):
            try:
                sent = self._socket.sendmsg(left[first : first + _MAX_PARTS], (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._wait_until_writable(deadline_s)
                continue
            while first < len(left) and sent >= len(left[first]):
                sent -= len(left[first])
                first += 1
            if sent:
                left[first] = left[first][sent:]

    def _wait_until_writable(self, deadline_s: float) -> None:
        # Answers are received meanwhile: a broker that cannot send answers may stop reading, and both ends would wait.
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | select.POLLIN)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the broker did not take the request within {self._settings.request_timeout_ms} ms")
            for _, events in poll.poll(left_s * 1000):
                if events & select.POLLIN:
                    self._receive_available()
                    self._check()
                if events & ~select.POLLIN:
                    return

    # Receiving.

    def _set_receive_timeout(self, timeout_ms: int) -> None:
        if timeout_ms != self._receive_timeout_ms:
            seconds, milliseconds = divmod(timeout_ms, 1000)
            value = _TIMEVAL.pack(seconds, milliseconds * 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._receive_timeout_ms = timeout_ms

    def _receive_available(self) -> None:
        try:
            while True:
                self._receive_some(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except BrokerUnreachable:
            return
        except OSError as reason:
            self._break(str(reason))
        except BaseException:
            self._interrupted()
            raise

    def _interrupted(self) -> None:
        # Bytes may have been received and not counted, so the position in the stream is lost.
        self._break("an answer was not received to its end")

    def _receive_some(self, flags: int) -> None:
        """Receives bytes in one call to the system, and handles a complete size or answer."""
        incoming, filled = self._incoming, self._filled
        count = self._socket.recv_into(incoming[filled:], len(incoming) - filled, flags)
        if count == 0:
            raise self._break("the broker closed the connection")
        filled += count
        if filled < len(incoming):
            self._filled = filled
            return
        self._filled = 0
        if incoming is self._prefix:
            (size,) = _SIZE.unpack(incoming)
            if not _SIZE.size <= size <= self._settings.max_response_bytes:
                limit = self._settings.max_response_bytes
                raise self._break(
                    f"an answer of {size} bytes was announced, and {limit} are allowed (max_response_bytes)"
                )
            self._incoming = self._buffers.take(size)
        else:
            self._incoming = self._prefix
            self._arrive(incoming)

    def _arrive(self, answer: memoryview) -> None:
        try:
            token = correlation_id_of(answer)
        except BadResponse as reason:
            raise self._break(str(reason)) from reason
        if not self._waiting or self._waiting[0][0] != token:
            raise self._break(f"an answer came to request {token}, which was not the next to be answered")
        self._waiting.popleft()
        self._used_s = time.monotonic()
        if token in self._forgotten:
            self._forgotten.remove(token)
        else:
            self._arrived[token] = answer
