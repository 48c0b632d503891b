"""A broker that is away stays a member of its cluster until it is forgotten: new partitions may be given to it."""

import pytest
from tests.unit.cluster.metadata import Metadata, only, refusal

from cordwood.cluster.config_descriptions import ConfigSource, describe_configs
from cordwood.cluster.metadata.rows import (
    BrokerRow,
    Endpoint,
    broker_config_key,
    broker_epoch_key,
    broker_key,
    encode_overrides,
)
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner.configs import ConfigResource, ResourceType
from cordwood.cluster.planner.forgetting import plan_forgetting
from cordwood.cluster.planner.internal_topics import internal_topic, plan_growth
from cordwood.cluster.planner.placement import Assignment, placeable, places
from cordwood.cluster.planner.reassignment import Move, plan_move
from cordwood.cluster.planner.registration import plan_lift, plan_registration
from cordwood.cluster.planner.topics import (
    MorePartitions,
    NewTopic,
    PartitionAddition,
    TopicCreation,
    plan_create_partitions,
)
from cordwood.cluster.stores.interface import Delete, Put, present
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.model.settings.replication_settings import CORDONED


async def members(*broker_ids: int, away: tuple[int, ...] = (), racks: dict[int, str] | None = None) -> Metadata:
    """A cluster of these brokers, some of which took part and went."""
    metadata = Metadata(offsets_topic_num_partitions="6")
    for broker_id in broker_ids:
        endpoint = Endpoint("PLAINTEXT", f"host-{broker_id}", 9092)
        rack = (racks or {}).get(broker_id)
        registration = BrokerRow(0, "one", (endpoint,), rack, SUPPORTED, f"disk {broker_id}", fenced=True)
        epoch = await metadata.store.get(broker_epoch_key(broker_id))
        await metadata.carry_out(plan_registration(broker_id, registration, epoch).plan)
        item = await metadata.store.get(broker_key(broker_id))
        assert item is not None
        assert (await metadata.store.txn(*plan_lift(item, broker_id, present(item.key)))).succeeded
    await metadata.store.txn((), [Delete(broker_key(broker_id)) for broker_id in away])
    await metadata.refresh()
    return metadata


async def test_a_topic_is_created_with_a_replica_on_a_broker_that_is_away_and_not_in_sync() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    topic = await metadata.create(NewTopic("t", 12, 3))
    for partition in topic.partitions:
        assert set(partition.replicas) == {1, 2, 3}
        assert set(partition.isr) == {1, 2}
        assert partition.leader == partition.replicas[0]
    assert {partition.leader for partition in topic.partitions} == {1, 2}


async def test_a_topic_is_extended_while_a_broker_is_away() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    await metadata.create(NewTopic("t", 1, 3))
    grown = only(plan_create_partitions(metadata.image, [MorePartitions("t", 3)]).values())
    assert isinstance(grown, PartitionAddition), grown
    await metadata.carry_out(grown.plan)
    assert [set(each.isr) for each in metadata.image.topics["t"].partitions] == [{1, 2}] * 3


async def test_replicas_are_on_live_brokers_where_these_suffice() -> None:
    metadata = await members(1, 2, 3, 4, away=(2,))
    topic = await metadata.create(NewTopic("t", 12, 3))
    assert {broker for partition in topic.partitions for broker in partition.replicas} == {1, 3, 4}


async def test_of_brokers_that_are_away_those_in_unused_racks_come_first_and_take_turns() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "c", 5: "c"}
    metadata = await members(1, 2, 3, 4, 5, away=(3, 4, 5), racks=racks)
    topic = await metadata.create(NewTopic("t", 12, 3))
    lasts = [partition.replicas[2] for partition in topic.partitions]
    assert set(lasts) == {4, 5}
    assert lasts.count(4) == lasts.count(5)


async def test_a_cordoned_or_forgotten_broker_that_is_away_is_not_counted() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    await metadata.store.txn((), [Put(broker_config_key(3), encode_overrides({CORDONED: "*"}))])
    await metadata.refresh()
    _, reason = refusal(only(metadata.plan(NewTopic("t", 1, 3)).values()))
    assert "only 2 broker(s) can take replicas. Not counted, since cordoned: 3" in reason
    for step in plan_forgetting(metadata.image, 3):
        assert (await metadata.store.txn(*step)).succeeded
    await metadata.refresh()
    assert 3 not in metadata.image.members
    _, reason = refusal(only(metadata.plan(NewTopic("t", 1, 3)).values()))
    assert "only 2 broker(s) are registered." in reason


async def test_a_broker_that_is_forgotten_meanwhile_gets_no_replica() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    creation = only(metadata.plan(NewTopic("t", 1, 3)).values())
    for step in plan_forgetting(metadata.image, 3):
        await metadata.store.txn(*step)
    assert isinstance(creation, TopicCreation)
    assert not (await metadata.store.txn(*creation.plan.commit)).succeeded


