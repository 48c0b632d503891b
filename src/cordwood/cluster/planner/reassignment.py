"""Moves partitions to other replicas, step by step: pure functions of the image.

An operator writes the wish: `replicas` becomes the target followed by all other present replicas, `adding` names
members of the target that do not have the partition yet, and `removing` the replicas that shall leave. The new replicas
fetch as any follower does. The controller then takes the steps that are safe, each in a separate write:

| the partition | the next write |
| --- | --- |
| a member of the target is not in the in-sync set, or has damage that is not repaired | none: wait |
| the leader is not in the target | the first member of the target that can lead is elected |
| the leader is in the target | `removing` leave replicas and in-sync set, and the move is over |

Acknowledged records survive each step: the target is in sync before any replica leaves, and a write by which a replica
leaves raises the leader epoch. A cancelled move goes back to the former replicas, without those that left; a move of a
moving partition takes the newer target.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import NOBODY, PartitionImage, partition_row
from cordwood.cluster.metadata.rows import PartitionRow, encode_partition, partition_key
from cordwood.cluster.planner.failover import elected, has_room, is_electable
from cordwood.cluster.planner.isr import GuardedPut, in_sync
from cordwood.cluster.planner.registration import authority_of
from cordwood.cluster.stores.interface import Put, has_mod_revision
from cordwood.model.errors import ErrorCode, ProtocolError


class Move(NamedTuple):
    """The operator's wish for a partition. `replicas` is the target; None: the move under way is cancelled."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that the partition will have when its move is over."""
    return tuple(broker for broker in partition.replicas if broker not in partition.removing)


def plan_move(image: ClusterImage, move: Move, *, may_change_count: bool = True) -> GuardedPut | None:
    """The write that begins or cancels a move; None: nothing is to be changed. Raises ProtocolError."""
    topic = image.topics.get(move.topic)
    partition = image.partition_of(move.topic, move.partition)
    if topic is None or partition is None:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {move.partition} of '{move.topic}'."
        )
    if move.replicas is None:
        row = _cancelled(image, topic, partition)
    else:
        _check_target(image, partition, move.replicas, may_change_count=may_change_count)
        row = begun(image, partition, move.replicas)
    if row == partition_row(partition):
        return None
    return moved(image, topic, move.partition, row)


def _check_target(
    image: ClusterImage, partition: PartitionImage, target: Sequence[int], *, may_change_count: bool
) -> None:
    if not target:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition needs a replica.")
    if len(set(target)) != len(target):
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{list(target)} names a broker twice.")
    members = image.members
    unknown = [broker for broker in target if broker not in members and broker not in partition.replicas]
    if unknown:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"No broker is registered as {', '.join(map(str, unknown))}; registered are "
            f"{', '.join(map(str, members))}.",
        )
    if not may_change_count and len(target) != len(_original(partition)):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{list(target)} has another number of replicas than {list(_original(partition))}, and the request does "
            "not allow that.",
        )


def _original(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas before the move that is under way."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def begun(image: ClusterImage, partition: PartitionImage, target: tuple[int, ...]) -> PartitionRow:
    """The partition on its way to these replicas. Raises ProtocolError."""
    original = _original(partition)
    # A replica that an earlier move added leaves at once if it is not in sync and not wanted any more: it has nothing
    # to lose.
    present = [
        broker
        for broker in partition.replicas
        if broker in original or broker in partition.isr or broker in partition.elr or broker == partition.leader
    ]
    return _with_present_leader(image, partition)._replace(
        replicas=(*target, *(broker for broker in present if broker not in target)),
        adding=tuple(broker for broker in target if broker not in original),
        removing=tuple(broker for broker in present if broker not in target),
    )


def _with_present_leader(image: ClusterImage, partition: PartitionImage) -> PartitionRow:
    """The partition's row with the leader and the epoch that hold now.

    A lone replica leads on after a restart by counting its registrations. One of several replicas does not: the row of
    a partition that gets more replicas names the present epochs. Raises ProtocolError.
    """
    row = partition_row(partition)
    if len(partition.replicas) > 1:
        return row
    leader, leader_epoch = image.leadership(partition)
    if leader not in image.brokers:
        raise ProtocolError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"The only replica, on broker {partition.replicas[0]}, does not serve: start the broker, then move it.",
        )
    return row._replace(leader_broker_epoch=image.broker_epochs[leader], leader_epoch=leader_epoch)


