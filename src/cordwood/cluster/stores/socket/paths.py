"""Unix sockets at any path: the kernel takes at most 107 bytes, and a data directory may have a longer name."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_PATH_BYTES = 107
_OWNER_ONLY = 0o177


def listening_at(path: str) -> socket.socket:
    """A socket bound to the path, for this user alone. Replaces a socket that a dead server left; the caller has made
    sure that no other server lives there. Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _short(path) as name:
            if os.path.exists(name):
                os.unlink(name)
            mask = os.umask(_OWNER_ONLY)
            try:
                bound.bind(name)
            finally:
                os.umask(mask)
    except BaseException:
        bound.close()
        raise
    return bound


def connected_to(path: str) -> socket.socket:
    """A socket that is connected to the server at the path. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        with _short(path) as name:
            # A unix socket is connected at once, or the server has too many clients that wait: BlockingIOError.
            connection.connect(name)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _short(path: str) -> Iterator[str]:
    """A name of the path that the kernel takes."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    directory, name = os.path.split(path)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
