"""In the consumer protocol the broker says when the next heartbeat is due: sooner to who waits for partitions."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.node.speaking import create_topic, error

from cordwood.simulation.world import World
from cordwood.wire.apis import ApiKey

INTERVAL_MS = 1000
JOINING = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 5000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=3, settings={"group.consumer.heartbeat.interval.ms": str(INTERVAL_MS)}).start()
    create_topic(world, partitions=2)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    yield world
    world.kill()


def beat(world: World, member_id: str, **values: Any) -> Any:
    answer = world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id=member_id, **values)
    assert error(answer.error_code) == "NONE"
    return answer


def test_who_waits_for_partitions_of_others_is_told_to_ask_sooner(world: World) -> None:
    first = beat(world, "first", **JOINING)
    assert first.heartbeat_interval_ms == INTERVAL_MS

    second = beat(world, "second", **JOINING)
    assert second.heartbeat_interval_ms == INTERVAL_MS // 4
    assert beat(world, "second", member_epoch=second.member_epoch).heartbeat_interval_ms == INTERVAL_MS // 4

    told = beat(world, "first", member_epoch=first.member_epoch)
    assert told.heartbeat_interval_ms == INTERVAL_MS, "it waits for nobody"
    kept = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in told.assignment.topic_partitions]
    assert [len(each["partitions"]) for each in kept] == [1]
    beat(world, "first", member_epoch=told.member_epoch, topic_partitions=kept)

    given = beat(world, "second", member_epoch=second.member_epoch)
    assert [len(each.partitions) for each in given.assignment.topic_partitions] == [1]
    assert given.heartbeat_interval_ms == INTERVAL_MS


def test_the_interval_stays_above_nothing() -> None:
    world = World(seed=3, settings={"group.consumer.heartbeat.interval.ms": "1"}).start()
    create_topic(world, partitions=2)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    beat(world, "first", **JOINING)
    assert beat(world, "second", **JOINING).heartbeat_interval_ms == 1
    world.kill()
