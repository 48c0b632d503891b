"""Single decisions of the controller's planner. tests/property/test_failover_plans.py plays them at random."""

from itertools import permutations, product

from tests.unit.cluster.metadata import Metadata

from cordwood.cluster.metadata.rows import BrokerRow, Endpoint, broker_epoch_key, broker_key
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner.failover import decide, plan_topic, preferred_elections, ready_to_serve
from cordwood.cluster.planner.isr import together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.registration import Condition, plan_lift, plan_own_row, plan_registration
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, present


async def restart(metadata: Metadata, broker_id: int, *, unclean: bool = False, storage_id: str = "") -> None:
    endpoints = (Endpoint("PLAINTEXT", "host", 9092),)
    epoch = await metadata.store.get(broker_epoch_key(broker_id))
    registration = BrokerRow(
        0, "incarnation", endpoints, None, SUPPORTED, storage_id=storage_id, unclean=unclean, fenced=True
    )
    await metadata.carry_out(plan_registration(broker_id, registration, epoch).plan)


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
    before = metadata.image.topics["t"].partitions[0]
    assert await carried_out(metadata) == (-1, (3,))
    noted = metadata.image.topics["t"].partitions[0]
    assert noted.lossy_epoch == noted.leader_epoch > before.leader_epoch, "the loss is recorded before the election"
    assert plan_topic(metadata.image, metadata.image.topics["t"]).writes == []
    assert list(ready_to_serve(metadata.image, ())) == [1, 2, 3]


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
    assert list(ready_to_serve(metadata.image, ())) == [1, 3]


async def test_a_broker_that_came_back_a_moment_ago_leads_only_where_no_other_in_sync_replica_can() -> None:
    metadata = await topic_of("disk", 3, 1, 2)
    await metadata.store.txn((), [Delete(broker_key(3))])
    await metadata.refresh()
    topic = metadata.image.topics["t"]

    def elected(*recent: int) -> int:
        row = decide(metadata.image, topic, topic.partitions[0], recent).row
        assert row is not None
        return row.leader

    assert (elected(), elected(1), elected(2), elected(1, 2)) == (1, 2, 1, 1)


async def test_a_preferred_leader_waits_until_it_has_been_back_for_a_while() -> None:
    metadata = await topic_of("disk", 3, 1, 2)
    await restart(metadata, 3)
    assert await carried_out(metadata) == (1, (3, 1, 2))
    assert len(ready_to_serve(metadata.image, ())) == 1
    item = await metadata.store.get(broker_key(3))
    assert item is not None
    await metadata.store.txn(*plan_lift(item, 3, present(item.key)))
    await metadata.refresh()
    topics = [metadata.image.topics["t"]]
    assert list(preferred_elections(metadata.image, topics, {3})) == []
    assert len(list(preferred_elections(metadata.image, topics, {1, 2}))) == 1


async def test_a_live_partition_is_in_order() -> None:
    metadata = await topic_of("disk", 3, 1)
    topic = metadata.image.topics["t"]
    assert decide(metadata.image, topic, topic.partitions[0]).row is None


async def test_a_topic_needs_the_writes_that_its_partitions_need() -> None:
    """In all states of brokers, also where most partitions are in order."""
    states = ["serves", "gone", "restarts", "drains", "full", "emptied"]
    for first, second in product(states, states):
        metadata = await Metadata().register(1, 2, 3)
        for size in (1, 2, 3):
            placed = list(permutations((1, 2, 3), size))
            places = tuple(Assignment(index, brokers) for index, brokers in enumerate(placed))
            await metadata.create(NewTopic(f"t{size}", assignments=places))
        for broker, state in ((1, first), (2, second)):
            if state == "gone":
                await metadata.store.txn((), [Delete(broker_key(broker))])
            elif state in ("drains", "full"):
                item = await metadata.store.get(broker_key(broker))
                assert item is not None
                await metadata.store.txn(
                    *plan_own_row(item, Condition(draining=state == "drains", disk_full=state == "full"))
                )
            elif state != "serves":
                await restart(metadata, broker, storage_id="another" if state == "emptied" else "")
        await metadata.refresh()
        for topic in metadata.image.sorted_topics():
            rows = [decide(metadata.image, topic, partition).row for partition in topic.partitions]
            needed = [str(index) for index, row in enumerate(rows) if row is not None]
            written = [write.put.key.rpartition("/")[2] for write in plan_topic(metadata.image, topic).writes]
            assert written == needed, (first, second)
