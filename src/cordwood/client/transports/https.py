"""One small question to a server over HTTPS, bounded in size and time. Blocks: it belongs in a thread of its own.

Redirects are not followed: the server that the settings name answers, or nobody. Proxies are not used.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

MOST_SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 65_536


class HttpsFailure(Exception):
    """No answer; the message names the address and the reason, and no secret."""


class Answer(NamedTuple):
    status: int
    content: bytes


def ask(
    url: str,
    context: ssl.SSLContext,
    *,
    form: str | None = None,
    headers: Mapping[str, str] | None = None,
    most_s: float = MOST_SECONDS,
    most_bytes: int = MOST_BYTES,
) -> Answer:
    """The answer to a GET; with `form` to a POST of these fields. Raises HttpsFailure."""
    parts = urlsplit(url)
    assert parts.scheme == "https"
    assert parts.hostname
    deadline_s = time.monotonic() + most_s
    connection = HTTPSConnection(parts.hostname, parts.port, timeout=most_s, context=context)
    try:
        connection.connect()
        with _Watchdog(connection.sock, deadline_s):
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            sent = {"Accept": "application/json", "User-Agent": "cordwood", "Connection": "close", **(headers or {})}
            if form is not None:
                sent["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request("GET" if form is None else "POST", target, form, sent)
            response = connection.getresponse()
            content = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > most_bytes:
                    raise HttpsFailure(f"{url}: the answer has more than {most_bytes} bytes")
            if time.monotonic() >= deadline_s:
                raise TimeoutError
            return Answer(response.status, bytes(content))
    except ssl.SSLCertVerificationError as error:
        raise HttpsFailure(f"{url} is not trusted: {error.verify_message}") from None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= deadline_s:
            raise HttpsFailure(f"{url} did not answer within {most_s:g} s") from None
        raise HttpsFailure(f"{url} did not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()


class _Watchdog:
    """Ends a connection at a deadline. The timeout of a socket begins anew with each byte: a server that sends one byte
    now and then would keep the thread for ever."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._connected = connected
        self._timer = threading.Timer(max(0.0, deadline_s - time.monotonic()), self._end)
        self._timer.daemon = True

    def _end(self) -> None:
        with suppress(OSError):
            # Past the method of ssl.SSLSocket, which would change what the reading thread works on.
            socket.socket.shutdown(self._connected, socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
