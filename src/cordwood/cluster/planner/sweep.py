"""Plans to remove the keys that interrupted creations and additions left behind.

Another broker may have such a change under way: its keys look the same. So each transaction of a sweep changes the
topic's row, which the transactions of that change compare: the change fails and is planned anew, and no topic is
committed without the partitions that a sweep removed.
"""

from collections.abc import Iterator, Sequence

from cordwood.cluster.metadata.rows import encode_topic, partition_key, partitions_prefix, topic_config_key, topic_key
from cordwood.cluster.metadata.strays import StrayPartitions, StrayTopic
from cordwood.cluster.planner.store_transactions import StoreTxn, chunks
from cordwood.cluster.stores.interface import MAX_OPERATIONS, Delete, DeletePrefix, Operation, Put, has_mod_revision


def sweep_topic(stray: StrayTopic) -> StoreTxn:
    """Removes all keys of a topic without a name. The commit of a creation writes row and name together, so a row that
    is unchanged has no name."""
    key = topic_key(stray.topic_id)
    return StoreTxn(
        (has_mod_revision(key, stray.row_revision),),
        (Delete(key), Delete(topic_config_key(stray.topic_id)), DeletePrefix(partitions_prefix(stray.topic_id))),
    )


def partition_groups(stray: StrayPartitions) -> Iterator[Sequence[Operation]]:
    """The deletions of partitions beyond the topic's count, in groups for `sweep_partitions`."""
    deletes = (Delete(partition_key(stray.topic_id, partition)) for partition in stray.partitions)
    return chunks(deletes, at_once=MAX_OPERATIONS - 1)


def sweep_partitions(stray: StrayPartitions, group: Sequence[Operation], row_revision: int) -> StoreTxn:
    """Removes a group of partitions and rewrites the topic's row, which is at `row_revision`."""
    key = topic_key(stray.topic_id)
    return StoreTxn((has_mod_revision(key, row_revision),), (Put(key, encode_topic(stray.row)), *group))
