"""Addresses that clients connect to: how they are written, and which are refused."""

from typing import NamedTuple

from cordwood.model.settings import Value


class Listener(NamedTuple):
    """An address that clients connect to, as `listeners` and `advertised.listeners` write it."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """`PLAINTEXT://host:port`, or just `host:port`. Raises ValueError with the reason for other texts."""
    name, separator, address = text.strip().rpartition("://")
    if not separator:
        name = "PLAINTEXT"
    if name != "PLAINTEXT":
        raise ValueError(f"the listener {name} is not supported, only PLAINTEXT is")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError("it must end in a port: PLAINTEXT://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets: PLAINTEXT://[::1]:9092")
    return Listener(name, host, int(port))


def one_listener(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if len(value) != 1:
        return "must name one listener"
    try:
        parse_listener(value[0])
    except ValueError as error:
        return str(error)
    return None


def advertised_listener(value: Value) -> str | None:
    if value == ():
        return None
    if (reason := one_listener(value)) is not None:
        return reason
    assert isinstance(value, tuple)
    advertised = parse_listener(value[0])
    if advertised.host in ("", "0.0.0.0", "::"):
        return "clients cannot connect to a wildcard address: name a host that they can reach"
    return None


def optional_listener(value: Value) -> str | None:
    if value == "":
        return None
    assert isinstance(value, str)
    try:
        parse_listener(value)
    except ValueError as error:
        return str(error)
    return None
