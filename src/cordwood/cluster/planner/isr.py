"""Plans changes of in-sync sets (ISR) that leaders ask for, and keeps the eligible leader replicas (ELR) with them.

A replica in the ELR left the ISR, and since then no record was committed: the leader commits only while its ISR has
min.insync.replicas members and the ELR is empty. So a replica in the ELR has every committed record and may be elected.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.partitions import PartitionImage, partition_row
from cordwood.cluster.metadata.rows import encode_partition, partition_key
from cordwood.cluster.planner.registration import authority_of
from cordwood.cluster.planner.store_transactions import StoreTxn
from cordwood.cluster.stores.interface import MAX_OPERATIONS, Compare, Put, has_mod_revision
from cordwood.model.identifiers import TopicId

MOST_COMPARES = MAX_OPERATIONS - 2
"""The comparisons of a planned transaction. Its writer adds the comparisons of its authority."""


class IsrChange(NamedTuple):
    """A new in-sync set, as the partition's leader asks for it.

    With the ISR that the partition has already, the leader asks for an empty ELR after min.insync.replicas was lowered,
    or says that it has recovered from an unclean election.
    """

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    mod_revision: int
    """The revision of the partition that the leader has seen."""
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int]
    """The broker epochs in which the added replicas caught up."""
    lost: frozenset[int] = frozenset()
    """Replicas whose logs are gone: they leave the ELR, too."""


class IsrOutcome(Enum):
    APPLIED = "applied"
    REFUSED = "refused"
    """The change did not happen and will not happen. The image shows the reason, or the store failed."""
    UNKNOWN = "unknown"
    """The change may have happened, or may happen until the partition is written again. The leader keeps it pending,
    and may ask for the same change again."""


class GuardedPut(NamedTuple):
    """A row of a partition, and the comparisons under which it may be written."""

    put: Put
    compares: tuple[Compare, ...]


def in_sync(
    partition: PartitionImage,
    isr: Collection[int],
    min_insync_replicas: int,
    *,
    unworthy: Collection[int] = (),
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ISR and ELR of a partition whose ISR becomes `isr`, both in the order of the replicas.

    `unworthy` replicas lost committed records, and join neither.
    """
    stay = tuple(broker for broker in partition.replicas if broker in isr and broker not in unworthy)
    if len(stay) >= min_insync_replicas:
        return stay, ()
    eligible = {*partition.isr, *partition.elr}.difference(stay, unworthy)
    return stay, tuple(broker for broker in partition.replicas if broker in eligible)


def plan_isr_change(image: ClusterImage, broker_epoch: int, change: IsrChange) -> GuardedPut | None:
    """The write of a change by the leader, the broker whose image this is, in its epoch `broker_epoch`.

    None: the image already shows that the change cannot be made.
    """
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None or change.partition >= len(topic.partitions):
        return None
    partition = topic.partitions[change.partition]
    if (partition.mod_revision, partition.partition_epoch) != (change.mod_revision, change.partition_epoch):
        return None
    if image.leadership(partition) != (image.node_id, change.leader_epoch):
        return None
    if image.broker_epochs.get(image.node_id) != broker_epoch:
        return None
    if image.node_id not in change.isr or not set(change.isr) <= set(partition.replicas):
        return None
    added = [broker for broker in change.isr if broker not in partition.isr]
    for broker in added:
        registered = image.brokers.get(broker)
        if registered is None or not registered.takes_records or registered.epoch != change.broker_epochs.get(broker):
            return None
    isr, elr = in_sync(partition, change.isr, topic.settings.min_insync_replicas, unworthy=change.lost)
    before = partition_row(partition)
    row = before._replace(isr=isr, elr=elr, recovering=False)
    if row == before:
        return None
    row = row._replace(partition_epoch=partition.partition_epoch + 1)
    key = partition_key(change.topic_id, change.partition)
    compares = (has_mod_revision(key, change.mod_revision), *(authority_of(b, change.broker_epochs[b]) for b in added))
    return GuardedPut(Put(key, encode_partition(row, image.metadata_version)), compares)


def together(writes: Sequence[GuardedPut], guards: Iterable[Compare] = ()) -> StoreTxn:
    """One transaction of all writes. `guards` are compared as well."""
    compares = dict.fromkeys((*(compare for write in writes for compare in write.compares), *guards))
    return StoreTxn(tuple(compares), tuple(write.put for write in writes))


def batches(writes: Iterable[GuardedPut], most_compares: int = MOST_COMPARES) -> Iterator[list[GuardedPut]]:
    """Groups writes so that each group fits into one transaction."""
    group: list[GuardedPut] = []
    compares: set[Compare] = set()
    for write in writes:
        more = compares.union(write.compares)
        if group and (len(more) > most_compares or len(group) == MAX_OPERATIONS):
            yield group
            group, more = [], set(write.compares)
        group.append(write)
        compares = more
    if group:
        yield group
