"""Plans the elections in which an operator gives records up, as pure functions of the image.

The row notes the epoch of such an election (`accepted_epoch`): a replica that has committed records from before, and
has to go back behind them, sets its log aside instead of cutting it, even if it was away or restarted meanwhile.
"""

from dataclasses import replace

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import NOBODY
from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.planner.failover import (
    Election,
    elected,
    guarded,
    has_room,
    is_electable,
    named_partition,
    unworthy_of,
)
from cordwood.cluster.stores.interface import absent
from cordwood.model.errors import ErrorCode, ProtocolError


def plan_accepted_loss(image: ClusterImage, topic_name: str, index: int, broker_id: int | None = None) -> Election:
    """Elects a live replica of a partition without a leader, whatever records it lacks: the given broker, or the first
    live one.

    A replica that has every acknowledged record is elected instead if it is live, and waited for if its broker is
    starting. If a replica withholds records that the leader lacks, the given broker, or the present leader, goes on in
    an epoch that notes the loss. Raises ProtocolError.
    """
    topic, partition = named_partition(image, topic_name, index)
    if partition.leader != NOBODY and _is_withheld(image, topic, index):
        return _accepted_by_leader(image, topic, index, broker_id)
    if partition.leader != NOBODY:
        raise ProtocolError(
            ErrorCode.ELECTION_NOT_NEEDED, f"Partition {index} of '{topic_name}' is led by broker {partition.leader}."
        )
    unworthy = unworthy_of(image, topic, partition)
    complete = [
        broker
        for candidates in (partition.isr, partition.elr)
        for broker in candidates
        if broker in image.brokers and broker not in unworthy and not image.brokers[broker].draining
    ]
    for broker in complete:
        if is_electable(image, broker):
            return Election(broker, guarded(image, topic, index, elected(image, topic, partition, broker, unworthy)))
    if complete:
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"Broker {complete[0]} has every acknowledged record of partition {index} of '{topic_name}' and is "
            "starting: wait for it, or stop it.",
        )
    live = [broker for broker in partition.replicas if is_electable(image, broker)]
    wanted = live[:1] if broker_id is None else [broker for broker in live if broker == broker_id]
    if not wanted:
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"No replica can lead partition {index} of '{topic_name}': of its replicas {list(partition.replicas)} the "
            f"brokers {live} are live.",
        )
    row = elected(image, topic, partition, wanted[0], {*partition.isr, *partition.elr})
    return Election(wanted[0], guarded(image, topic, index, row._replace(accepted_epoch=row.leader_epoch)))


def _is_withheld(image: ClusterImage, topic: TopicImage, index: int) -> bool:
    """True if a replica reports committed records that the leader lacks."""
    registered = (image.brokers.get(broker) for broker in topic.partitions[index].replicas)
    return any(broker is not None and broker.withholds(topic.topic_id, index) for broker in registered)


def _accepted_by_leader(image: ClusterImage, topic: TopicImage, index: int, broker_id: int | None) -> Election:
    """Lets the present leader, or another live replica, lead in an epoch that notes that records may be lost."""
    partition = topic.partitions[index]
    leader = partition.leader if broker_id is None else broker_id
    if leader not in partition.replicas or not is_electable(image, leader):
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"Broker {leader} is no live replica of partition {index} of '{topic.name}'.",
        )
    if leader != partition.leader:
        row = elected(image, topic, partition, leader, {*partition.isr, *partition.elr})
    else:
        # The leader's own records stay, and so do the replicas that are in sync with it.
        row = elected(image, topic, partition, leader, ())
        row = row._replace(lossy_epoch=row.leader_epoch)
    return Election(leader, guarded(image, topic, index, row._replace(accepted_epoch=row.leader_epoch)))


def plan_beginning_anew(image: ClusterImage, topic_name: str, index: int, broker_id: int) -> Election:
    """Lets a partition whose replicas are all away begin anew, empty, on this broker alone: an operator gives them up.

    The old replicas are away when the row is written. A broker that comes back is no replica any more, and sets its log
    aside. Raises ProtocolError.
    """
    topic, partition = named_partition(image, topic_name, index)
    if partition.leader != NOBODY:
        raise ProtocolError(
            ErrorCode.ELECTION_NOT_NEEDED, f"Partition {index} of '{topic_name}' is led by broker {partition.leader}."
        )
    if registered := [broker for broker in partition.replicas if broker in image.brokers]:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {registered[0]} has a replica of partition {index} of '{topic_name}' and is registered: the "
            "partition begins anew on another broker only when all of its replicas are away.",
        )
    if not has_room(image, broker_id):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Broker {broker_id} does not serve, or its disk is full."
        )
    alone = replace(partition, replicas=(broker_id,), adding=(), removing=())
    row = elected(image, topic, alone, broker_id, {*partition.isr, *partition.elr})
    # An empty log has nothing to recover: no transaction is open in it.
    row = row._replace(recovering=False)
    write = guarded(image, topic, index, row)
    away = tuple(absent(broker_key(broker)) for broker in partition.replicas)
    return Election(broker_id, write._replace(compares=(*write.compares, *away)))
