"""Moves of partitions: what an operator asks for, and the safe steps of the controller."""

from dataclasses import replace

import pytest
from tests.unit.cluster.metadata import Metadata, refusal

from cordwood.cluster.metadata.partitions import PartitionImage, partition_row
from cordwood.cluster.metadata.rows import ALL_DAMAGED, broker_key, damaged_name, encode_partition, partition_key
from cordwood.cluster.planner.isr import GuardedPut, together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.reassignment import Move, next_step, plan_move, plan_steps
from cordwood.cluster.planner.registration import Condition, plan_own_row
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.model.errors import ErrorCode, ProtocolError


async def on_brokers(*replicas: int) -> Metadata:
    metadata = await Metadata().register(1, 2, 3, 4, 5)
    await metadata.create(NewTopic("t", assignments=(Assignment(0, replicas),)))
    return metadata


def partition_of(metadata: Metadata) -> PartitionImage:
    return metadata.image.topics["t"].partitions[0]


async def write(metadata: Metadata, planned: GuardedPut | None) -> PartitionImage:
    assert planned is not None
    assert (await metadata.store.txn(*together([planned]))).succeeded
    await metadata.refresh()
    return partition_of(metadata)


async def move(metadata: Metadata, *replicas: int) -> PartitionImage:
    return await write(metadata, plan_move(metadata.image, Move("t", 0, replicas)))


async def cancel(metadata: Metadata) -> PartitionImage:
    return await write(metadata, plan_move(metadata.image, Move("t", 0, None)))


async def step(metadata: Metadata) -> PartitionImage:
    (planned,) = plan_steps(metadata.image, metadata.image.topics["t"])
    return await write(metadata, planned)


async def in_sync(metadata: Metadata, *isr: int) -> None:
    topic = metadata.image.topics["t"]
    row = partition_row(topic.partitions[0])._replace(isr=isr)
    await metadata.store.txn((), [Put(partition_key(topic.topic_id, 0), encode_partition(row))])
    await metadata.refresh()


def waits(metadata: Metadata) -> bool:
    return not list(plan_steps(metadata.image, metadata.image.topics["t"]))


async def test_a_partition_moves_when_all_of_its_target_are_in_sync_and_its_leader_first() -> None:
    metadata = await on_brokers(1, 2)
    begun = await move(metadata, 3, 2)
    assert (begun.replicas, begun.adding, begun.removing, begun.leader) == ((3, 2, 1), (3,), (1,), 1)
    assert waits(metadata), "broker 3 has nothing yet"
    await in_sync(metadata, 1, 3)
    assert waits(metadata), "broker 2 belongs to the target and is not in sync"
    await in_sync(metadata, 1, 2, 3)
    led = await step(metadata)
    assert (led.leader, led.leader_epoch, led.replicas) == (3, begun.leader_epoch + 1, (3, 2, 1))
    over = await step(metadata)
    assert (over.replicas, over.isr, over.adding, over.removing, over.leader) == ((3, 2), (3, 2), (), (), 3)
    assert over.leader_epoch == led.leader_epoch + 1, "what is known of broker 1 must not count when it comes back"
    assert waits(metadata)


async def test_a_lone_replica_moves_away_and_the_epochs_go_on() -> None:
    metadata = await on_brokers(1)
    # A restart of the lone leader raises the epoch without a write.
    await metadata.register(1)
    epoch = metadata.image.leadership(partition_of(metadata)).epoch
    begun = await move(metadata, 4)
    assert (begun.leader, begun.leader_epoch) == (1, epoch)
    assert metadata.image.leadership(begun) == (1, epoch)
    await in_sync(metadata, 1, 4)
    assert (await step(metadata)).leader == 4
    over = await step(metadata)
    assert (over.replicas, over.isr, metadata.image.leadership(over)) == ((4,), (4,), (4, epoch + 2))


async def test_a_lone_replica_that_is_away_is_not_moved() -> None:
    metadata = await on_brokers(1)
    await metadata.store.txn((), [Delete(broker_key(1))])
    await metadata.refresh()
    with pytest.raises(ProtocolError, match="The only replica, on broker 1, does not serve: start the broker"):
        plan_move(metadata.image, Move("t", 0, (4,)))


