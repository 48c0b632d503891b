"""The address that a broker listens on, and the one that it tells its clients."""

import errno
import socket
from contextlib import suppress

from cordwood.cluster.rows import Endpoint
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.listeners import Listener

BACKLOG = 1024
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


def bind(listener: Listener) -> socket.socket:
    """A socket that has its address, port 0 resolved, and does not listen yet. OSError names the address."""
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
        # Connections inherit it: a peer that vanished without a word is noticed even while it is owed an answer.
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
    """Refuses connections from now on. Closing the socket would not do where a forked process has it, too."""
    with suppress(OSError):  # it did not listen yet, or is closed
        bound.shutdown(socket.SHUT_RDWR)


def advertised(settings: BrokerSettings, bound: socket.socket) -> Endpoint:
    """Where clients are told to connect: what the settings say, else the address that is listened on."""
    listener = settings.advertised_listener
    if listener is not None:
        port = listener.port or bound.getsockname()[1]
        return Endpoint(listener.name, listener.host, port)
    host = settings.listener.host
    if host in _EVERY_INTERFACE:
        # A wildcard is no address to connect to; this machine's name is the best guess.
        host = socket.gethostname()
    return Endpoint(settings.listener.name, host, bound.getsockname()[1])
