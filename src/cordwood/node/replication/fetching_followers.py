"""Followers as their leader sees them at a fetch: their ends, and their throttle."""

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from cordwood.model.moment import Moment
from cordwood.node.partitions.partition import Partition
from cordwood.node.replication.in_sync_changes import InSyncChanges
from cordwood.replication.throttle import Throttle, is_listed


def count_follower(
    changes: InSyncChanges,
    partition: Partition,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    leader_epoch: LeaderEpoch,
    offset: Offset,
    log_start: Offset,
    connection_id: int,
    now: Moment,
) -> None:
    """Counts a follower's end, which may commit records and bring the follower into the in-sync set."""
    if leader_epoch < 0:
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH, "A follower names the leader epoch that it follows.")
    partition.follower_fetched(broker_id, broker_epoch, offset, log_start, connection_id, now)
    replica = partition.replica
    if replica.may_join(broker_id) or replica.has_lost(broker_id):
        changes.due(partition)


def answer_follower(partition: Partition, broker_id: BrokerId, connection_id: int, now: Moment) -> None:
    """Notes the answer: the follower's next fetch on the connection vouches for the time from now on."""
    if (replica := partition.role.leading) is not None:
        replica.follower_answered(broker_id, connection_id, now.boot_ms)


class LeaderThrottle:
    """Holds records back from followers outside of the in-sync set, where the topic lists this leader."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._throttle = Throttle()

    def _applies(self, partition: Partition, follower: int) -> bool:
        listed = partition.settings.leader_replication_throttled_replicas
        if not listed or follower in partition.replica.in_sync.maximal:
            return False
        return is_listed(listed, partition.name.partition, self._image.node_id)

    def holds_back(self, partition: Partition, follower: int, now: Moment) -> bool:
        """True if the follower gets no records now."""
        return self._applies(partition, follower) and self._throttle.wait_ms(now.boot_ms) > 0

    def sent(self, partition: Partition, follower: int, length: int, now: Moment) -> None:
        if self._applies(partition, follower):
            self._throttle.fetched(length, self._image.settings.leader_replication_throttled_rate, now.boot_ms)