async def test_more_and_fewer_replicas_and_another_order() -> None:
    metadata = await on_brokers(1, 2)
    assert (await move(metadata, 1, 2, 3)).adding == (3,)
    await in_sync(metadata, 1, 2, 3)
    assert (await step(metadata)).adding == ()
    assert (await move(metadata, 2, 3)).removing == (1,)
    assert (await step(metadata)).leader == 2
    assert (await step(metadata)).replicas == (2, 3)
    # Another order changes only who is preferred.
    turned = await move(metadata, 3, 2)
    assert (turned.replicas, turned.adding, turned.removing, turned.leader) == ((3, 2), (), (), 2)
    assert plan_move(metadata.image, Move("t", 0, (3, 2))) is None


async def test_a_cancelled_move_goes_back_also_if_a_new_replica_leads_already() -> None:
    metadata = await on_brokers(1, 2)
    before = partition_of(metadata)
    await move(metadata, 3, 4)
    back = await cancel(metadata)
    assert (back.replicas, back.isr, back.adding, back.removing) == (before.replicas, before.isr, (), ())
    await move(metadata, 3, 4)
    await in_sync(metadata, 1, 2, 3, 4)
    assert (await step(metadata)).leader == 3
    back = await cancel(metadata)
    assert (back.leader, back.replicas, back.isr, back.adding, back.removing) == (1, (1, 2), (1, 2), (), ())
    with pytest.raises(ProtocolError) as refused:
        plan_move(metadata.image, Move("t", 0, None))
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_move_is_not_cancelled_when_none_of_the_former_replicas_could_lead() -> None:
    metadata = await on_brokers(1, 2)
    await move(metadata, 3, 4)
    await in_sync(metadata, 3, 4)
    partition = replace(partition_of(metadata), leader=3)
    topic = replace(metadata.image.topics["t"], partitions=(partition,))
    metadata.image.topics["t"] = topic
    code, _ = refusal(_refused(metadata, Move("t", 0, None)))
    assert code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def _refused(metadata: Metadata, wanted: Move) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        plan_move(metadata.image, wanted, may_change_count=False)
    return refused.value


async def test_a_moving_partition_takes_the_newer_target() -> None:
    metadata = await on_brokers(1, 2)
    await move(metadata, 1, 3)
    # Broker 3 has nothing yet and is not wanted any more: it leaves at once.
    again = await move(metadata, 1, 4)
    assert (again.replicas, again.adding, again.removing) == ((1, 4, 2), (4,), (2,))
    await in_sync(metadata, 1, 2, 4)
    # Broker 4 is in sync already: it leaves by a step.
    third = await move(metadata, 1, 5)
    assert (third.replicas, third.adding, third.removing) == ((1, 5, 4, 2), (5,), (4, 2))
    await in_sync(metadata, 1, 2, 4, 5)
    assert (await step(metadata)).replicas == (1, 5)


async def test_a_leader_stays_when_nobody_of_the_target_can_lead() -> None:
    metadata = await on_brokers(1, 2)
    await move(metadata, 3)
    await in_sync(metadata, 1, 2, 3)
    await metadata.store.txn((), [Delete(broker_key(3))])
    await metadata.refresh()
    assert next_step(metadata.image, metadata.image.topics["t"], partition_of(metadata)) is None


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Move("nowhere", 0, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Move("t", 1, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Move("t", 0, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, (1, 99)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, (1, 2, 3)), ErrorCode.INVALID_REPLICATION_FACTOR),
        (Move("t", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
async def test_a_move_that_makes_no_sense_is_refused_with_words(wanted: Move, code: ErrorCode) -> None:
    metadata = await on_brokers(1, 2)
    assert refusal(_refused(metadata, wanted))[0] is code


@pytest.mark.parametrize("everything", [False, True])
async def test_a_move_waits_while_a_member_of_its_target_has_damage_that_is_not_repaired(everything: bool) -> None:
    metadata = await on_brokers(1, 2)
    topic_id = metadata.image.topics["t"].topic_id
    await move(metadata, 2, 3)
    await in_sync(metadata, 1, 2, 3)
    for broker, damaged, waiting in (
        (2, (damaged_name(topic_id, 0),), True),
        (2, (damaged_name(topic_id, 1),), False),
        (1, (damaged_name(topic_id, 0),), False),
        (3, (ALL_DAMAGED,) if everything else (damaged_name(topic_id, 0),), True),
    ):
        item = await metadata.store.get(broker_key(broker))
        assert item is not None
        await metadata.store.txn(*plan_own_row(item, Condition(damaged=damaged)))
        await metadata.refresh()
        assert waits(metadata) is waiting
        item = await metadata.store.get(broker_key(broker))
        assert item is not None
        await metadata.store.txn(*plan_own_row(item, Condition()))
        await metadata.refresh()
    assert (await step(metadata)).leader == 2
