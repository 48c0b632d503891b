"""The other end of a connection, on a real socket, that obeys a test, even against the protocol."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.certificates import TlsFiles

from cordwood.client.connection import Connection
from cordwood.client.settings import ClientSettings
from cordwood.security.connection_settings import PLAIN_TEXT, ClientTls, Security

Script = Callable[["Peer"], None]


class Peer:
    """One accepted connection, in the hands of the script."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def request(self) -> tuple[int, bytes]:
        """The next request: its correlation id and everything after its client id. Raises ConnectionError at the
        end."""
        frame = self.frame()
        _, _, correlation_id, length = struct.unpack_from(">hhih", frame)
        return correlation_id, frame[10 + length :]

    def frame(self) -> bytes:
        """The next request without its size. Raises ConnectionError at the end."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def answer(self, correlation_id: int, content: bytes) -> None:
        self.socket.sendall(struct.pack(">ii", 4 + len(content), correlation_id) + content)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            data = self.socket.recv(size - len(received))
            if not data:
                raise ConnectionError("the client hung up")
            received += data
        return bytes(received)


class ScriptedPeer:
    """Runs the script for every connection, each in a thread of its own. An exception of a script fails the test."""

    def __init__(self, script: Script, tls: TlsFiles | None = None) -> None:
        """`tls` are the peer's certificate and its authority: without them it speaks plain text."""
        self._script = script
        self._security = PLAIN_TEXT if tls is None else Security(ClientTls(str(tls.truststore)))
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(tls.keystore)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "the script does not end"
        if kind is None:
            assert not self._failures, self._failures

    def hang_up(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # a shutdown wakes a thread that reads; a close would not

    def connect(self, **settings: int) -> Connection:
        return Connection("127.0.0.1", self.port, self.settings(**settings))

    def settings(self, **settings: int) -> ClientSettings:
        return ClientSettings(f"127.0.0.1:{self.port}", security=self._security, **settings)  # type: ignore[arg-type]

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._connections.append(connection)
            with connection:
                if isinstance(connection, ssl.SSLSocket):
                    connection.do_handshake()
                self._script(Peer(connection))
        except OSError:
            return
        except BaseException as failure:
            self._failures.append(failure)
