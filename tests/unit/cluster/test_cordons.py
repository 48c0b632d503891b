"""A cordoned broker gets no replicas of new partitions until it is uncordoned, or forgotten."""

import pytest
from tests.unit.cluster.metadata import Metadata, only, refusal

from cordwood.cluster.metadata.rows import broker_config_key, broker_key, storage_key
from cordwood.cluster.planner.balance import NoPlace, Placed, plan_drain, plan_factor
from cordwood.cluster.planner.configs import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ResourceType,
    plan_incremental_alter,
)
from cordwood.cluster.planner.forgetting import plan_forgetting
from cordwood.cluster.planner.internal_topics import internal_topic, plan_growth
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.setting import InvalidSetting

NAME = "cordoned.log.dirs"


async def cordon(metadata: Metadata, broker: str, value: str | None = "*") -> None:
    operation = AlterOperation.DELETE if value is None else AlterOperation.SET
    change = ConfigChange(NAME, operation, value)
    resource = ConfigResource(ResourceType.BROKER, broker)
    await metadata.carry_out(plan_incremental_alter(metadata.image, resource, [change]).plan)


async def brokers_of_a_new_topic(metadata: Metadata, name: str) -> set[int]:
    topic = await metadata.create(NewTopic(name, 12, 2))
    return {broker for each in topic.partitions for broker in each.replicas}


@pytest.mark.parametrize("value", ["*", " *\n"])
async def test_new_topics_leave_a_cordoned_broker_out_until_it_is_uncordoned(value: str) -> None:
    metadata = await Metadata().register(1, 2, 3)
    await cordon(metadata, "3", value)
    assert await brokers_of_a_new_topic(metadata, "cordoned") == {1, 2}
    await cordon(metadata, "3", None)
    assert await brokers_of_a_new_topic(metadata, "uncordoned") == {1, 2, 3}


async def test_a_topic_that_would_need_a_cordoned_broker_is_refused_with_its_name() -> None:
    metadata = await Metadata().register(1, 2, 3)
    await cordon(metadata, "3")
    code, reason = refusal(only(metadata.plan(NewTopic("t", 1, 3)).values()))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reason == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) can take replicas. Not counted, since cordoned: 3 (`cordwood cluster uncordon 3`)."
    )


async def test_a_refused_topic_names_the_brokers_that_do_not_take_part_yet() -> None:
    metadata = await Metadata().register(1, 2, 3, 4)
    await cordon(metadata, "4")
    brokers = metadata.image.brokers
    metadata.image.storage_ids[3] = "disk"
    brokers[2], brokers[3] = brokers[2]._replace(fenced=True), brokers[3]._replace(draining=True)
    _, reason = refusal(only(metadata.plan(NewTopic("t", 1, 3)).values()))
    assert reason.partition(" because ")[2] == (
        "only 2 broker(s) can take replicas. Not counted, since cordoned: 4 (`cordwood cluster uncordon 4`). "
        "Not counted, since they do not take part: 2 (`cordwood cluster status`)."
    )


ROOM_FOR_TWO = {1: None, 2: None}


def test_a_plan_without_room_names_the_cordoned_brokers_that_could_take_a_replica() -> None:
    partition = Placed("t", 0, (1, 2, 5))
    with pytest.raises(NoPlace) as refused:
        plan_drain([partition], ROOM_FOR_TWO, [5], cordoned=[3, 4, 5])
    assert str(refused.value) == (
        "t-0 needs 3 brokers for its replicas, and only 2 can take them (1, 2): uncordon brokers 3, 4 (`cordwood "
        "cluster uncordon 3 4`), add a broker, or give the topic fewer replicas first"
    )
    with pytest.raises(NoPlace, match=r"uncordon broker 3 \(`cordwood cluster uncordon 3`\), add a broker"):
        plan_factor([partition], ROOM_FOR_TWO, [partition], 4, cordoned=[3, 5])


def test_a_plan_without_room_names_no_cordoned_broker_that_has_a_replica_or_leaves() -> None:
    partition = Placed("t", 0, (1, 2, 5))
    for cordoned in ([], [5]):
        with pytest.raises(NoPlace, match=r"only 2 can take them \(1, 2\): add a broker, or give the topic fewer"):
            plan_drain([partition], ROOM_FOR_TWO, [5], cordoned=cordoned)
        with pytest.raises(NoPlace, match=r"only 2 can take them \(1, 2\): add a broker, or give the topic fewer"):
            plan_factor([partition], ROOM_FOR_TWO, [partition], 4, cordoned=cordoned)


async def test_internal_topics_do_not_grow_onto_a_cordoned_broker() -> None:
    metadata = await Metadata().register(1)
    await metadata.create(internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, 1), internal=True)
    await metadata.register(2)
    await cordon(metadata, "2")
    assert plan_growth(metadata.image) == []
    await cordon(metadata, "2", None)
    assert plan_growth(metadata.image) != []


async def test_a_broker_that_is_away_is_cordoned_and_gets_nothing_when_it_comes_back() -> None:
    metadata = await Metadata().register(1, 2, 3)
    await metadata.store.txn([], [Delete(broker_key(3)), Put(storage_key(3), b'"disk"')])
    await metadata.refresh()
    await cordon(metadata, "3")
    await metadata.register(3)
    assert await brokers_of_a_new_topic(metadata, "t") == {1, 2}


async def test_a_replica_that_is_away_is_cordoned_and_a_broker_that_nobody_knows_is_refused() -> None:
    metadata = await Metadata().register(1, 2)
    await metadata.create(NewTopic("t", assignments=(Assignment(0, (1, 2)),)))
    await metadata.store.txn([], [Delete(broker_key(2))])
    await metadata.refresh()
    await cordon(metadata, "2")
    assert metadata.image.cordoned_brokers() == [2]
    with pytest.raises(ProtocolError, match="No node with id 9 found"):
        await cordon(metadata, "9")


@pytest.mark.parametrize(("broker", "value"), [("1", "/data-1"), ("", "*")])
async def test_single_directories_and_all_brokers_at_once_are_refused(broker: str, value: str) -> None:
    metadata = await Metadata().register(1)
    with pytest.raises(ProtocolError, match="cordoned"):
        await cordon(metadata, broker, value)


def test_a_broker_is_not_cordoned_at_its_start() -> None:
    with pytest.raises(InvalidSetting, match="`cordwood cluster cordon` does so"):
        BrokerSettings.from_texts({NAME: "*"})


async def test_a_broker_that_is_forgotten_is_not_cordoned_when_its_number_comes_back() -> None:
    metadata = await Metadata().register(1, 2)
    await cordon(metadata, "2")
    await metadata.store.txn([], [Delete(broker_key(2)), Put(storage_key(2), b'"disk"')])
    await metadata.refresh()
    for step in plan_forgetting(metadata.image, 2):
        assert (await metadata.store.txn(*step)).succeeded
    assert await metadata.store.get(broker_config_key(2)) is None
