"""Opens the way to a broker: a TCP connection and, if the settings ask for it, TLS over it."""

import socket
import time
from typing import TYPE_CHECKING

from cordwood.client.errors import BrokerUnreachable, SecurityFailure
from cordwood.client.settings import ClientSettings
from cordwood.client.transports.plain import PlainTransport
from cordwood.client.transports.transport import Transport

if TYPE_CHECKING:
    from cordwood.security.connection_settings import ClientTls


def open_transport(host: str, port: int, settings: ClientSettings, name: str) -> Transport:
    """Takes at most `connect_timeout_ms`. `name` is the broker's in messages. Raises BrokerUnreachable, and
    SecurityFailure for what another attempt would not change."""
    deadline_s = time.monotonic() + settings.connect_timeout_ms / 1000
    connected = _connect(host, port, settings, name)
    if settings.security.tls is None:
        return PlainTransport(connected)
    try:
        return _over_tls(connected, settings.security.tls, host, deadline_s, name)
    except BaseException:
        connected.close()
        raise


def _connect(host: str, port: int, settings: ClientSettings, name: str) -> socket.socket:
    timeout_ms = settings.connect_timeout_ms
    try:
        connected = socket.create_connection((host, port), timeout=timeout_ms / 1000)
    except TimeoutError:
        raise BrokerUnreachable(
            f"{name} does not take connections: none within {timeout_ms} ms (connect_timeout_ms)"
        ) from None
    except (OSError, UnicodeError) as reason:  # some names are refused before any resolver is asked
        raise BrokerUnreachable(f"{name} cannot be reached: {reason}") from reason
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, size in (
        (socket.SO_RCVBUF, settings.receive_buffer_bytes),
        (socket.SO_SNDBUF, settings.send_buffer_bytes),
    ):
        if size > 0:
            connected.setsockopt(socket.SOL_SOCKET, option, size)
    return connected


def _over_tls(connected: socket.socket, tls: "ClientTls", host: str, deadline_s: float, name: str) -> Transport:
    # A client in plain text starts without OpenSSL.
    import ssl

    from cordwood.client.transports.contexts import TlsRefused, context_of, handshake_failure
    from cordwood.client.transports.tls import NoTls, TlsTransport

    try:
        return TlsTransport(connected, context_of(tls, name), host, deadline_s)
    except TlsRefused as refused:
        raise SecurityFailure(str(refused)) from refused
    except (ssl.SSLError, NoTls) as error:
        raise SecurityFailure(str(handshake_failure(error, name, host, tls))) from error
    except TimeoutError:
        raise BrokerUnreachable(
            f"{name} took the connection, and did not end the TLS handshake in time (connect_timeout_ms)"
        ) from None
    except OSError as error:
        raise BrokerUnreachable(
            f"{name} broke off the TLS handshake ({error.strerror or error}): a listener in plain text does so, "
            "security.protocol without SSL is for it"
        ) from error
