"""Asks the kernel whether the peer of a TCP connection has closed its end: whoever does not read is not told."""

import socket
import sys
from typing import Any, Final

_ESTABLISHED: Final = 1
"""The first byte of Linux's `struct tcp_info`. The other end has closed a connection in any other state."""


def has_ended(of: Any) -> bool:
    """True if the connection is at its end. `of`: a socket, or the stand-in for one that a transport gives out. Only
    Linux tells; elsewhere the end is noticed when the connection is read again."""
    if sys.platform != "linux":
        return False
    try:
        return bool(of.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED)
    except OSError:
        return False
