"""The sender of a connection with TLS: every byte goes through the encryption of its layer.

It has no descriptor of the socket and never calls `File.send_now`: records that took that way would stand in the stream
in plain text. Records of the page cache and cold ones go through the reusable buffers. Pieces are small, since the loop
encrypts them.
"""

from typing import TYPE_CHECKING, Final

from cordwood.broker.network.sending import Sender

if TYPE_CHECKING:
    from cordwood.broker.network.sending import HangUp
    from cordwood.log.reading.lookup import LogSlice

PIECE_BYTES: Final = 128 * 1024
"""The bytes that are encrypted at a time: about 0.1 ms of the loop's time."""


class TlsSender(Sender):
    turn_bytes = 256 * 1024

    def add(self, frame: "bytes | list[bytes | LogSlice] | HangUp") -> None:
        if isinstance(frame, bytes) and len(frame) > PIECE_BYTES:
            frame = [frame[start : start + PIECE_BYTES] for start in range(0, len(frame), PIECE_BYTES)]
        super().add(frame)

    def _send_ahead(self, data: bytes) -> None:
        self._write(data)

    def _stop_watching(self) -> None:
        """The transport alone says when there is room."""

    def _send_rest(self) -> None:
        assert self._rest is not None
        piece = self._rest[:PIECE_BYTES]
        self._transport.write(piece)
        self._progress(len(piece))
        self._rest_sent(len(piece))
