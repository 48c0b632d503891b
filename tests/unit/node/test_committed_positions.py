"""FindCoordinator, OffsetCommit, OffsetFetch: positions of readers that assign partitions to themselves."""

from typing import Any

import pytest
from simulation.world.exchange import State
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, error

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicId
from cordwood.wire.apis import ApiKey

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
GROUP_KEY, TRANSACTION_KEY = 0, 1
NONE = "NONE"


def topic_fields(topic: TopicImage | str, by_id: bool) -> dict[str, Any]:
    if isinstance(topic, str):
        return {"name": topic}
    return {"topic_id": topic.topic_id} if by_id else {"name": topic.name}


def commit_values(
    topic: TopicImage | str, *offsets: int, group: str = "group", version: int = 9, **options: Any
) -> dict[str, Any]:
    """One position for each of the partitions from 0 on."""
    metadata = options.pop("metadata", "note")
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        | ({"committed_leader_epoch": 3} if version >= 6 else {})
        for index, offset in enumerate(offsets)
    ]
    entry = topic_fields(topic, version >= 10) | {"partitions": partitions}
    return {"group_id": group, "topics": [entry]} | options


def commit(world: World, topic: TopicImage | str, *offsets: int, version: int = 9, **options: Any) -> list[str]:
    values = commit_values(topic, *offsets, version=version, **options)
    answer = world.ask(ApiKey.OFFSET_COMMIT, version, **values)
    return [error(part.error_code) for part in answer.topics[0].partitions]


def fetch_positions(
    world: World, topics: list[tuple[TopicImage | str, list[int]]] | None, version: int = 9, group: str = "group"
) -> tuple[str, list[tuple[Any, int, int, str | None, str]]]:
    """(error of the group, [(topic, partition, offset, metadata, error)])."""
    asked = None
    if topics is not None:
        asked = [topic_fields(topic, version >= 10) | {"partition_indexes": indexes} for topic, indexes in topics]
    answer: Any
    if version >= 8:
        answer = world.ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": group, "topics": asked}]).groups[0]
    else:
        answer = world.ask(ApiKey.OFFSET_FETCH, version, group_id=group, topics=asked)
    return error(answer.error_code), [
        (
            topic.topic_id if version >= 10 else topic.name,
            part.partition_index,
            part.committed_offset,
            part.metadata,
            error(part.error_code),
        )
        for topic in answer.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(7))
def test_the_broker_is_the_coordinator_of_every_group(world: World, version: int) -> None:
    if version >= 4:
        answer = world.ask(ApiKey.FIND_COORDINATOR, version, key_type=GROUP_KEY, coordinator_keys=["a", ""])
        found = [(each.key, each.node_id, each.host, each.error_code) for each in answer.coordinators]
        assert found == [("a", 1, "simulated", 0), ("", 1, "simulated", 0)]
    else:
        answer = world.ask(ApiKey.FIND_COORDINATOR, version, key_type=GROUP_KEY, key="a")
        assert (answer.error_code, answer.node_id, answer.port) == (0, 1, 9092)
    assert CONSUMER_OFFSETS_TOPIC in world.node.hosted.topics


def test_the_coordinator_of_transactions_needs_no_topic_of_positions(world: World) -> None:
    answer = world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=TRANSACTION_KEY, coordinator_keys=["a"])
    assert error(answer.coordinators[0].error_code) == NONE
    assert CONSUMER_OFFSETS_TOPIC not in world.node.hosted.topics


@pytest.mark.parametrize("commit_version", COMMIT_VERSIONS)
@pytest.mark.parametrize("fetch_version", FETCH_VERSIONS)
def test_a_position_committed_in_any_version_is_fetched_in_any(
    world: World, commit_version: int, fetch_version: int
) -> None:
    topic = create_topic(world, partitions=2)
    assert commit(world, topic, 5, 6, version=commit_version) == [NONE, NONE]
    name = topic.topic_id if fetch_version >= 10 else "orders"
    expected = (NONE, [(name, 1, 6, "note", NONE), (name, 0, 5, "note", NONE)])
    assert fetch_positions(world, [(topic, [1, 0])], fetch_version) == expected


