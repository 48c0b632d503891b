"""The brokers in answers to Metadata: those that take part, which are registered and not fenced.

librdkafka drops every broker that an answer leaves out (since 2.10), and then fails to come back in two ways. A client
that is told of no broker at all cannot ask again, and may stay so for ever (its issue 5301). A call that waits for a
coordinator does not return if that broker was left out for a moment (its issue 5511). So no client is told of an empty
cluster, and clients on librdkafka are told a broker for a while after it left. Such clients are always told the broker
that answers, even while it does not take part: a client that is told only of a dead broker cannot ask again either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.wire.endpoints import NodeEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.cluster.metadata.rows import BrokerRow, MemberRow
    from cordwood.node.loop.loop import Loop
    from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients

TOLD_AFTER_LEAVING_MS: Final = 60_000
"""The time for which clients on librdkafka are told a broker that left: longer than a restart takes."""


class ToldBrokers:
    def __init__(self, loop: Loop, image: ClusterImage, librdkafka_clients: LibrdkafkaClients) -> None:
        self._loop = loop
        self._image = image
        self._taking_part: dict[int, BrokerRow] = {}
        self._left: dict[int, tuple[BrokerRow, int]] = {}
        """Brokers that no longer take part, each with its last row and the time on the boot clock."""
        self._librdkafka_clients = librdkafka_clients
        self.brokers_changed()

    def brokers_changed(self) -> None:
        """Takes over the brokers of the image: some registered, were fenced or unfenced, or went."""
        now_ms, registered = self._loop.now.boot_ms, self._image.brokers
        took_part = self._taking_part
        self._taking_part = {broker_id: broker for broker_id, broker in registered.items() if not broker.fenced}
        left = {**self._left, **{broker_id: (broker, now_ms) for broker_id, broker in took_part.items()}}
        # The brokers that took part last are kept, however long ago that was: others may not come back before them.
        self._left = {
            broker_id: (registered.get(broker_id, broker), since_ms)
            for broker_id, (broker, since_ms) in left.items()
            if broker_id not in self._taking_part
            and (not self._taking_part or now_ms - since_ms < TOLD_AFTER_LEAVING_MS or broker_id == self._image.node_id)
        }

    def endpoints(self, listener: str, connection_id: int) -> list[NodeEndpoint]:
        """The brokers as the client of a connection reaches them, by a listener."""
        found: list[NodeEndpoint] = []
        if connection_id not in self._librdkafka_clients:
            found = reached_by(listener, self._taking_part)
        elif self._taking_part:
            since_ms = self._loop.now.boot_ms - TOLD_AFTER_LEAVING_MS
            recent = {broker_id: broker for broker_id, (broker, left_ms) in self._left.items() if left_ms > since_ms}
            found = reached_by(listener, {**self._this_broker(), **recent, **self._taking_part})
        if not found:
            left = {broker_id: broker for broker_id, (broker, _) in self._left.items()}
            found = reached_by(listener, {**left, **self._image.brokers})
        return found

    def _this_broker(self) -> dict[int, BrokerRow]:
        """The row of this broker, from its registration or its last one; empty if it never registered."""
        own = self._image.node_id
        if own in self._image.brokers:
            return {own: self._image.brokers[own]}
        return {own: self._left[own][0]} if own in self._left else {}


def reached_by(listener: str, brokers: Mapping[int, BrokerRow | MemberRow]) -> list[NodeEndpoint]:
    """The brokers, as clients of a listener reach them. Brokers without this listener are left out."""
    found = []
    for broker_id, broker in sorted(brokers.items()):
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
