"""Leader epochs for a metadata store that may be older than the logs: an operator went on with an older copy.

Elections since the copy have left epochs in the logs that the copy does not know. A leader that began in an epoch below
those in its log, or in an epoch in which another broker wrote other records, would share no history with its followers.
So a broker raises the epochs of its partitions before its fence is lifted, by more than the number of elections since.
The copy may name a leader that lacks acknowledged records: the new epoch notes this (`lossy_epoch`), and that an
operator accepted it (`accepted_epoch`). Replicas that have these records set their logs aside; without the note they
would keep out of sync, and with a loss alone they would cut the records.
"""

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.planner.failover import guarded
from cordwood.cluster.planner.isr import GuardedPut

MARGIN = 1000
"""More elections of a partition than are held between a copy of the store and its use: the logs of replicas that start
later may know later epochs than the logs of the first."""


def plan_later_epoch(image: ClusterImage, topic_name: str, index: int, known_epoch: int) -> GuardedPut | None:
    """Raises a partition's leader epoch above the latest one in the log of a replica; None: it is high enough."""
    topic, partition = image.topics.get(topic_name), image.partition_of(topic_name, index)
    if topic is None or partition is None:
        return None
    present = image.leadership(partition).epoch
    if present >= known_epoch + MARGIN // 2:
        return None
    epoch = max(present, known_epoch) + MARGIN
    row = partition_row(partition)._replace(
        leader_epoch=epoch,
        lossy_epoch=epoch,
        accepted_epoch=epoch,
        partition_epoch=partition.partition_epoch + 1,
    )
    if len(partition.replicas) == 1:
        # The registrations of a lone replica count from this epoch on.
        epoch = image.broker_epochs.get(partition.leader, partition.leader_broker_epoch)
        row = row._replace(leader_broker_epoch=epoch)
    return guarded(image, topic, index, row)
