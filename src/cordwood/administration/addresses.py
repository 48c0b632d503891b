"""The addresses of a cluster's brokers, each along with the security that its listener wants."""

from __future__ import annotations

from cordwood.client.settings import Address
from cordwood.security.connection_settings import PLAIN_TEXT, Security


class BrokerAddress(Address):
    """An address as a broker told it to a client: the client reaches it in the way in which it reached that broker."""

    security: Security

    def __new__(cls, host: str, port: int, security: Security = PLAIN_TEXT) -> BrokerAddress:
        made = super().__new__(cls, host, port)
        made.security = security
        return made


def security_of(address: Address) -> Security:
    return address.security if isinstance(address, BrokerAddress) else PLAIN_TEXT


def told_by(asked: Address, host: str, port: int) -> BrokerAddress:
    """The address of another broker, which the broker at `asked` told."""
    return BrokerAddress(host, port, security_of(asked))
