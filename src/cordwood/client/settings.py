"""The settings of a client: plain values, which travel pickled to Spark's executors."""

from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.security.connection_settings import PLAIN_TEXT, PLAINTEXT, Security

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ClientSettings:
    """Settings with times in milliseconds and sizes in bytes. An impossible value raises a ValueError with its name."""

    bootstrap_servers: str
    """`host:port` of some brokers, separated by commas. These brokers know the addresses of the others."""
    client_id: str = "cordwood"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long one answer may take, without the wait of a fetch for records."""
    retry_timeout_ms: int = 60_000
    """How long a call goes on trying while brokers are away, leaders move and coordinators load."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    fetch_max_bytes: int = 8 << 20
    """The most bytes of one partition in an answer. A larger batch still comes whole."""
    fetch_max_wait_ms: int = 500
    receive_buffer_bytes: int = -1
    """The receive buffer of the socket. -1: the system's choice, which on Linux grows with the traffic."""
    send_buffer_bytes: int = -1
    max_response_bytes: int = 512 << 20
    """A larger answer breaks the connection."""
    max_request_bytes: int = 16 << 20
    """The most bytes in one Produce request. A larger batch is sent alone."""
    max_in_flight_bytes: int = 64 << 20
    """The most bytes of unacknowledged batches, which the client keeps to send again."""
    security: Security = PLAIN_TEXT
    addresses: tuple[Address, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", parse_bootstrap(self.bootstrap_servers, self.security.protocol))
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "fetch_max_bytes",
            "max_response_bytes",
            "max_request_bytes",
            "max_in_flight_bytes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("retry_timeout_ms", "fetch_max_wait_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")
        if len(self.client_id.encode()) > 1000:
            raise ValueError("client_id is longer than 1000 bytes")


def parse_bootstrap(servers: str, protocol: str = PLAINTEXT) -> tuple[Address, ...]:
    """The addresses in a list like `a:9092,b,[::1]:9093`; a ValueError names the bad part."""
    addresses = tuple(_parse_address(part.strip(), protocol) for part in servers.split(",") if part.strip())
    if not addresses:
        raise ValueError(f"bootstrap servers {servers!r}: expected host:port, several separated by commas")
    return addresses


def _parse_address(text: str, protocol: str) -> Address:
    # Users copy a listener's notation (PLAINTEXT://host:port) from a broker's settings.
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme.upper() != protocol:
        raise ValueError(f"bootstrap server {text!r}: security.protocol is {protocol}, not {scheme}")
    host, port = rest, str(DEFAULT_PORT)
    if rest.startswith("["):
        host, closed, tail = rest[1:].partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise ValueError(f"bootstrap server {text!r}: expected [address]:port")
        port = tail[1:] or port
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    elif rest.count(":") > 1:
        raise ValueError(f"bootstrap server {text!r}: an IPv6 address is written [address]:port")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"bootstrap server {text!r}: expected host:port with a port from 1 to 65535")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"bootstrap server {text!r}: {host!r} cannot be a host name") from None
    return Address(host, int(port))
