"""Floods of what no good member sends: each is told the right code, nothing is written, and nothing is kept."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error

from cordwood.groups.classic.group import MAX_NAME_BYTES
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.wire.apis import ApiKey

FLOOD = 100
GROUPS_MAX = 20
SUBSCRIPTION = struct.pack(">hih", 0, 1, 6) + b"orders" + struct.pack(">i", -1)
MEGABYTE = bytes(1 << 20)
SESSION_MS = 10_000


def joining(group: str, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 1000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    } | changes


def committing(group: str, metadata: str = "", **author: Any) -> dict[str, Any]:
    position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
    return {"group_id": group, "topics": [{"name": "orders", "partitions": [position]}]} | author


def beating(group: str, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": "stranger",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    } | changes


def stranger(group: str) -> dict[str, Any]:
    return {"group_id": group, "generation_id": 3, "member_id": "stranger", "group_instance_id": None}


def code_in(answer: Any) -> str:
    if hasattr(answer, "topics") and answer.topics:
        return error(answer.topics[0].partitions[0].error_code)
    if getattr(answer, "members", None) and not answer.error_code and hasattr(answer.members[0], "error_code"):
        return error(answer.members[0].error_code)
    return error(answer.error_code)


@pytest.fixture
def crowded(world: World) -> World:
    """A node that takes few groups, with its coordinator ready."""
    world.kill()
    small = World(seed=2, settings={"groups.max": str(GROUPS_MAX), "group.initial.rebalance.delay.ms": "0"}).start()
    create_topic(small)
    small.ask(ApiKey.FIND_COORDINATOR, 2, key="anybody", key_type=0)
    return small


def written(world: World) -> int:
    """How many records there are of groups and positions."""
    opened = [partition.opened for partition in world.node.hosted.led(CONSUMER_OFFSETS_TOPIC)]
    return sum(log.offsets.end for log in opened if log is not None)


def kept(world: World) -> tuple[int, int]:
    """Groups in memory, and alarms."""
    shards = world.node.groups.shards.log.loaded_shards()
    groups = sum(len(shard.machine.groups) + len(shard.machine.consumer_groups) for shard in shards)
    return groups + sum(len(shard.machine.positions) for shard in shards), sum(len(shard.alarms) for shard in shards)


LONG_NAME = "x" * (MAX_NAME_BYTES + 1)


@pytest.mark.parametrize(
    ("key", "version", "values", "expected"),
    [
        (ApiKey.JOIN_GROUP, 5, lambda group: joining(group, member_id="stranger"), "UNKNOWN_MEMBER_ID"),
        (ApiKey.JOIN_GROUP, 5, lambda group: joining(group, session_timeout_ms=1), "INVALID_SESSION_TIMEOUT"),
        (ApiKey.JOIN_GROUP, 5, lambda group: joining(group, protocols=[]), "INCONSISTENT_GROUP_PROTOCOL"),
        (ApiKey.JOIN_GROUP, 5, lambda group: joining(group, group_instance_id=LONG_NAME), "INVALID_REQUEST"),
        (
            ApiKey.JOIN_GROUP,
            5,
            lambda group: joining(group, protocols=[{"name": "range", "metadata": MEGABYTE}] * 2),
            "INVALID_REQUEST",
        ),
        (
            ApiKey.JOIN_GROUP,
            5,
            lambda group: joining(group, protocols=[{"name": f"p{n}", "metadata": b""} for n in range(200)]),
            "INVALID_REQUEST",
        ),
        (ApiKey.SYNC_GROUP, 3, lambda group: stranger(group) | {"assignments": []}, "UNKNOWN_MEMBER_ID"),
        (ApiKey.HEARTBEAT, 3, stranger, "UNKNOWN_MEMBER_ID"),
        (
            ApiKey.LEAVE_GROUP,
            3,
            lambda group: {"group_id": group, "members": [{"member_id": "stranger", "group_instance_id": None}]},
            "UNKNOWN_MEMBER_ID",
        ),
        (ApiKey.OFFSET_COMMIT, 7, lambda group: committing(group, "x" * 4097), "OFFSET_METADATA_TOO_LARGE"),
        (
            ApiKey.OFFSET_COMMIT,
            9,
            lambda group: committing(group, generation_id_or_member_epoch=3, member_id="stranger"),
            "GROUP_ID_NOT_FOUND",
        ),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, lambda group: beating(group, member_epoch=3), "GROUP_ID_NOT_FOUND"),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, lambda group: beating(group, member_id=LONG_NAME), "INVALID_REQUEST"),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            lambda group: beating(group, subscribed_topic_names=[f"{n:030000}" for n in range(40)]),
            "INVALID_REQUEST",
        ),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            lambda group: beating(group, server_assignor="magic"),
            "UNSUPPORTED_ASSIGNOR",
        ),
    ],
)
def test_what_is_refused_leaves_nothing_behind_however_often_and_in_whose_name(
    crowded: World, key: ApiKey, version: int, values: Any, expected: str
) -> None:
    crowded.ask(ApiKey.OFFSET_FETCH, 7, group_id="anybody", topics=None)
    records, timers = written(crowded), len(crowded.node.loop.timers._heap)
    for number in range(FLOOD):
        assert code_in(crowded.ask(key, version, **values(f"group-{number}"))) == expected
    assert kept(crowded) == (0, 0)
    assert written(crowded) == records
    assert len(crowded.node.loop.timers._heap) <= timers + 2
    crowded.kill()


def test_those_who_ask_for_an_id_and_never_come_back_take_room_for_a_while_only(crowded: World) -> None:
    codes = [code_in(crowded.ask(ApiKey.JOIN_GROUP, 5, **joining(f"group-{number}"))) for number in range(FLOOD)]
    assert codes.count("MEMBER_ID_REQUIRED") == GROUPS_MAX
    assert codes.count("GROUP_MAX_SIZE_REACHED") == FLOOD - GROUPS_MAX
    assert kept(crowded) == (GROUPS_MAX, GROUPS_MAX)
    crowded.advance(SESSION_MS)
    assert kept(crowded) == (0, 0)
    crowded.kill()


def test_a_group_takes_no_more_members_than_it_may_have_nor_ids_for_more() -> None:
    world = World(seed=3, settings={"group.max.size": "5", "group.consumer.max.size": "5"}).start()
    create_topic(world)
    codes = [code_in(world.ask(ApiKey.JOIN_GROUP, 5, **joining("classic"))) for _ in range(FLOOD)]
    assert (codes.count("MEMBER_ID_REQUIRED"), codes.count("GROUP_MAX_SIZE_REACHED")) == (5, FLOOD - 5)
    names = [f"m{number}" for number in range(FLOOD)]
    beats = [world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beating("new", member_id=name)) for name in names]
    assert [code_in(beat) for beat in beats] == ["NONE"] * 5 + ["GROUP_MAX_SIZE_REACHED"] * (FLOOD - 5)
    world.kill()


def test_a_member_of_the_past_changes_nothing_however_often_it_speaks(crowded: World) -> None:
    """Stale generations and epochs: refused each time, and the group goes on as it was."""
    first = crowded.ask(ApiKey.JOIN_GROUP, 3, **joining("g"))
    me = {"group_id": "g", "member_id": first.member_id, "generation_id": first.generation_id}
    share = [{"member_id": first.member_id, "assignment": b"all"}]
    assert code_in(crowded.ask(ApiKey.SYNC_GROUP, 3, **me, assignments=share)) == "NONE"
    again = crowded.ask(ApiKey.JOIN_GROUP, 3, **joining("g", member_id=first.member_id))
    assert again.generation_id == first.generation_id + 1
    now = me | {"generation_id": again.generation_id}
    assert code_in(crowded.ask(ApiKey.SYNC_GROUP, 3, **now, assignments=share)) == "NONE"
    records, before = written(crowded), kept(crowded)
    author: dict[str, Any] = {"generation_id_or_member_epoch": first.generation_id, "member_id": first.member_id}
    for _ in range(FLOOD):
        assert code_in(crowded.ask(ApiKey.HEARTBEAT, 3, **me)) == "ILLEGAL_GENERATION"
        assert code_in(crowded.ask(ApiKey.SYNC_GROUP, 3, **me, assignments=share)) == "ILLEGAL_GENERATION"
        assert code_in(crowded.ask(ApiKey.OFFSET_COMMIT, 7, **committing("g", **author))) == "ILLEGAL_GENERATION"
    assert (written(crowded), kept(crowded)) == (records, before)
    assert code_in(crowded.ask(ApiKey.HEARTBEAT, 3, **now)) == "NONE"
    crowded.kill()


def test_an_assignment_that_no_record_can_hold_is_refused_and_the_group_can_try_again(crowded: World) -> None:
    joined = crowded.ask(ApiKey.JOIN_GROUP, 3, **joining("g"))
    me = {"group_id": "g", "member_id": joined.member_id, "generation_id": joined.generation_id}
    records = written(crowded)
    huge = [{"member_id": joined.member_id, "assignment": MEGABYTE * 2}]
    assert code_in(crowded.ask(ApiKey.SYNC_GROUP, 3, **me, assignments=huge)) == "UNKNOWN_SERVER_ERROR"
    assert written(crowded) == records
    again = crowded.ask(ApiKey.JOIN_GROUP, 3, **joining("g", member_id=joined.member_id))
    now = me | {"generation_id": again.generation_id}
    share = [{"member_id": joined.member_id, "assignment": b"all"}]
    assert code_in(crowded.ask(ApiKey.SYNC_GROUP, 3, **now, assignments=share)) == "NONE"
    crowded.kill()


ROOM = 1 << 20


@pytest.fixture
def small_world() -> Iterator[World]:
    world = World(seed=1, settings={"groups.members.max.bytes": str(ROOM), "group.initial.rebalance.delay.ms": "0"})
    yield world.start()
    world.kill()


def kept_bytes(world: World) -> int:
    return ROOM - world.node.groups.shards.room_for_members()


def test_members_of_all_groups_have_the_broker_keep_a_bounded_number_of_bytes(small_world: World) -> None:
    """Subscriptions of a megabyte each, in groups of one, were kept for the half hour of their sessions."""
    world = small_world
    create_topic(world, "orders")
    large = [{"name": "range", "metadata": bytes(300_000)}]
    answers = [
        world.ask(ApiKey.JOIN_GROUP, 3, **joining(f"g{number}", protocols=large, session_timeout_ms=1_800_000))
        for number in range(10)
    ]
    assert [error(answer.error_code) for answer in answers] == ["NONE"] * 3 + ["GROUP_MAX_SIZE_REACHED"] * 7
    assert ROOM // 2 < kept_bytes(world) <= ROOM
    again = world.ask(ApiKey.JOIN_GROUP, 3, **joining("g0", member_id=answers[0].member_id))
    assert error(again.error_code) == "NONE"
    assert world.ask(ApiKey.JOIN_GROUP, 3, **joining("small")).error_code == 0
    refused = world.ask(
        ApiKey.JOIN_GROUP, 3, **joining("g1", member_id=answers[1].member_id, protocols=[large[0], large[0]])
    )
    assert error(refused.error_code) == "GROUP_MAX_SIZE_REACHED"
    for number, answer in enumerate(answers[:3]):
        world.ask(ApiKey.LEAVE_GROUP, 1, group_id=f"g{number}", member_id=answer.member_id)
    world.advance(SESSION_MS + 300_000)
    assert kept_bytes(world) == 0


def test_members_of_the_consumer_protocol_count_as_well(small_world: World) -> None:
    world = small_world
    create_topic(world, "orders")
    names = [f"{number:0200}" for number in range(2000)]
    codes = []
    for number in range(5):
        values = beating(f"g{number}", member_id=f"m{number}", subscribed_topic_names=names)
        codes.append(error(world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **values).error_code))
    assert codes == ["NONE"] * 2 + ["INVALID_REQUEST"] * 3
    assert ROOM // 2 < kept_bytes(world) <= ROOM
    for number in range(2):
        values = beating(f"g{number}", member_id=f"m{number}", member_epoch=-1)
        world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **values)
    assert kept_bytes(world) == 0
