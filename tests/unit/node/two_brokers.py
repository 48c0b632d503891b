"""A node in a cluster of two: the other broker is rows in the metadata store, and nothing else."""

from typing import Any

from simulation.world.world import World

from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.metadata.partitions import Leadership
from cordwood.cluster.metadata.rows import (
    BrokerRow,
    Endpoint,
    PartitionRow,
    broker_epoch_key,
    encode_partition,
    partition_key,
)
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner.registration import plan_registration
from cordwood.cluster.stores.interface import Operation, Put

ME, OTHER, NOBODY = 1, 2, -1


def run(coroutine: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the store in memory waited for something")


def write(world: World, *operations: Operation) -> None:
    """Writes to the store, and lets the node hear of it."""
    assert run(world.store.txn((), operations)).succeeded
    world.settle()


def register(world: World, broker_id: int = OTHER, *endpoints: Endpoint, key: int = 0) -> None:
    """`key` 0: the other broker's release has no keys."""
    endpoints = endpoints or (Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092),)
    registration = BrokerRow(0, "incarnation", endpoints, None, SUPPORTED, key=key)
    epoch = run(world.store.get(broker_epoch_key(broker_id)))
    write(world, *plan_registration(broker_id, registration, epoch).plan.commit.operations)


def leadership(world: World, topic: str, index: int = 0) -> Leadership:
    image = world.node.image
    return image.leadership(image.topics[topic].partitions[index])


def elect(
    world: World,
    topic: str,
    leader: int,
    *,
    index: int = 0,
    replicas: tuple[int, ...] = (ME, OTHER),
    isr: tuple[int, ...] | None = None,
) -> TopicImage:
    """Writes a new leader, or a new epoch of the same leader, as a controller does.

    The other broker registers before the first election: topics that exist by then are on this node.
    """
    if OTHER not in world.node.image.broker_epochs:
        register(world)
    write(world, election(world, topic, leader, index=index, replicas=replicas, isr=isr))
    return world.node.image.topics[topic]


def election(
    world: World,
    topic: str,
    leader: int,
    *,
    index: int = 0,
    replicas: tuple[int, ...] = (ME, OTHER),
    isr: tuple[int, ...] | None = None,
    lossy_epoch: int = 0,
) -> Put:
    image = world.node.image
    partition = image.topics[topic].partitions[index]
    row = PartitionRow(
        leader,
        image.broker_epochs.get(leader, 0),
        leadership(world, topic, index).epoch + 1,
        replicas,
        replicas if isr is None else isr,
        partition_epoch=partition.partition_epoch + 1,
        lossy_epoch=lossy_epoch,
    )
    return Put(partition_key(image.topics[topic].topic_id, index), encode_partition(row))
