"""The listeners of a broker: names, addresses and security protocols, and the one that brokers use among themselves.

Four settings of Kafka's describe the listeners together: `listeners`, `advertised.listeners`,
`listener.security.protocol.map` and `inter.broker.listener.name`. A single listener needs only the first.
"""

import re
from collections.abc import Sequence
from enum import Enum
from itertools import combinations
from typing import Final, NamedTuple

from cordwood.model.settings.setting import InvalidSetting, Value
from cordwood.model.token_trust import TokenTrust

PLAINTEXT: Final = "PLAINTEXT"
"""The name of a listener without one, and the security protocol without security."""

SSL: Final = "SSL"
"""The security protocol that is TLS."""

SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
"""The security protocol that asks peers who they are, in plain text."""

SASL_SSL: Final = "SASL_SSL"
"""The security protocol that asks peers who they are, over TLS."""

HTTPS: Final = "HTTPS"
"""The name of `metrics.listener` with TLS, also in names of settings (`listener.name.https.ssl.keystore.location`)."""

SECURITY_PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""Kafka's security protocols."""

EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")

_NAME: Final = re.compile(r"[A-Z0-9_.-]+")
_IPV4: Final = re.compile(r"\d+(\.\d+){3}")


class Callers(Enum):
    """The peers whose requests arrive on a listener."""

    CLIENTS = "clients"
    BROKERS = "other brokers, and operators with the tools that act as brokers"
    BOTH = "other brokers and clients"
    ALONE = "clients and operators, of a broker without others"
    ITSELF = "the broker itself, without a socket"


class Asks(NamedTuple):
    """How a listener asks its peers who they are."""

    mechanisms: tuple[str, ...]
    session_ms: int = 0
    """The time after which a peer has to log in again; 0: never."""
    tokens: TokenTrust | None = None
    """Whose tokens the listener takes; None: it takes none."""


class Entrance(NamedTuple):
    """The listener on which a request arrived."""

    name: str
    callers: Callers
    asks: Asks | None = None
    """None: nobody is asked."""

    @property
    def between_brokers(self) -> bool:
        """True if other brokers use this listener."""
        return self.callers in (Callers.BROKERS, Callers.BOTH)


ONLY_ENTRANCE: Final = Entrance(PLAINTEXT, Callers.ALONE)
"""The entrance of a lone broker with one listener."""
LOOPBACK: Final = Entrance(PLAINTEXT, Callers.ITSELF)


