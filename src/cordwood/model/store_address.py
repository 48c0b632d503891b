"""The address of a cluster's metadata store: the text of `cluster.store`, parsed."""

from typing import NamedTuple

from cordwood.model.settings import InvalidSetting

_EXAMPLES = "etcd://host:2379,host:2379 or unix:///path/to/metadata.sock"


class StoreAddress(NamedTuple):
    """The members of an etcd, or the path of a socket."""

    endpoints: tuple[str, ...] = ()
    socket_path: str = ""


def parse_store_address(text: str) -> StoreAddress:
    """Parses the address. Raises InvalidSetting."""
    kind, _, place = text.partition("://")
    if kind == "unix" and place.startswith("/"):
        return StoreAddress(socket_path=place)
    endpoints = tuple(part.strip() for part in place.split(",") if part.strip())
    if kind == "etcd" and endpoints and all(_is_endpoint(endpoint) for endpoint in endpoints):
        return StoreAddress(endpoints)
    raise InvalidSetting(f"Invalid value {text} for configuration cluster.store: expected {_EXAMPLES}")


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536
