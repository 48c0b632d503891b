"""A group goes on with the other protocol: it loses nothing by it."""

import struct
from typing import Any

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error

from cordwood.wire.apis import ApiKey

RETENTION_MS = 10 * 60_000
SESSION_MS = 20_000


def started(**settings: str) -> World:
    world = World(seed=3, settings={name.replace("_", "."): value for name, value in settings.items()}).start()
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    return world


def consumer_heartbeat(world: World, epoch: int, *, member_id: str = "m", joins: bool = False) -> Any:
    return world.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=["orders"] if joins else None,
        topic_partitions=[] if joins else None,
    )


def begin_to_join(world: World, *, version: int = 3, **values: Any) -> Exchange:
    asked = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 5000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return world.begin(ApiKey.JOIN_GROUP, version, **{**asked, **values})


def position(world: World) -> int:
    answer = world.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}], require_stable=False)
    return next((each.committed_offset for topic in answer.groups[0].topics for each in topic.partitions), -1)


def kinds(world: World) -> list[tuple[str, str]]:
    listed = world.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[]).groups
    return [(each.group_type, each.group_state) for each in listed]


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"session_timeout_ms": 1}, "INVALID_SESSION_TIMEOUT"),
        ({"version": 4}, "MEMBER_ID_REQUIRED"),
    ],
)
def test_who_asks_to_join_with_the_other_protocol_and_does_not_takes_no_position_with_him(
    asked: dict[str, Any], refusal: str
) -> None:
    world = started(
        offsets_retention_minutes="10",
        offsets_retention_check_interval_ms="60000",
        group_consumer_session_timeout_ms=str(10 * RETENTION_MS),
    )
    epoch = consumer_heartbeat(world, 0, joins=True).member_epoch
    entry = {"partition_index": 0, "committed_offset": 42, "committed_leader_epoch": -1, "committed_metadata": ""}
    world.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id="m",
        topics=[{"name": "orders", "partitions": [entry]}],
    )
    world.advance(2 * RETENTION_MS)
    consumer_heartbeat(world, -1)
    assert error(begin_to_join(world, **asked).answer.error_code) == refusal
    world.advance(RETENTION_MS - 60_000)
    assert position(world) == 42
    world.kill()
    world.start()
    world.advance(3 * 60_000)
    assert position(world) == -1
    world.kill()


def test_on_a_full_disk_a_group_stays_what_it_is() -> None:
    world = started(group_initial_rebalance_delay_ms="3000")
    consumer_heartbeat(world, 0, joins=True)
    consumer_heartbeat(world, -1)
    world.disk.platter.free_for_appends = 0
    refused = begin_to_join(world)
    assert error(refused.answer.error_code) == "COORDINATOR_NOT_AVAILABLE"
    world.disk.platter.free_for_appends = None
    assert kinds(world) == [("consumer", "Empty")]
    waiting = begin_to_join(world)
    assert kinds(world) == [("classic", "PreparingRebalance")]
    world.advance(3000)
    assert (error(waiting.answer.error_code), waiting.answer.generation_id) == ("NONE", 3)
    world.kill()


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_a_round_that_nobody_joins_ends_with_the_sessions_whatever_timeout_its_members_name(timeout_ms: int) -> None:
    """Static members came back with it, all others left, and the round began again for ever, in one turn."""
    world = started(group_initial_rebalance_delay_ms="0")

    def join(instance: str, member_id: str = "", rebalance_timeout_ms: int = 5000) -> Exchange:
        return begin_to_join(
            world,
            version=7,
            group_instance_id=instance,
            member_id=member_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )

    def sync(instance: str, exchange: Exchange) -> None:
        answer = exchange.answer
        world.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id="g",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            group_instance_id=instance,
            assignments=[{"member_id": each.member_id, "assignment": b"share"} for each in answer.members],
        )

    first = join("a")
    sync("a", first)
    second = join("b")
    first = join("a", first.answer.member_id)
    sync("a", first)
    sync("b", second)
    assert kinds(world) == [("classic", "Stable")]
    join("a", rebalance_timeout_ms=timeout_ms)
    gone = join("b", rebalance_timeout_ms=timeout_ms).answer.member_id
    leaving = [{"member_id": gone, "group_instance_id": "b"}]
    world.ask(ApiKey.LEAVE_GROUP, 3, group_id="g", members=leaving)
    world.advance(SESSION_MS - 1)
    assert kinds(world) == [("classic", "PreparingRebalance")]
    world.advance(SESSION_MS)
    assert kinds(world) == [("classic", "Empty")]
    world.kill()


def test_a_newcomer_that_asks_again_may_wait_as_long_for_its_first_round() -> None:
    world = started(group_initial_rebalance_delay_ms="0")
    leader = begin_to_join(world, rebalance_timeout_ms=4 * SESSION_MS).answer
    shares = [{"member_id": leader.member_id, "assignment": b"share"}]
    who = {"group_id": "g", "generation_id": leader.generation_id, "member_id": leader.member_id}
    world.ask(ApiKey.SYNC_GROUP, 1, **who, assignments=shares)
    asked = begin_to_join(world, version=4, rebalance_timeout_ms=4 * SESSION_MS).answer
    begin_to_join(world, version=4, member_id=asked.member_id, rebalance_timeout_ms=4 * SESSION_MS)
    again = begin_to_join(world, version=4, member_id=asked.member_id, rebalance_timeout_ms=4 * SESSION_MS)
    for _ in range(3):
        world.advance(SESSION_MS - 1000)
        assert error(world.ask(ApiKey.HEARTBEAT, 1, **who).error_code) == "REBALANCE_IN_PROGRESS"
    assert not again.ended
    world.kill()


def test_who_is_told_to_join_again_and_does_not_is_out_in_time_though_nobody_else_says_anything() -> None:
    """Its deadline was known, but the group's alarm was for the sessions, which are longer."""
    world = started(group_consumer_session_timeout_ms="600000")
    consumer_heartbeat(world, 0, joins=True)
    subscription = struct.pack(">hih", 0, 1, len("orders")) + b"orders" + struct.pack(">i", -1)
    protocols = [{"name": "range", "metadata": subscription}]
    joined = begin_to_join(world, session_timeout_ms=60_000, protocols=protocols).answer
    who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    world.ask(ApiKey.SYNC_GROUP, 1, **who, assignments=[])
    world.advance(10_000)
    consumer_heartbeat(world, 0, member_id="n", joins=True)
    told = []
    for _ in range(7):
        told.append(error(world.ask(ApiKey.HEARTBEAT, 1, **who).error_code))
        world.advance(1000)
    assert told[0] == "REBALANCE_IN_PROGRESS"
    assert told[-1] == "UNKNOWN_MEMBER_ID"
    world.kill()