def _cancelled(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> PartitionRow:
    if not is_moving(partition):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of the partition is under way.")
    return _narrowed(image, topic, partition, _original(partition))


def _narrowed(image: ClusterImage, topic: TopicImage, partition: PartitionImage, stay: Collection[int]) -> PartitionRow:
    """The partition with only these replicas. The leader is moved in the same write if it has to go."""
    leader = partition.leader
    row = partition_row(partition)
    if leader not in stay and leader != NOBODY:
        successor = _successor(image, partition, stay)
        if successor is None:
            raise ProtocolError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"None of the replicas {sorted(stay)} is in sync and serves: broker {leader} has to lead on.",
            )
        row = elected(image, topic, partition, successor, ())
    kept = tuple(broker for broker in partition.replicas if broker in stay)
    isr, elr = in_sync(
        replace(partition, replicas=kept), [b for b in row.isr if b in stay], topic.settings.min_insync_replicas
    )
    if not isr and not elr:
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"None of the replicas {sorted(stay)} has all committed records."
        )
    return row._replace(replicas=kept, isr=isr or elr, elr=elr if isr else (), adding=(), removing=())


def _successor(image: ClusterImage, partition: PartitionImage, among: Collection[int]) -> int | None:
    live = [b for b in partition.replicas if b in among and b in partition.isr and is_electable(image, b)]
    return min(live, key=lambda broker: not has_room(image, broker), default=None)


def next_step(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> PartitionRow | None:
    """The next safe step of a moving partition that is in order otherwise; None: it waits, or does not move."""
    if not is_moving(partition):
        return None
    target = target_of(partition)
    if not set(target) <= set(partition.isr) or image.leadership(partition).leader == NOBODY:
        return None
    if partition.leader not in target:
        successor = _successor(image, partition, target)
        return None if successor is None else elected(image, topic, partition, successor, ())
    return _narrowed(image, topic, partition, target)


def _is_damaged(image: ClusterImage, topic: TopicImage, index: int, target: Collection[int]) -> bool:
    found = [image.brokers[broker] for broker in target if broker in image.brokers]
    return any(broker.is_damaged(topic.topic_id, index) for broker in found)


def plan_steps(image: ClusterImage, topic: TopicImage) -> Iterator[GuardedPut]:
    """The next writes of the moving partitions of a topic."""
    for index, partition in enumerate(topic.partitions):
        if not is_moving(partition) or _is_damaged(image, topic, index, target_of(partition)):
            # Leaving replicas may have the only sound copies of damaged records.
            continue
        row = next_step(image, topic, partition)
        if row is not None:
            yield moved(image, topic, index, row)


def moved(image: ClusterImage, topic: TopicImage, index: int, row: PartitionRow) -> GuardedPut:
    """The write of a partition with other replicas, under the comparisons that it was decided by."""
    before = topic.partitions[index]
    if _replica_leaves(before, row):
        row = row._replace(leader_epoch=max(row.leader_epoch, before.leader_epoch + 1))
    key = partition_key(topic.topic_id, index)
    compares = [has_mod_revision(key, before.mod_revision)]
    for broker in dict.fromkeys((before.leader, row.leader)):
        if broker in image.broker_epochs:
            compares.append(authority_of(broker, image.broker_epochs[broker]))
    row = row._replace(partition_epoch=before.partition_epoch + 1)
    return GuardedPut(Put(key, encode_partition(row, image.metadata_version)), tuple(compares))


def _replica_leaves(before: PartitionImage, row: PartitionRow) -> bool:
    """True if the write ends the leader epoch. A replica that leaves may come back with an empty log: its leader's
    knowledge of the former copy, and late fetches of that copy, must not count for the new one."""
    return not set(before.replicas) <= set(row.replicas)
