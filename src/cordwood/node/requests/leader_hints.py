"""Names the leader of a partition, and its address, to clients that asked the wrong broker (KIP-951): they need no
Metadata request.

The answer is this broker's image, which may lag behind. A client takes a hint only if its epoch is higher than the one
that the client knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.wire.endpoints import NodeEndpoint

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors of a client that knows an old leader or an old epoch."""

Hint = tuple[int, int]
"""The leader's broker id and the leader epoch."""


class LeaderHints:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def hint(self, topic: str | TopicId, index: int, error: ErrorCode) -> Hint | None:
        """The leader of the partition, if that helps a client with this error."""
        if error not in MOVED:
            return None
        image = self._image
        found = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        leader, epoch = image.leadership(found.partitions[index])
        if leader < 0 or (leader == image.node_id and error is ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return None
        return leader, epoch

    def endpoints(self, hints: Iterable[Hint | None], listener: str) -> list[NodeEndpoint]:
        """The addresses of the leaders for clients of a listener. Leaders that clients cannot reach are left out."""
        found = []
        for leader in sorted({hint[0] for hint in hints if hint is not None}):
            broker = self._image.brokers.get(leader)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
        return found
