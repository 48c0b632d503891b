"""Single decisions of the controller's planner. tests/property/test_failover_plans.py plays them at random."""

from tests.unit.cluster.metadata import Metadata

from cordwood.cluster.planner.failover import decide, plan_topic, ready_to_serve
from cordwood.cluster.planner.isr import together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.registration import Registration, plan_registration
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.rows import Endpoint, broker_epoch_key, broker_key
from cordwood.cluster.stores.interface import Delete


async def restart(metadata: Metadata, broker_id: int, *, unclean: bool = False, storage_id: str = "") -> None:
    endpoints = (Endpoint("PLAINTEXT", "host", 9092),)
    epoch = await metadata.store.get(broker_epoch_key(broker_id))
    registration = Registration(
        broker_id, "incarnation", endpoints, storage_id=storage_id, unclean=unclean, fenced=True
    )
    await metadata.carry_out(plan_registration(registration, epoch).plan)


async def topic_of(durability: str, *replicas: int) -> Metadata:
    metadata = await Metadata().register(1, 2, 3)
    configs = {"ack.durability": durability}
    await metadata.create(NewTopic("t", assignments=(Assignment(0, replicas),), configs=configs))
    return metadata


async def carried_out(metadata: Metadata) -> tuple[int, tuple[int, ...]]:
    """Leader and ISR after the next write."""
    (write,) = plan_topic(metadata.image, metadata.image.topics["t"]).writes
    assert (await metadata.store.txn(*together([write]))).succeeded
    await metadata.refresh()
    partition = metadata.image.topics["t"].partitions[0]
    return partition.leader, partition.isr


async def test_of_replicas_that_all_forgot_something_only_the_last_leader_stays_in_sync() -> None:
    metadata = await topic_of("os", 3, 1, 2)
    for broker in (1, 2, 3):
        await restart(metadata, broker, unclean=True)
    assert await carried_out(metadata) == (-1, (3,))


async def test_a_replica_that_forgot_something_makes_way_for_one_that_is_away() -> None:
    metadata = await topic_of("os", 3, 1)
    await metadata.store.txn((), [Delete(broker_key(1))])
    await restart(metadata, 3, unclean=True)
    assert await carried_out(metadata) == (-1, (1,))


async def test_nothing_on_disk_is_forgotten() -> None:
    metadata = await topic_of("disk", 3, 1)
    for broker in (1, 3):
        await restart(metadata, broker, unclean=True)
    assert await carried_out(metadata) == (-1, (3, 1))
    assert [broker.broker_id for broker in ready_to_serve(metadata.image, ())] == [1, 3]


async def test_a_live_partition_is_in_order() -> None:
    metadata = await topic_of("disk", 3, 1)
    topic = metadata.image.topics["t"]
    assert decide(metadata.image, topic, topic.partitions[0]).row is None
