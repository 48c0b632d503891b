"""The sender of a connection in plain text: records go from the page cache to the socket inside the kernel.

`File.send_now` is sendfile, where that cannot block; all other records take the way of every sender.
"""

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

from cordwood.broker.network.sending import Halt, Peer, Sender, SendingResources
from cordwood.broker.network.slice_buffers import SLICE_BYTES

if TYPE_CHECKING:
    from cordwood.log.reading.lookup import LogSlice


class PlainSender(Sender):
    turn_bytes = 1024 * 1024

    def __init__(self, transport: asyncio.Transport, peer: Peer, resources: SendingResources) -> None:
        super().__init__(transport, peer, resources)
        self._socket: socket.socket | None = None
        self._watching = False

    def close(self) -> None:
        super().close()
        if self._socket is not None:
            self._stop_watching()
            self._socket.close()
            self._socket = None

    def _send_ahead(self, data: bytes) -> None:
        """The kernel holds these bytes back for the slice, so that the peer wakes up once."""
        self._descriptor()
        assert self._socket is not None
        try:
            sent = self._socket.send(data, socket.MSG_MORE)
        except BlockingIOError:
            sent = 0
        self._sent_this_turn += sent
        if sent < len(data):
            self.parts.appendleft(data[sent:])
            self.held_bytes += len(data) - sent
            self._watch()

    def _fill(self, part: "LogSlice") -> bool:
        """Sends from the page cache, or reads bytes into `_rest`. False if sending has to wait."""
        wanted = min(part.length - self._sent_of_slice, SLICE_BYTES)
        try:
            sent = part.file.send_now(self._descriptor(), part.position + self._sent_of_slice, wanted)
        except BlockingIOError:
            self._watch()
            return False
        if not sent:
            return super()._fill(part)
        self._progress(sent)
        if sent < wanted:
            self._watch()
        return True

    def _send_rest(self) -> None:
        assert self._rest is not None
        assert self._socket is not None
        try:
            sent = self._socket.send(self._rest)
        except BlockingIOError:
            self._watch()
            return
        self._progress(sent)
        if sent < len(self._rest):
            self._watch()
        self._rest_sent(sent)

    def _descriptor(self) -> int:
        # A second descriptor of the same socket: the loop refuses to watch a transport's own descriptor.
        if self._socket is None:
            of_transport: Any = self._transport.get_extra_info("socket")
            self._socket = socket.socket(of_transport.family, of_transport.type, fileno=os.dup(of_transport.fileno()))
            self._socket.setblocking(False)
        return self._socket.fileno()

    # Waiting

    def _watch(self) -> None:
        """Continues sending when the socket has room."""
        self._halt = Halt.SOCKET
        if not self._watching:
            self._watching = True
            self._resources.loop.add_writer(self._descriptor(), self._writable)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            assert self._socket is not None
            self._resources.loop.remove_writer(self._socket.fileno())

    def _yield(self) -> None:
        if self._watching:
            self._halt = Halt.SOCKET
        else:
            super()._yield()

    def _writable(self) -> None:
        if self._halt is Halt.SOCKET:
            self._go_on()