@pytest.mark.parametrize("version", FETCH_VERSIONS[1:])
def test_null_topics_mean_every_position_of_the_group(world: World, version: int) -> None:
    orders, returns = create_topic(world), create_topic(world, "returns")
    commit(world, orders, 5)
    commit(world, returns, 7)
    commit(world, returns, 8, group="other")
    code, found = fetch_positions(world, None, version)
    names = [topic.topic_id if version >= 10 else topic.name for topic in (orders, returns)]
    assert (code, found) == (NONE, [(names[0], 0, 5, "note", NONE), (names[1], 0, 7, "note", NONE)])


def test_no_position_is_minus_one(world: World) -> None:
    create_topic(world)
    assert fetch_positions(world, [("orders", [0, 9])]) == (
        NONE,
        [("orders", 0, -1, "", NONE), ("orders", 9, -1, "", NONE)],
    )


def test_the_last_commit_wins_and_epochs_and_metadata_are_kept(world: World) -> None:
    topic = create_topic(world)
    commit(world, topic, 5, metadata="first")
    commit(world, topic, 3, metadata=None)
    groups = [{"group_id": "group", "topics": [{"name": "orders", "partition_indexes": [0]}]}]
    part = world.ask(ApiKey.OFFSET_FETCH, 8, groups=groups).groups[0].topics[0].partitions[0]
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata) == (3, 3, "")


def test_several_groups_are_fetched_at_once_each_with_its_own_error(world: World) -> None:
    topic = create_topic(world)
    for group, offset in (("a", 1), ("b", 2)):
        commit(world, topic, offset, group=group)
    asked = [{"group_id": group, "topics": None} for group in ("a", "", "b")]
    answer = world.ask(ApiKey.OFFSET_FETCH, 8, groups=asked)
    assert [error(group.error_code) for group in answer.groups] == [NONE, "INVALID_GROUP_ID", NONE]
    found = [[part.committed_offset for topic in group.topics for part in topic.partitions] for group in answer.groups]
    assert found == [[1], [], [2]]
    assert world.ask(ApiKey.OFFSET_FETCH, 8, groups=[]).groups == []


def test_what_does_not_exist_is_refused_and_the_rest_is_committed(world: World) -> None:
    create_topic(world)
    assert commit(world, "orders", 5, 6) == [NONE, "UNKNOWN_TOPIC_OR_PARTITION"]
    assert commit(world, "nowhere", 5) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 5


def test_unknown_topic_ids_are_told(world: World) -> None:
    topic = create_topic(world)
    unknown = {"topic_id": TopicId(int=9), "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    known = {"topic_id": topic.topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    answer = world.ask(ApiKey.OFFSET_COMMIT, 10, group_id="group", topics=[unknown, known])
    assert [error(each.partitions[0].error_code) for each in answer.topics] == ["UNKNOWN_TOPIC_ID", NONE]
    asked = [{"topic_id": each["topic_id"], "partition_indexes": [0]} for each in (unknown, known)]
    group = world.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "group", "topics": asked}]).groups[0]
    assert [(error(each.partitions[0].error_code), each.partitions[0].committed_offset) for each in group.topics] == [
        ("UNKNOWN_TOPIC_ID", -1),
        (NONE, 1),
    ]


def test_members_groups_without_a_name_and_long_notes_are_refused(world: World) -> None:
    topic = create_topic(world)
    assert commit(world, topic, 5, group="") == ["INVALID_GROUP_ID"]
    # In a group without members a generation is nobody's; before its first commit there is not even a group.
    assert commit(world, topic, 5, generation_id_or_member_epoch=3) == ["GROUP_ID_NOT_FOUND"]
    assert commit(world, topic, 5) == ["NONE"]
    assert commit(world, topic, 5, generation_id_or_member_epoch=3) == ["UNKNOWN_MEMBER_ID"]
    assert commit(world, topic, 5, generation_id_or_member_epoch=3, member_id="somebody") == ["UNKNOWN_MEMBER_ID"]
    assert commit(world, topic, 5, metadata="x" * 4097) == ["OFFSET_METADATA_TOO_LARGE"]
    assert commit(world, topic, 6, metadata="x" * 4096) == [NONE]


