"""Internal topics have as many replicas as there are brokers, and get more when brokers come."""

from typing import Any

import pytest
from tests.unit.cluster.metadata import Metadata, refusal

from cordwood.cluster.metadata.partitions import PartitionImage, partition_row
from cordwood.cluster.metadata.rows import (
    BrokerRow,
    broker_key,
    decode_broker,
    encode_broker,
    encode_partition,
    partition_key,
)
from cordwood.cluster.planner.internal_topics import Shortage, internal_topic, plan_growth, shortages
from cordwood.cluster.planner.isr import together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.reassignment import plan_steps
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Put
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

NAMES = [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC]


async def with_topic(name: str, *brokers: int) -> Metadata:
    metadata = await Metadata(offsets_topic_num_partitions="6", transaction_state_log_num_partitions="6").register(
        *brokers
    )
    await metadata.create(internal_topic(name, metadata.settings, len(brokers)), internal=True)
    return metadata


async def grow(metadata: Metadata) -> int:
    """The number of partitions that were written."""
    writes = plan_growth(metadata.image)
    for topic in metadata.image.sorted_topics():
        writes += plan_steps(metadata.image, topic)
    for write in writes:
        assert (await metadata.store.txn(*together([write]))).succeeded
    await metadata.refresh()
    return len(writes)


async def bring_in_sync(metadata: Metadata, name: str) -> None:
    topic = metadata.image.topics[name]
    for index, partition in enumerate(topic.partitions):
        row = partition_row(partition)._replace(isr=partition.replicas)
        assert (
            await metadata.store.txn((), [Put(partition_key(topic.topic_id, index), encode_partition(row))])
        ).succeeded
    await metadata.refresh()


async def change_broker(metadata: Metadata, broker_id: int, **changes: Any) -> None:
    item = await metadata.store.get(broker_key(broker_id))
    assert item is not None
    row: BrokerRow = decode_broker(item.key, item.value)._replace(**changes)
    assert (await metadata.store.txn((), [Put(item.key, encode_broker(row))])).succeeded
    await metadata.refresh()


def partitions(metadata: Metadata, name: str) -> tuple[PartitionImage, ...]:
    return metadata.image.topics[name].partitions


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (4, 3)])
async def test_an_internal_topic_begins_with_as_many_replicas_as_there_are_brokers(
    name: str, brokers: int, replicas: int
) -> None:
    metadata = await with_topic(name, *range(1, brokers + 1))
    assert {len(each.replicas) for each in partitions(metadata, name)} == {replicas}
    assert await grow(metadata) == 0


@pytest.mark.parametrize("name", NAMES)
async def test_brokers_that_come_later_get_replicas_evenly_and_count_when_they_are_in_sync(name: str) -> None:
    metadata = await with_topic(name, 1)
    await metadata.register(2, 3, 4)
    assert await grow(metadata) == 6
    hosted = [broker for each in partitions(metadata, name) for broker in each.replicas]
    assert sorted(map(hosted.count, (1, 2, 3, 4))) == [4, 4, 4, 6]
    for each in partitions(metadata, name):
        assert (each.leader, each.isr, len(each.replicas), each.partition_epoch) == (1, (1,), 3, 1)
        assert each.adding == each.replicas[1:]
    assert await grow(metadata) == 0, "the new replicas have to catch up first"
    await bring_in_sync(metadata, name)
    assert await grow(metadata) == 6
    assert {each.adding for each in partitions(metadata, name)} == {()}
    assert await grow(metadata) == 0


async def test_coordinators_go_on_while_replicas_are_added() -> None:
    metadata = await with_topic(TRANSACTION_STATE_TOPIC, 1)

    def needed() -> int:
        return metadata.image.topics[TRANSACTION_STATE_TOPIC].settings.min_insync_replicas

    assert needed() == 1
    await metadata.register(2, 3)
    await grow(metadata)
    assert needed() == 1
    await bring_in_sync(metadata, TRANSACTION_STATE_TOPIC)
    await grow(metadata)
    assert needed() == 2, "transaction.state.log.min.isr"


async def test_the_epochs_of_a_lone_replica_that_was_started_again_are_written_down() -> None:
    metadata = await with_topic(CONSUMER_OFFSETS_TOPIC, 1)
    await metadata.register(1, 1)
    before = metadata.image.leadership(partitions(metadata, CONSUMER_OFFSETS_TOPIC)[0])
    assert before == (1, 2)
    await metadata.register(2)
    await grow(metadata)
    grown = partitions(metadata, CONSUMER_OFFSETS_TOPIC)[0]
    assert metadata.image.leadership(grown) == before
    assert (grown.leader_epoch, grown.leader_broker_epoch) == (2, metadata.image.broker_epochs[1])


async def test_a_leader_that_registers_meanwhile_makes_the_growth_fail() -> None:
    metadata = await with_topic(CONSUMER_OFFSETS_TOPIC, 1)
    await metadata.register(2)
    writes = plan_growth(metadata.image)
    await metadata.register(1)
    assert not (await metadata.store.txn(*together(writes))).succeeded


@pytest.mark.parametrize("state", ["fenced", "draining"])
async def test_a_broker_that_may_not_lead_gets_no_replica(state: str) -> None:
    metadata = await with_topic(CONSUMER_OFFSETS_TOPIC, 1)
    await metadata.register(2)
    await change_broker(metadata, 2, **{state: True})
    assert await grow(metadata) == 0
    topic = await metadata.create(NewTopic("orders", 4, 1))
    assert {each.replicas for each in topic.partitions} == {(1,)}
    assert metadata.plan(NewTopic("more", 1, 2))["more"].__class__.__name__ == "ProtocolError"
    await change_broker(metadata, 2, **{state: False})
    assert await grow(metadata) == 6


async def test_a_fenced_broker_of_a_manual_assignment_is_not_in_sync() -> None:
    metadata = await Metadata().register(1, 2)
    await change_broker(metadata, 1, fenced=True)
    topic = await metadata.create(NewTopic("orders", assignments=(Assignment(0, (1, 2)),)))
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (2, (2,))
    outcome = metadata.plan(NewTopic("more", assignments=(Assignment(0, (1,)),)))["more"]
    code, reason = refusal(outcome)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "are away, fenced or in controlled shutdown" in reason


async def test_too_few_replicas_are_named() -> None:
    metadata = await with_topic(CONSUMER_OFFSETS_TOPIC, 1, 2)
    assert list(shortages(metadata.image)) == [
        Shortage(CONSUMER_OFFSETS_TOPIC, 2, "offsets.topic.replication.factor", 3)
    ]
    await metadata.register(3)
    await grow(metadata)
    assert [each.replicas for each in shortages(metadata.image)] == [2], "the third has to catch up first"
    await bring_in_sync(metadata, CONSUMER_OFFSETS_TOPIC)
    await grow(metadata)
    assert list(shortages(metadata.image)) == []
