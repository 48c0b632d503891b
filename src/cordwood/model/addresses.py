"""Addresses of clients, each in one spelling: rules and quotas find them by their text."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def plain_address(text: str) -> str:
    """The address in its one spelling, also of an IPv4 client at a listener for both; another text as it is."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