# When, and what holds


def test_a_commit_is_answered_when_it_is_durable(world: World) -> None:
    topic = create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 0, key="group")
    exchange = world.connect().request(ApiKey.OFFSET_COMMIT, 9, commit_values(topic, 5))
    reader = world.connect().request(
        ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "group", "topics": None}], "require_stable": False}
    )
    while steps := [do for name, do in world.steps() if not name.startswith(("sync", "flush"))]:
        world.do(steps[0])
    assert (exchange.state, reader.state) == (State.WAITING, State.WAITING)
    world.settle()
    assert exchange.answered
    assert reader.answer.groups[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_does_not_become_durable_is_a_coordinator_that_is_not_there(world: World) -> None:
    topic = create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 0, key="group")
    exchange = world.connect().request(ApiKey.OFFSET_COMMIT, 9, commit_values(topic, 5))
    for _ in range(12):
        while steps := [do for name, do in world.steps() if not name.startswith(("sync", "flush"))]:
            world.do(steps[0])
        world.clock.advance(500)
    assert error(exchange.answer.topics[0].partitions[0].error_code) == "COORDINATOR_NOT_AVAILABLE"


def test_a_full_disk_is_a_coordinator_that_is_not_there_and_nothing_is_committed(world: World) -> None:
    topic = create_topic(world)
    commit(world, topic, 5)
    world.disk.platter.free_for_appends = 0
    assert commit(world, topic, 6) == ["COORDINATOR_NOT_AVAILABLE"]
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 5


@pytest.mark.parametrize("ending", ["stop", "kill", "lose_power"])
def test_positions_outlive_the_broker(world: World, ending: str) -> None:
    topic = create_topic(world)
    for offset in range(40):
        commit(world, topic, offset)
    getattr(world, ending)()
    world.start()
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 39


def test_commits_do_not_overtake_each_other_while_their_topic_comes_into_being(world: World) -> None:
    """Seed 7: the later commit was written first, because the topic was there before those who waited were told."""
    topic = create_topic(world)
    connection = world.connect()
    connection.request(ApiKey.OFFSET_COMMIT, 9, commit_values(topic, 1))
    world.do(dict(world.steps())["request"])
    while CONSUMER_OFFSETS_TOPIC not in world.node.hosted.topics:
        assert world.life is not None
        world.do(world.life.loop.step if world.life.loop.has_ready else world.life.store.end_next_call)
    connection.request(ApiKey.OFFSET_COMMIT, 9, commit_values(topic, 2))
    world.do(dict(world.steps())["request"])
    world.settle()
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 2


def test_positions_go_with_their_topic_and_a_new_one_of_its_name_starts_afresh(world: World) -> None:
    create_topic(world)
    commit(world, "orders", 5)
    delete_topic(world, "orders")
    create_topic(world)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == -1
    world.kill()
    world.start()
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == -1


def held(world: World, *groups: str) -> list[str]:
    """The groups of which the coordinator still has positions, whether it would show them or not."""
    found: list[str] = []
    world.node.groups.visit_shards(
        lambda shard: found.extend(group for group in groups if shard.positions.of_group(group)), lambda error: None
    )
    return sorted(found)


def test_when_a_topic_is_deleted_one_shard_after_the_other_forgets_it_and_none_shows_it() -> None:
    world = World(1, {"offsets.topic.num.partitions": "8"}).start()
    groups = [f"group-{number}" for number in range(20)]

    def seen() -> dict[str, list[int]]:
        shown = {group: offsets_in(fetch_positions(world, None, group=group)) for group in groups}
        return {group: offsets for group, offsets in shown.items() if offsets}

    for name in ("orders", "refunds", "other"):
        create_topic(world, name)
        for group in groups:
            assert commit(world, name, 5, group=group) == [NONE]
    delete_topic(world, "orders")
    delete_topic(world, "refunds")
    assert seen() == {group: [5] for group in groups}, "only those in the other topic"
    delete_topic(world, "other")
    assert len(held(world, *groups)) > len(groups) // 2, "no time has passed"
    assert seen() == {}
    for name in ("orders", "refunds", "other"):
        create_topic(world, name)
    assert seen() == {}
    commit(world, "orders", 2, group=groups[7])
    for _ in range(2):
        assert seen() == {groups[7]: [2]}
        world.advance(100)
        assert held(world, *groups) == [groups[7]]
        world.kill()
        world.start()


