"""The connections of clients on librdkafka, by the software name that clients give in ApiVersions.

Some faults of librdkafka do not show if its clients are answered differently from others: `told_brokers.py`,
`replication/near_reads.py`, `handlers/administration/metadata.py` and `handlers/coordination/positions.py` say how.
"""

from __future__ import annotations


def is_on_librdkafka(software: str) -> bool:
    """True if a client with this software name (ApiVersions 3 and later) is built on librdkafka: bindings have their
    own names."""
    return "rdkafka" in software or software.startswith("confluent-kafka")


class LibrdkafkaClients:
    def __init__(self) -> None:
        self._connections: set[int] = set()

    def introduced(self, connection_id: int, software: str) -> None:
        """Notes the software name that a client gave on its connection."""
        if is_on_librdkafka(software):
            self._connections.add(connection_id)

    def connection_closed(self, connection_id: int) -> None:
        self._connections.discard(connection_id)

    def __contains__(self, connection_id: int) -> bool:
        return connection_id in self._connections
