"""One TCP connection to one broker: requests go out, answers come back in the same order.

Calls block, in one thread. Several requests may be on their way: `send` returns a token, `receive` waits for the
token's answer and keeps answers to other tokens for later. A connection that broke, or that did not answer in time, is
closed for good; every call then raises BrokerUnreachable. An answer is received into memory of its own, in one copy.
"""

import select
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from cordwood.client.errors import BrokerUnreachable, SecurityFailure
from cordwood.client.opening import open_transport
from cordwood.client.settings import Address, ClientSettings
from cordwood.client.transports.transport import MAX_PARTS
from cordwood.wire.apis import APIS
from cordwood.wire.asking import BadResponse, correlation_id_of, request_start
from cordwood.wire.receive_buffers import ReceiveBuffers

Bytes = bytes | bytearray | memoryview

_SIZE: Final = struct.Struct(">i")
_MAX_CORRELATION_ID: Final = 2**31 - 1
_TLS_ALERT: Final = b"\x15\x03"
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
        self._answers = 0
        self._incoming = self._prefix
        """The memory being filled: a size prefix, or the answer that follows it."""
        self._filled = 0
        self._used_s = time.monotonic()
        self._failure: BrokerUnreachable | None = None
        self._transport = open_transport(host, port, settings, self.name)
        self._log_in_again_s: float | None = None
        """The time to prove the user again; None: the session has no end."""
        self._log_in()

    def _log_in(self) -> None:
        """Proves the user, if the settings name one. Requests that are on their way stay."""
        sasl = self._settings.security.sasl
        if sasl is None:
            return
        from cordwood.client.log_in import log_in

        self._log_in_again_s = None
        try:
            self._log_in_again_s = log_in(self, sasl)
        except BadResponse as reason:
            raise self._break(str(reason)) from reason
        except SecurityFailure as reason:
            self._break(str(reason))
            raise

    @property
    def is_open(self) -> bool:
        """True if the connection can be used. Notices that the broker has closed an idle connection."""
        if self._failure is None and not self._waiting and time.monotonic() - self._used_s > _IDLE_S:
            try:
                if self._transport.has_ended():
                    self._break("the broker closed the connection")
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
        if self._log_in_again_s is not None and time.monotonic() >= self._log_in_again_s:
            self._log_in()
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
        while token not in self._arrived:
            try:
                # One call receives the whole answer, instead of one call for each piece.
                self._receive_some(timeout_ms)
                if time.monotonic() < deadline_s:
                    continue
            except BlockingIOError:
                pass
            except OSError as reason:
                raise self._break(
                    f"{self._asked(token)} was not answered: {reason}{self._perhaps_another()}"
                ) from reason
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
        self._transport.close()
        return self._failure

    def _asked(self, token: int) -> str:
        return next((APIS[api_key].name for waiting, api_key in self._waiting if waiting == token), "a request")

    def _perhaps_another(self) -> str:
        """What a connection that ends at its beginning may mean: a listener of another protocol says nothing more."""
        security = self._settings.security
        wants = [*["TLS"] * (security.tls is None), *["a log-in"] * (security.sasl is None)]
        if self._answers > 1 or not wants:
            return ""
        return f"; its listener may want {' and '.join(wants)} (security.protocol)"

    # Sending.

    def _send_all(self, parts: Sequence[Bytes]) -> None:
        deadline_s = time.monotonic() + self._settings.request_timeout_ms / 1000
        left = [memoryview(part) for part in parts if len(part)]
        first = 0
        while first < len(left):
            try:
                sent = self._transport.send(left[first : first + MAX_PARTS])
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
        poll.register(self._transport, select.POLLOUT | select.POLLIN)
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

    def _receive_available(self) -> None:
        try:
            while True:
                self._receive_some(0)
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

    def _receive_some(self, wait_ms: int) -> None:
        """Receives bytes in one call, and handles a complete size or answer."""
        incoming, filled = self._incoming, self._filled
        count = self._transport.receive(incoming[filled:], wait_ms)
        if count == 0:
            raise self._break(f"the broker closed the connection{self._perhaps_another()}")
        filled += count
        if filled < len(incoming):
            self._filled = filled
            return
        self._filled = 0
        if incoming is self._prefix:
            (size,) = _SIZE.unpack(incoming)
            if not self._answers and bytes(incoming[:2]) == _TLS_ALERT:
                raise self._break("the broker speaks TLS at this port: set security.protocol to SSL or SASL_SSL")
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
        self._answers += 1
        self._used_s = time.monotonic()
        if token in self._forgotten:
            self._forgotten.remove(token)
        else:
            self._arrived[token] = answer