def test_positions_that_do_not_say_which_topic_they_are_in_go_with_it_and_those_in_a_new_one_stay(world: World) -> None:
    """A client that says for how long its position is to be kept gets a record without a place for the topic's id."""
    create_topic(world)
    old = {"version": 2, "retention_time_ms": 1_000_000_000}
    groups = [f"group-{number}" for number in range(6)]
    for number, group in enumerate(groups):
        commit(world, "orders", 5, group=group, **(old if number % 2 else {}))
    delete_topic(world, "orders")
    assert [offsets_in(fetch_positions(world, None, group=group)) for group in groups] == [[]] * 6
    create_topic(world)
    for group in groups:
        commit(world, "orders", 7, group=group, **old)
    world.advance(1_000)
    assert [offsets_in(fetch_positions(world, None, group=group)) for group in groups] == [[7]] * 6


def settle_without_syncs(world: World) -> None:
    while steps := [do for name, do in world.steps() if not name.startswith(("sync", "flush"))]:
        world.do(steps[0])


@pytest.mark.parametrize("asked", [[("orders", [0])], None])
def test_a_new_topic_starts_afresh_even_if_power_was_lost_before_the_old_ones_positions_were_gone_for_good(
    world: World, asked: list[tuple[TopicImage | str, list[int]]] | None
) -> None:
    create_topic(world)
    commit(world, "orders", 5)
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    settle_without_syncs(world)
    assert "orders" not in world.node.hosted.topics
    world.lose_power()
    world.start()
    assert "orders" not in world.node.hosted.topics
    group = world.node.groups
    held: list[Any] = []
    group.visit_shards(lambda shard: held.extend(shard.positions.of_group("group")), lambda error: None)
    world.settle()
    assert held, "the tombstones were lost with the power, else this tests nothing"
    assert offsets_in(fetch_positions(world, asked)) in ([], [-1])
    create_topic(world)
    assert offsets_in(fetch_positions(world, asked)) in ([], [-1])
    commit(world, "orders", 2)
    assert offsets_in(fetch_positions(world, asked)) == [2]
    world.kill()
    world.start()
    assert offsets_in(fetch_positions(world, asked)) == [2]


def offsets_in(found: tuple[str, list[tuple[Any, int, int, str | None, str]]]) -> list[int]:
    return [offset for _, _, offset, _, _ in found[1]]


def test_what_is_left_of_positions_in_topics_that_are_gone_goes_by_the_clock(world: World) -> None:
    create_topic(world)
    commit(world, "orders", 5)
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    settle_without_syncs(world)
    world.lose_power()
    world.start()
    world.advance(world.settings.offsets_retention_check_interval_ms + 1)
    assert world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups == []


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_who_names_a_generation_of_a_group_that_is_not_there_is_told_so(world: World, version: int) -> None:
    topic = create_topic(world)
    author = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    expected = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    assert commit(world, topic, 5, version=version, **author) == [expected]
    commit(world, topic, 5)
    assert commit(world, topic, 6, version=version, **author) == ["UNKNOWN_MEMBER_ID"]


