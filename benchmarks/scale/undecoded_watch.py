"""A watch of all keys of a cluster at a member of etcd whose responses are dropped undecoded.

A hundred brokers of one process cannot each afford a gRPC stream in Python: 80 us of CPU for each response. This speaks
as much of HTTP/2 as a watch needs, and takes a tenth of that. Flow control: the windows are opened once, for 2 GiB.
"""

import asyncio
from typing import cast

from cordwood.cluster.stores.etcd.keys import KeyRange
from cordwood.cluster.stores.etcd.members import WATCH
from cordwood.cluster.stores.etcd.messages import MESSAGES
from cordwood.cluster.stores.interface import StoreUnavailable

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_HEADERS = 1, 4
_FRAME_HEAD_BYTES = 9
_LARGEST_WINDOW = 2**31 - 1
_FIRST_WINDOW = 65_535
_INITIAL_WINDOW_SIZE = 4
_STREAM = 1


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _header(name: str, value: str) -> bytes:
    """A header that is not indexed and not compressed."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


class UndecodedWatch(asyncio.Protocol):
    """One connection with one watch. `ended` is done when the connection is lost or the member ends the watch."""

    def __init__(self, endpoint: str, cluster_prefix: str, from_revision: int) -> None:
        self.responses = 0
        """Frames of data; a response of more than 16 KiB has several."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._endpoint = endpoint
        keys = KeyRange(cluster_prefix, "")
        creation = MESSAGES["WatchCreateRequest"](key=keys.key, range_end=keys.end, start_revision=from_revision)
        self._request = WATCH.request(create_request=creation).SerializeToString()
        self._buffer = bytearray()
        self._skip = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def run(cls, endpoint: str, cluster_prefix: str, from_revision: int) -> None:
        """Watches until the connection is lost. Raises StoreUnavailable."""
        host, _, port = endpoint.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            transport, watch = await loop.create_connection(
                lambda: cls(endpoint, cluster_prefix, from_revision), host, int(port)
            )
        except OSError as error:
            raise StoreUnavailable(f"etcd's member {endpoint} cannot be reached: {error}") from error
        try:
            await watch.ended
        finally:
            transport.close()
        raise StoreUnavailable(f"the watch at etcd's member {endpoint} broke")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        headers = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", WATCH.path),
            (":authority", self._endpoint),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("hasleader", "true"),
        )
        block = b"".join(_header(*each) for each in headers)
        message = b"\0" + len(self._request).to_bytes(4, "big") + self._request
        window = _INITIAL_WINDOW_SIZE.to_bytes(2, "big") + _LARGEST_WINDOW.to_bytes(4, "big")
        self._transport.write(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, window)
            + _frame(_WINDOW_UPDATE, 0, 0, (_LARGEST_WINDOW - _FIRST_WINDOW).to_bytes(4, "big"))
            + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
            + _frame(_DATA, 0, _STREAM, message)
        )

    def data_received(self, data: bytes) -> None:
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        self._buffer += memoryview(data)[self._skip :]
        self._skip = 0
        buffer = self._buffer
        while len(buffer) >= _FRAME_HEAD_BYTES:
            end = _FRAME_HEAD_BYTES + int.from_bytes(buffer[:3], "big")
            kind, flags = buffer[3], buffer[4]
            if kind == _DATA:
                self.responses += 1
                self._skip = max(0, end - len(buffer))
            elif len(buffer) < end:
                return
            else:
                self._control(kind, flags, bytes(buffer[_FRAME_HEAD_BYTES:end]))
            del buffer[:end]

    def _control(self, kind: int, flags: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._transport.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in (_RESET, _GO_AWAY):
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
