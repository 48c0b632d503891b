"""The addresses that a broker listens on, and those that it advertises to clients."""

import errno
import socket
from contextlib import suppress

from cordwood.cluster.metadata.rows import Endpoint
from cordwood.model.settings.listeners import EVERY_INTERFACE, Listener, ListenerAddress

BACKLOG = 1024


def bind(listener: ListenerAddress) -> socket.socket:
    """A socket bound to its address, port 0 resolved, that does not listen yet. OSError names the address."""
    try:
        if listener.host == "" and socket.has_dualstack_ipv6():
            return _bound(socket.AF_INET6, ("::", listener.port), dual_stack=True)
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(listener.host or "0.0.0.0", listener.port, type=socket.SOCK_STREAM, flags=flags)
        family, _, _, _, address = found[0]
        return _bound(family, address, dual_stack=False)
    except UnicodeError:
        raise OSError(errno.EINVAL, f"cannot listen on {listener}: that cannot be a host name") from None
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {listener}: {error.strerror or error}") from error


def _bound(family: int, address: object, *, dual_stack: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit SO_KEEPALIVE: a peer that vanished is noticed even while an answer is owed to it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        bound.bind(address)  # type: ignore[arg-type]
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def stop_listening(bound: socket.socket) -> None:
    """Refuses connections from now on. Closing the socket would not suffice if a forked process holds it, too."""
    with suppress(OSError):  # the socket did not listen yet, or is closed
        bound.shutdown(socket.SHUT_RDWR)


def advertised(listener: Listener, bound: socket.socket) -> Endpoint:
    """The endpoint for clients of a listener: its advertised address, else its own."""
    told = listener.advertised
    if told is not None:
        return Endpoint(listener.name, told.host, told.port or bound.getsockname()[1])
    host = listener.address.host
    if host in EVERY_INTERFACE:
        # A wildcard is no address to connect to; this machine's name is the best guess.
        host = socket.gethostname()
    return Endpoint(listener.name, host, bound.getsockname()[1])
