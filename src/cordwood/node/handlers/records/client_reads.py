"""The partitions that a client reads at this broker: those that its principal may read, and that the broker leads, or
follows near the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.partitions.partition import Partition
from cordwood.node.requests.fetch_sessions import Target, TopicKey
from cordwood.node.requests.request import Request

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.replication.near_reads import NearReads

READ, TOPIC = Operation.READ, ResourceKind.TOPIC
"""Each partition asks by them, and an enumeration looks its members up in Python."""
NEAR_READS_FROM = 11
"""From this version on clients understand that they are sent to a follower, and read there."""


class ClientReadRooms(Protocol):
    """The rooms of a node that a client's fetch needs to find its partitions."""

    hosted: HostedReplicas
    image: ClusterImage
    near_reads: NearReads


class ClientReads:
    """Finds the partitions of one fetch, by the rules and leaderships of the moment."""

    __slots__ = ("_judge", "_judged_at", "_rack", "_rooms", "_version")

    def __init__(self, rooms: ClientReadRooms, request: Request, rack: str) -> None:
        self._rooms = rooms
        self._rack = rack
        self._version = request.version
        self._judge = request.judge
        self._judged_at = self._judge.revision if self._judge.asks else 0

    def rules_changed(self) -> bool:
        """True if the rules have changed since the last call, or since the start of the fetch."""
        if not self._judge.asks:
            return False
        revision = self._judge.revision
        changed, self._judged_at = revision != self._judged_at, revision
        return changed

    def partition(self, target: Target) -> Partition:
        """Raises ProtocolError for a partition that the client cannot read here."""
        if self._judge.asks:
            self._demand_right(target.topic)
        try:
            return self._rooms.hosted.leader_in(target.topic, target.partition)
        except ProtocolError as refusal:
            if refusal.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or self._version < NEAR_READS_FROM:
                raise
        return self._rooms.near_reads.followed(target.topic, target.partition, self._rack)

    def _demand_right(self, topic: TopicKey) -> None:
        if isinstance(topic, str):
            refusal = self._judge.refusal(READ, TOPIC, topic)
        else:
            name = self._rooms.image.topic_name(topic)
            refusal = None if name is None else self._judge.records_refusal(READ, name, topic)
        if refusal is not None:
            raise refusal
