"""Between clients and the broker: passes everything on and keeps the requests, as a stock of real frames to mutate."""

import socket
import struct
import threading
from contextlib import suppress


class RecordingProxy:
    """Listens on a port of its own. The broker advertises that port, so that all of a client's traffic comes by."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.bootstrap = f"127.0.0.1:{port}"
        self._target = ("", 0)
        self._lock = threading.Lock()
        self._frames: dict[tuple[int, int], list[bytes]] = {}
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def start(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._thread.start()

    def close(self) -> None:
        self._listener.close()

    def frames(self, per_version: int = 4) -> list[bytes]:
        """A few requests of each API and version that was seen, in a fixed order."""
        with self._lock:
            return [frame for key in sorted(self._frames) for frame in self._frames[key][:per_version]]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        pending = bytearray()
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                if keep:
                    pending += data
                    self._keep_whole(pending)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _keep_whole(self, pending: bytearray) -> None:
        while len(pending) >= 4:
            end = 4 + struct.unpack_from(">i", pending)[0]
            if len(pending) < end:
                return
            frame = bytes(pending[4:end])
            del pending[:end]
            key, version = struct.unpack_from(">hh", frame)
            with self._lock:
                kept = self._frames.setdefault((key, version), [])
                if frame not in kept:
                    kept.append(frame)
