"""Endpoints of brokers, for responses to clients that asked the wrong broker (KIP-951)."""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.wire.encoding.primitives import INT32, NO_TAGS, compact_array_count, compact_string


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def node_endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The value of the NodeEndpoints tag, which is the same in Produce and Fetch responses."""
    parts = [compact_array_count(len(endpoints))]
    for node_id, host, port, rack in endpoints:
        parts += (INT32.pack(node_id), compact_string(host), INT32.pack(port), compact_string(rack), NO_TAGS)
    return b"".join(parts)
