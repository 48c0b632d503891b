"""Forgets a broker that never comes back and is no longer a member: its storage id, its address, its settings, and its
place in the tombstones of deleted topics.

The broker's epoch stays: a broker that registers under the same id again, on any disk, gets a higher one.
"""

from collections.abc import Iterable

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import broker_config_key, broker_key, deleted_topic_key, member_key, storage_key
from cordwood.cluster.metadata.tombstones import encode_tombstone
from cordwood.cluster.planner.store_transactions import StoreTxn
from cordwood.cluster.stores.interface import (
    MAX_OPERATIONS,
    Compare,
    Delete,
    Operation,
    Put,
    absent,
    has_mod_revision,
)
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId

MOST_NAMED = 3


def plan_forgetting(image: ClusterImage, broker_id: int) -> list[StoreTxn]:
    """The transactions that forget the broker. The last one removes its storage id: a repeated request finishes the
    work.

    Raises ProtocolError if the broker is registered, is a replica, or is not known.
    """
    if broker_id in image.brokers:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is registered: stop it before the cluster forgets it."
        )
    replicas = [
        f"{topic.name}-{index}"
        for topic in image.sorted_topics()
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas or broker_id in partition.adding
    ]
    if replicas:
        more = f" and {len(replicas) - MOST_NAMED} more" if len(replicas) > MOST_NAMED else ""
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is a replica of {', '.join(replicas[:MOST_NAMED])}{more}: move these partitions to "
            "other brokers first.",
        )
    stones = [topic_id for topic_id, stone in image.deleted_topics.items() if broker_id in stone.brokers]
    if not stones and broker_id not in image.storage_ids:
        raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"The cluster knows no broker {broker_id}.")
    away = absent(broker_key(broker_id))
    steps = plan_directories_gone(image, stones, broker_id)
    gone = (storage_key(broker_id), member_key(broker_id), broker_config_key(broker_id))
    steps.append(StoreTxn((), tuple(Delete(key) for key in gone)))
    return [step._replace(compares=(away, *step.compares)) for step in steps]


def plan_directories_gone(
    image: ClusterImage, topic_ids: Iterable[TopicId], broker_id: int | None = None
) -> list[StoreTxn]:
    """Takes a broker (by default the image's own) out of tombstones: it has no directory of these topics left.

    A directory that comes back later, for example from a backup, is unknown: it is set aside, not deleted.
    """
    gone = image.node_id if broker_id is None else broker_id
    compares: list[Compare] = []
    operations: list[Operation] = []
    for topic_id in topic_ids:
        stone = image.deleted_topics.get(topic_id)
        if stone is None or (stone.brokers and gone not in stone.brokers):
            continue
        key = deleted_topic_key(topic_id)
        others = [broker for broker in stone.brokers if broker != gone]
        compares.append(has_mod_revision(key, stone.mod_revision))
        operations.append(Put(key, encode_tombstone(stone.name, others)) if others else Delete(key))
    at_once = MAX_OPERATIONS - 2
    return [
        StoreTxn(tuple(compares[start : start + at_once]), tuple(operations[start : start + at_once]))
        for start in range(0, len(operations), at_once)
    ]