async def test_a_broker_that_comes_back_meanwhile_does_not_refuse_the_topic() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    creation = only(metadata.plan(NewTopic("t", 1, 3)).values())
    assert isinstance(creation, TopicCreation)
    await metadata.register(3)
    await metadata.carry_out(creation.plan)
    assert set(metadata.image.topics["t"].partitions[0].isr) == {1, 2}


async def test_a_manual_assignment_names_a_broker_that_is_away_and_another_broker_leads() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    topic = await metadata.create(NewTopic("t", assignments=(Assignment(0, (3, 1, 2)),)))
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1, 2))
    code, reason = refusal(only(metadata.plan(NewTopic("u", assignments=(Assignment(0, (3,)),))).values()))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reason == (
        "All brokers specified in the manual partition assignment for partition 0 are away, fenced or in controlled "
        "shutdown."
    )


async def test_without_a_live_broker_no_topic_is_created() -> None:
    metadata = await members(1, 2, away=(1, 2))
    code, _ = refusal(only(metadata.plan(NewTopic("t", 1, 1)).values()))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_partition_moves_to_a_broker_that_is_away_and_waits_for_it() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    await metadata.create(NewTopic("t", assignments=(Assignment(0, (1, 2)),)))
    assert plan_move(metadata.image, Move("t", 0, (1, 3))) is not None
    with pytest.raises(ProtocolError, match="No broker is registered as 9; registered are 1, 2, 3"):
        plan_move(metadata.image, Move("t", 0, (1, 9)))


async def test_internal_topics_have_replicas_on_brokers_that_are_away() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    wanted = internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, places(metadata.image))
    topic = await metadata.create(wanted, internal=True)
    assert {len(each.replicas) for each in topic.partitions} == {3}
    assert {len(each.isr) for each in topic.partitions} == {2}
    assert plan_growth(metadata.image) == []
    assert set(placeable(metadata.image)) == {1, 2}


async def test_the_address_and_the_rack_of_a_broker_outlive_its_registration() -> None:
    metadata = await members(1, 2, away=(2,), racks={2: "cellar"})
    member = metadata.image.members[2]
    assert (member.endpoints[0].host, member.rack) == ("host-2", "cellar")
    assert (await metadata.copy()).members == metadata.image.members


async def test_a_broker_whose_fence_an_older_controller_lifted_is_a_member_without_a_known_address() -> None:
    metadata = await members(1, 2, away=(2,))
    await metadata.store.txn((), [Delete("members/2")])
    await metadata.refresh()
    assert metadata.image.members[2].endpoints == ()
    topic = await metadata.create(NewTopic("t", 1, 2))
    assert set(topic.partitions[0].replicas) == {1, 2}


@pytest.mark.parametrize(("brokers", "replicas"), [((1,), 1), ((1, 2), 2), ((1, 2, 3), 3), ((1, 2, 3, 4), 3)])
async def test_a_topic_that_does_not_say_how_many_has_three_replicas_or_one_on_each_member(
    brokers: tuple[int, ...], replicas: int
) -> None:
    metadata = await members(*brokers)
    topic = await metadata.create(NewTopic("t", 2))
    assert {len(each.replicas) for each in topic.partitions} == {replicas}
    assert default_of(metadata) == (str(replicas), ConfigSource.DEFAULT)


async def test_a_member_that_is_away_counts_for_the_replicas_of_a_new_topic_and_a_cordoned_one_does_not() -> None:
    metadata = await members(1, 2, 3, away=(3,))
    topic = await metadata.create(NewTopic("t"))
    assert len(topic.partitions[0].replicas) == 3
    await metadata.store.txn((), [Put(broker_config_key(3), encode_overrides({CORDONED: "*"}))])
    await metadata.refresh()
    topic = await metadata.create(NewTopic("after"))
    assert len(topic.partitions[0].replicas) == 2
    assert default_of(metadata) == ("2", ConfigSource.DEFAULT)


async def test_a_topic_has_no_more_replicas_by_default_than_are_allowed() -> None:
    metadata = await Metadata(replication_factor_max="1").register(1, 2, 3)
    topic = await metadata.create(NewTopic("t"))
    assert len(topic.partitions[0].replicas) == 1


async def test_a_number_of_replicas_in_the_settings_is_described_as_it_is_and_zero_as_what_it_means() -> None:
    metadata = await Metadata(default_replication_factor="1").register(1, 2, 3)
    assert default_of(metadata) == ("1", ConfigSource.STATIC_BROKER)
    metadata = await Metadata(default_replication_factor="0").register(1, 2, 3)
    assert default_of(metadata) == ("3", ConfigSource.DEFAULT)


def default_of(metadata: Metadata) -> tuple[str | None, ConfigSource]:
    (entry,) = describe_configs(
        metadata.image, ConfigResource(ResourceType.BROKER, "1"), {"default.replication.factor"}
    )
    return entry.value, entry.source