class ListenerAddress(NamedTuple):
    """An address in the form of `listeners` and `advertised.listeners`."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"


class Listener(NamedTuple):
    """A listening address of the broker."""

    address: ListenerAddress
    protocol: str
    advertised: ListenerAddress | None
    """The address that clients of this listener are told; None: its own."""
    between_brokers: bool

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def speaks_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def speaks_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def entrance(self, *, only: bool, clustered: bool, asks: Asks | None = None) -> Entrance:
        """The entrance of this listener. `only`: the broker has no other listener. `clustered`: there may be other
        brokers."""
        if not self.between_brokers:
            callers = Callers.CLIENTS
        elif not only:
            callers = Callers.BROKERS
        else:
            callers = Callers.BOTH if clustered else Callers.ALONE
        return Entrance(self.name, callers, asks)


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> ListenerAddress:
    """Parses `NAME://host:port`, or just `host:port`. Raises ValueError with the reason for other texts."""
    name, separator, address = text.strip().rpartition("://")
    name = name.upper() if separator else PLAINTEXT
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a listener: it has letters, digits, '_', '-' and '.'")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text.strip()} must end in a port: PLAINTEXT://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets: PLAINTEXT://[::1]:9092")
    return ListenerAddress(name, host, int(port))


def resolve_listeners(
    listeners: Sequence[str], advertised: Sequence[str], protocols: Sequence[str], between_brokers: str
) -> tuple[Listener, ...]:
    """The listeners that the four settings describe together. Raises InvalidSetting if they contradict each other."""
    addresses = [parse_address(text) for text in listeners]
    names = [address.name for address in addresses]
    told = {address.name: address for address in map(parse_address, advertised)}
    for name in told:
        if name not in names:
            raise InvalidSetting(f"advertised.listeners has {name}, which is not one of listeners ({', '.join(names)})")
    inner = _between_brokers(names, between_brokers.strip().upper())
    protocol_of = dict(map(_protocol, protocols))
    return tuple(
        Listener(address, _supported(address.name, protocol_of), told.get(address.name), address.name == inner)
        for address in addresses
    )


def brokers_apart(
    clients: ListenerAddress, protocols: Sequence[str], port: int, *, speaking: str = PLAINTEXT
) -> dict[str, str]:
    """The settings that give brokers a listener of their own, on this machine, beside the one of clients."""
    name = next(name for name in ("BROKERS", "INTERNAL") if name != clients.name)
    others = [text for text in protocols if _protocol(text)[0] != name]
    return {
        "inter.broker.listener.name": name,
        "listener.security.protocol.map": ",".join([*others, f"{name}:{speaking}"]),
        "listeners": f"{clients},{ListenerAddress(name, '127.0.0.1', port)}",
    }


def _between_brokers(names: Sequence[str], chosen: str) -> str:
    if not chosen:
        if len(names) > 1 and PLAINTEXT not in names:
            raise InvalidSetting(
                f"inter.broker.listener.name must name the one of listeners ({', '.join(names)}) that brokers use "
                "among themselves"
            )
        return names[0] if len(names) == 1 else PLAINTEXT
    if chosen not in names:
        raise InvalidSetting(
            f"inter.broker.listener.name is {chosen}, which is not one of listeners ({', '.join(names)})"
        )
    return chosen


def _supported(name: str, protocol_of: dict[str, str]) -> str:
    protocol = protocol_of.get(name)
    if protocol is None:
        raise InvalidSetting(
            f"listener.security.protocol.map has no protocol for the listener {name}: add {name}:{PLAINTEXT}"
        )
    return protocol


def _protocol(text: str) -> tuple[str, str]:
    """The listener and the protocol of one entry of the map. Raises ValueError."""
    name, colon, protocol = (part.strip().upper() for part in text.partition(":"))
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} must be the name of a listener and its protocol, as in CLIENTS:{PLAINTEXT}")
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"{protocol!r} is no security protocol: there are {', '.join(SECURITY_PROTOCOLS)}")
    return name, protocol


# Checks of each setting by itself: the reason why a value is refused, or None


def check_listeners(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if not value:
        return "must name a listener"
    try:
        addresses = [parse_address(text) for text in value]
    except ValueError as error:
        return str(error)
    for one, other in combinations(addresses, 2):
        if one.name == other.name:
            return f"two listeners have the name {one.name}: each needs its own, as in CLIENTS://host:port"
        if one.port == other.port != 0 and not _are_both_families(one.host, other.host):
            return f"{one.name} and {other.name} have the same port: each listener needs its own"
    return None


def _are_both_families(one: str, other: str) -> bool:
    """True if one host is an IPv4 address and the other an IPv6 address: they may share a port."""
    old, new = sorted((one, other), key=lambda host: ":" in host)
    return _IPV4.fullmatch(old) is not None and ":" in new


def check_advertised(value: Value) -> str | None:
    assert isinstance(value, tuple)
    try:
        addresses = [parse_address(text) for text in value]
    except ValueError as error:
        return str(error)
    for address in addresses:
        if address.host in EVERY_INTERFACE:
            return "clients cannot connect to a wildcard address: name a host that they can reach"
    if len({address.name for address in addresses}) < len(addresses):
        return "a listener is advertised twice"
    return None


def check_protocols(value: Value) -> str | None:
    assert isinstance(value, tuple)
    try:
        names = [name for name, _ in map(_protocol, value)]
    except ValueError as error:
        return str(error)
    return "a listener has two protocols" if len(set(names)) < len(names) else None


def check_metrics_address(value: Value) -> str | None:
    if value == "":
        return None
    assert isinstance(value, str)
    try:
        name = parse_address(value).name
    except ValueError as error:
        return str(error)
    return None if name in (PLAINTEXT, HTTPS) else f"metrics are served over HTTP or HTTPS, not as {name}"