def test_a_commit_that_waited_while_its_topic_was_deleted_is_told_so(world: World) -> None:
    """Seed 20098: it was written after the topic's positions had been removed, and a new topic began with it."""
    topic = create_topic(world)
    exchange = world.connect().request(ApiKey.OFFSET_COMMIT, 9, commit_values(topic, 5))
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    for _ in range(2):
        world.do(dict(world.steps())["request"])
    world.settle()
    assert error(exchange.answer.topics[0].partitions[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    create_topic(world)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == -1


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_position_that_an_old_client_gave_a_time_to_live_has_that(world: World, version: int) -> None:
    create_topic(world)
    check_ms = world.settings.offsets_retention_check_interval_ms
    lives_ms = {"retention_time_ms": check_ms * 3 // 2} if version <= 4 else {}
    commit(world, world.node.image.topics["orders"], 5, version=version, **lives_ms)
    world.advance(check_ms)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 5
    world.advance(check_ms)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == (-1 if version <= 4 else 5)


def test_positions_expire_when_nobody_renews_them(world: World) -> None:
    create_topic(world)
    commit(world, "orders", 5)
    minute_ms = 60_000
    kept_ms = world.settings.offsets_retention_minutes * minute_ms
    world.clock.advance(kept_ms - minute_ms)
    world.advance(0)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == 5
    world.clock.advance(20 * minute_ms)
    world.advance(0)
    assert fetch_positions(world, [("orders", [0])])[1][0][2] == -1


def test_expiry_that_is_slower_than_its_interval_does_not_pile_up(world: World) -> None:
    topic = create_topic(world)
    commit(world, topic, 5)
    waiting = world.node.groups.positions._in_turns._waiting
    for _ in range(100):
        world.node.groups.positions.expire()
    assert len(waiting) == 1
    world.settle()
    assert not waiting
    world.node.groups.positions.expire()
    assert len(waiting) == 1


def test_positions_beyond_the_limit_are_refused_and_known_ones_move() -> None:
    """Without a limit each group could keep a position, with metadata, in every partition."""
    world = World(seed=1, settings={"positions.max": "3"}).start()
    topic = create_topic(world, "orders", 4)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="group", key_type=GROUP_KEY)
    refused = "INVALID_COMMIT_OFFSET_SIZE"
    assert commit(world, topic, 1, 1) == [NONE, NONE]
    assert commit(world, topic, 1, 1, group="other") == [NONE, refused]
    assert commit(world, topic, 2, 2) == [NONE, NONE]
    assert commit(world, topic, 3, metadata="x" * 256) == [refused], "metadata takes memory, too"
    assert [offset for _, _, offset, _, _ in fetch_positions(world, None)[1]] == [2, 2]
    delete_topic(world, "orders")
    world.advance(1000)
    assert commit(world, create_topic(world, "orders", 4), 1, 1, 1) == [NONE, NONE, NONE]
    world.kill()


@pytest.mark.parametrize("committed", [True, False])
def test_positions_of_open_transactions_count(committed: bool) -> None:
    """Without a limit one transaction could hold positions of any number of groups, and keep them all."""
    world = World(seed=1, settings={"positions.max": "3"}).start()
    topic = create_topic(world, "orders", 4)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="group", key_type=GROUP_KEY)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="t", key_type=TRANSACTION_KEY)
    new = {"producer_id": -1, "producer_epoch": -1}
    found = world.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout_ms=60_000, **new)
    writer = {"transactional_id": "t", "producer_id": found.producer_id, "producer_epoch": found.producer_epoch}

    def commit_in_transaction(group: str, *offsets: int) -> list[str]:
        world.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **writer, group_id=group)
        values = commit_values(topic, *offsets, group=group, metadata="")
        answer = world.ask(
            ApiKey.TXN_OFFSET_COMMIT, 3, **writer, generation_id_or_member_epoch=-1, member_id="", **values
        )
        return [error(part.error_code) for part in answer.topics[0].partitions]

    refused = "INVALID_COMMIT_OFFSET_SIZE"
    assert commit_in_transaction("group", 1, 1) == [NONE, NONE]
    assert commit_in_transaction("other", 1, 1) == [NONE, refused]
    assert commit_in_transaction("group", 2, 2, 2) == [NONE, NONE, refused], "its own positions move"
    assert commit(world, topic, 1, group="third") == [refused]
    world.ask(ApiKey.END_TXN, 3, **writer, committed=committed)
    world.advance(1000)
    assert commit(world, topic, 1, group="third") == [refused if committed else NONE]
    world.kill()
