"""Chooses the leader of a partition whose replicas may all have lost acknowledged records in power cuts of their
machines.

Under `ack.durability=os` an unclean restart of a machine takes unsynced records. If that happened to all replicas that
could lead, one of them stays in the ISR: the last leader, else the first. A note that the next leader may lack records
is written before its election (`lossy_epoch`): followers cut committed records only after such a note.

The note asks all replicas, in sync or not, for the ends of their logs. They answer in their rows. The replica with the
longest log of the latest leader epoch leads. Logs that end in the same epoch are beginnings of one history, that of the
epoch's leader, and a leader begins with all earlier committed records: so the longest log has every acknowledged record
that is left on any of them.

A log that retention or DeleteRecords emptied has no epoch, but a start: all records before it were committed. A log
that ends before such a start ranks last: otherwise its leader would give out offsets again that consumers have passed.

A replica that is away is not asked. The wait for a replica that does not answer (its release does not know the
question, its disk failed) is bounded: then the replica that stayed leads, or the one with the longest known log.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import NOBODY, PartitionImage, partition_row
from cordwood.cluster.metadata.rows import PartitionRow

NEVER_ASKED: Final[Mapping[int, int]] = MappingProxyType({})

ANSWERS_WITHIN_MS: Final = 10_000
"""The wait for replicas that run."""
STARTS_WITHIN_MS: Final = 300_000
"""The wait for replicas whose brokers are starting, and check their logs."""


def survivor_of(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> int | None:
    """The replica that stays although it may have lost committed records in a power cut, since all replicas did; None:
    some replica lost nothing, or none is left."""
    candidates = (*partition.isr, *partition.elr)
    if topic.settings.acks_mean_disk:
        return None
    fenced = [broker for broker in candidates if (each := image.brokers.get(broker)) is not None and each.fenced]
    if len(fenced) < len(candidates):
        return None
    emptied = {broker for broker in fenced if image.storage_ids.get(broker, "") != image.brokers[broker].storage_id}
    forgetful = {broker for broker in fenced if image.brokers[broker].unclean}
    if not emptied.union(forgetful).issuperset(candidates):
        return None
    # The last leader had most records; without it the first replica stays.
    kept = (broker for broker in (partition.leader, *candidates) if broker in forgetful - emptied)
    return next(kept, None)


def with_note(image: ClusterImage, partition: PartitionImage, survivor: int, unworthy: Collection[int]) -> PartitionRow:
    """The partition without a leader, and with the note that its next leader may lack committed records."""
    epoch = image.leadership(partition).epoch + 1
    isr = tuple(broker for broker in partition.isr if broker not in unworthy)
    elr = tuple(broker for broker in partition.elr if broker not in unworthy)
    return partition_row(partition)._replace(
        leader=NOBODY,
        leader_broker_epoch=0,
        leader_epoch=epoch,
        isr=isr or (survivor,),
        elr=elr if isr else (),
        partition_epoch=partition.partition_epoch + 1,
        lossy_epoch=epoch,
    )


def longest_log(image: ClusterImage, topic: TopicImage, index: int, stayed: int, asked_for_ms: int) -> int | None:
    """The live replica of a partition with the longest log of the latest epoch; None: the wait for replicas goes on.
    `stayed` may lead now, and leads if no longer log is known."""
    partition = topic.partitions[index]
    registered = {broker: image.brokers[broker] for broker in partition.replicas if broker in image.brokers}
    if len(registered) == 1:
        return stayed
    ends = {
        broker: end
        for broker, each in registered.items()
        if (end := each.log_end(topic.topic_id, index, partition.leader_epoch)) is not None
    }

    committed = max((end.start for end in ends.values()), default=0)

    def length(broker: int) -> tuple[bool, int, int, bool]:
        end = ends[broker]
        return end.end >= committed, end.last_epoch, end.end, broker == stayed

    def longest(brokers: Iterable[int]) -> int:
        return max(brokers, key=length, default=stayed)

    awaited = registered.keys() - ends.keys()
    if not registered[longest(ends)].electable:
        # The fence of this replica is about to be lifted, or its broker stops.
        awaited.add(longest(ends))
    within_ms = STARTS_WITHIN_MS if any(registered[broker].starting for broker in awaited) else ANSWERS_WITHIN_MS
    if awaited and asked_for_ms < within_ms:
        return None
    # A log whose end is not known may be the longest.
    return longest(broker for broker in ends if registered[broker].electable) if stayed in ends else stayed
