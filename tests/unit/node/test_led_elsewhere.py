"""Partitions that another broker leads: a node answers about them as Kafka does, whoever asks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.lines import Lines
from tests.unit.node.speaking import batch_of, create_topic, error, fetch, fetch_values, fill, only, produce
from tests.unit.node.two_brokers import ME, NOBODY, OTHER, elect, leadership, register

from cordwood.model.coordination import MAX_NAME_BYTES
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey

GROUP, TRANSACTION = 0, 1
EARLIEST = -2


@pytest.fixture
def world() -> Iterator[World]:
    world = World(
        seed=1, settings={"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    ).start()
    create_topic(world, partitions=2)
    find(world, GROUP)
    find(world, TRANSACTION)
    yield world
    world.kill()


def ask_produce(world: World, topic: str, index: int) -> int:
    return int(produce(world, topic, batch_of(world), index=index)[0].error_code)


def ask_fetch(world: World, topic: str, index: int) -> int:
    return int(only(fetch(world, (topic, index, 0))).error_code)


def ask_offsets(world: World, topic: str, index: int) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": index, "timestamp": EARLIEST}]}]
    answer = world.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=asked)
    return int(answer.topics[0].partitions[0].error_code)


def ask_epoch_end(world: World, topic: str, index: int) -> int:
    asked = [{"topic": topic, "partitions": [{"partition": index, "leader_epoch": 0}]}]
    answer = world.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=asked)
    return int(answer.topics[0].partitions[0].error_code)


def ask_delete_records(world: World, topic: str, index: int) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": index, "offset": 0}]}]
    answer = world.ask(ApiKey.DELETE_RECORDS, 2, topics=asked, timeout_ms=1000)
    return int(answer.topics[0].partitions[0].error_code)


def ask_producers(world: World, topic: str, index: int) -> int:
    answer = world.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [index]}])
    return int(answer.topics[0].partitions[0].error_code)


def ask_marker(world: World, topic: str, index: int) -> int:
    marker = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [index]}],
    }
    answer = world.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    return int(answer.markers[0].topics[0].partitions[0].error_code)


ASKED_OF_LEADERS = (
    ask_produce,
    ask_fetch,
    ask_offsets,
    ask_epoch_end,
    ask_delete_records,
    ask_marker,
)


@pytest.mark.parametrize("ask", ASKED_OF_LEADERS)
@pytest.mark.parametrize("replicas", [(OTHER, ME), (OTHER,)], ids=["follower", "no replica"])
@pytest.mark.parametrize("leader", [OTHER, NOBODY])
def test_only_the_leader_serves_a_partition(
    world: World, ask: Callable[[World, str, int], int], replicas: tuple[int, ...], leader: int
) -> None:
    assert error(ask(world, "orders", 0)) == "NONE"
    elect(world, "orders", leader, replicas=replicas)
    assert error(ask(world, "orders", 0)) == "NOT_LEADER_OR_FOLLOWER"
    assert error(ask(world, "orders", 1)) == "NONE"


@pytest.mark.parametrize("ask", [*ASKED_OF_LEADERS, ask_producers])
def test_whether_a_partition_exists_is_what_the_metadata_says(
    world: World, ask: Callable[[World, str, int], int]
) -> None:
    elect(world, "orders", OTHER, replicas=(OTHER,))
    elect(world, "orders", OTHER, replicas=(OTHER,), index=1)
    assert "orders" not in world.node.hosted.topics
    asked = [("orders", 0), ("orders", 2), ("orders", -1), ("nothing", 0)]
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert [error(ask(world, *name)) for name in asked] == ["NOT_LEADER_OR_FOLLOWER", unknown, unknown, unknown]


def test_every_replica_describes_its_producers(world: World) -> None:
    elect(world, "orders", OTHER, replicas=(OTHER, ME))
    assert error(ask_producers(world, "orders", 0)) == "NONE"
    elect(world, "orders", OTHER, replicas=(OTHER,))
    assert error(ask_producers(world, "orders", 0)) == "NOT_LEADER_OR_FOLLOWER"


def test_a_topic_id_is_known_by_the_metadata_too(world: World) -> None:
    orders = elect(world, "orders", OTHER, replicas=(OTHER,))
    assert error(only(fetch(world, (orders, 0, 0), version=13)).error_code) == "NOT_LEADER_OR_FOLLOWER"
    (answer,) = produce(world, orders, batch_of(world), version=13)
    assert error(answer.error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_a_partition_that_moves_here_is_served_with_the_records_that_it_has(world: World) -> None:
    fill(world, "orders", b"one")
    elect(world, "orders", OTHER)
    elect(world, "orders", ME, isr=(ME,))
    fill(world, "orders", b"two")
    part = only(fetch(world, ("orders", 0, 0)))
    assert part.high_watermark == 2
    assert world.node.hosted.leader("orders", 0).role.leader_epoch == leadership(world, "orders").epoch == 2


def test_a_new_replica_begins_as_a_follower_and_may_be_elected(world: World) -> None:
    elect(world, "orders", OTHER, replicas=(OTHER,))
    assert world.node.hosted.get("orders", 0) is None
    elect(world, "orders", OTHER, replicas=(OTHER, ME))
    follower = world.node.hosted.get("orders", 0)
    assert follower is not None
    assert not follower.role.leads
    elect(world, "orders", ME, isr=(ME,))
    fill(world, "orders", b"one")


# Coordinators


def find(world: World, key_type: int, version: int = 4) -> tuple[str, int, str]:
    answer = world.ask(ApiKey.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=["k"], key="k")
    found = answer.coordinators[0] if version >= 4 else answer
    return error(found.error_code), found.node_id, found.host


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    ("key_type", "topic"), [(GROUP, CONSUMER_OFFSETS_TOPIC), (TRANSACTION, TRANSACTION_STATE_TOPIC)]
)
def test_the_coordinator_is_the_leader_of_its_partition(world: World, key_type: int, topic: str, version: int) -> None:
    assert find(world, key_type, version) == ("NONE", ME, "simulated")
    elect(world, topic, OTHER)
    assert find(world, key_type, version) == ("NONE", OTHER, "broker-2")
    elect(world, topic, NOBODY)
    assert find(world, key_type, version) == ("COORDINATOR_NOT_AVAILABLE", -1, "")
    elect(world, topic, OTHER + 1)
    assert find(world, key_type, version) == ("COORDINATOR_NOT_AVAILABLE", -1, "")


def test_a_name_that_is_too_long_for_a_coordinator_is_not_looked_for(world: World) -> None:
    """The hash of a name is computed in the loop, letter by letter. An empty name has a coordinator, as in Kafka."""
    refused = {GROUP: "INVALID_GROUP_ID", TRANSACTION: "INVALID_REQUEST"}
    for key_type, code in refused.items():
        keys = ["k" * (MAX_NAME_BYTES + 1), ""]
        answer = world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=keys)
        assert [error(found.error_code) for found in answer.coordinators] == [code, "NONE"]


MEMBER = {"group_id": "g", "member_id": "m"}
GENERATION = {**MEMBER, "generation_id": 1}
EPOCH = {**MEMBER, "generation_id_or_member_epoch": 1}
JOINING = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "protocol_type": "consumer", "protocols": []}
POSITION = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
POSITIONS = [{"name": "orders", "partitions": [POSITION]}]
WRITER = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
V3 = {f"v3_and_below_{name}": value for name, value in WRITER.items()}

GROUP_REQUESTS: tuple[tuple[ApiKey, int, dict[str, Any], Callable[[Any], int]], ...] = (
    (ApiKey.JOIN_GROUP, 3, {**MEMBER, **JOINING}, lambda answer: answer.error_code),
    (ApiKey.SYNC_GROUP, 3, {**GENERATION, "assignments": []}, lambda answer: answer.error_code),
    (ApiKey.HEARTBEAT, 3, GENERATION, lambda answer: answer.error_code),
    (ApiKey.LEAVE_GROUP, 2, MEMBER, lambda answer: answer.error_code),
    (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
        | {"subscribed_topic_names": ["orders"]},
        lambda answer: answer.error_code,
    ),
    (
        ApiKey.OFFSET_COMMIT,
        8,
        {**EPOCH, "topics": POSITIONS},
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    (
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "g", "topics": None}]},
        lambda answer: answer.groups[0].error_code,
    ),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"]}, lambda answer: answer.groups[0].error_code),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": ["g"]}, lambda answer: answer.groups[0].error_code),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}, lambda answer: answer.results[0].error_code),
    (
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": "g", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
        lambda answer: answer.error_code,
    ),
    (
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {**EPOCH, **WRITER, "topics": POSITIONS},
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
)

TRANSACTION_REQUESTS: tuple[tuple[ApiKey, int, dict[str, Any], Callable[[Any], int]], ...] = (
    (
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": "t", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1},
        lambda answer: answer.error_code,
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {**V3, "v3_and_below_topics": [{"name": "orders", "partitions": [0]}]},
        lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**WRITER, "group_id": "g"}, lambda answer: answer.error_code),
    (ApiKey.END_TXN, 4, {**WRITER, "committed": True}, lambda answer: answer.error_code),
    (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["t"]},
        lambda answer: answer.transaction_states[0].error_code,
    ),
    (
        ApiKey.FAMILY_JOIN,
        0,
        {"family": "f", "batch_id": 0, "timeout_ms": 1000},
        lambda answer: answer.error_code,
    ),
    (
        ApiKey.FAMILY_DECIDE,
        1,
        {"family": "f", "batch_id": 0, "commit": False, "winners": [], "timeout_ms": 1000},
        lambda answer: answer.error_code,
    ),
)


def _name(request: Any) -> str:
    return request.name if isinstance(request, ApiKey) else ""


@pytest.mark.parametrize(("key", "version", "values", "code"), GROUP_REQUESTS, ids=_name)
def test_requests_of_groups_go_to_the_coordinator(
    world: World, key: ApiKey, version: int, values: dict[str, Any], code: Callable[[Any], int]
) -> None:
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    assert error(code(world.ask(key, version, **values))) == "NOT_COORDINATOR"


@pytest.mark.parametrize(("key", "version", "values", "code"), TRANSACTION_REQUESTS, ids=_name)
def test_requests_of_transactions_go_to_the_coordinator(
    world: World, key: ApiKey, version: int, values: dict[str, Any], code: Callable[[Any], int]
) -> None:
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    assert error(code(world.ask(key, version, **values))) == "NOT_COORDINATOR"


def test_a_coordinator_knows_partitions_that_are_led_elsewhere(world: World) -> None:
    elect(world, "orders", OTHER, replicas=(OTHER,))
    values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": POSITIONS}
    committed = world.ask(ApiKey.OFFSET_COMMIT, 8, **values)
    assert error(committed.topics[0].partitions[0].error_code) == "NONE"
    fetched = world.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}], require_stable=False)
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 1
    begun = world.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id="t",
        transaction_timeout_ms=1000,
        producer_id=-1,
        producer_epoch=-1,
    )
    who = {**V3, "v3_and_below_producer_id": begun.producer_id, "v3_and_below_producer_epoch": begun.producer_epoch}
    added = world.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=[{"name": "orders", "partitions": [0]}]
    )
    assert error(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code) == "NONE"


def test_groups_and_transactions_of_other_coordinators_are_not_listed(world: World) -> None:
    values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": POSITIONS}
    world.ask(ApiKey.OFFSET_COMMIT, 8, **values)
    assert [each.group_id for each in world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups] == ["g"]
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    assert list(world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups) == []
    elect(world, CONSUMER_OFFSETS_TOPIC, ME, isr=(ME,))
    assert [each.group_id for each in world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups] == ["g"]


# What goes over hosted partitions


def test_the_sizes_of_logs_are_told_of_hosted_partitions(world: World) -> None:
    fill(world, "orders", b"one")
    elect(world, "orders", OTHER)
    elect(world, "orders", OTHER, index=1, replicas=(OTHER,))
    everything = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 2, topics=None).results[0].topics
    asked = [{"topic": "orders", "partitions": [0, 1]}]
    named = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 2, topics=asked).results[0].topics
    for topics in (everything, named):
        (topic,) = [each for each in topics if each.name == "orders"]
        assert [each.partition_index for each in topic.partitions] == [0]
        assert topic.partitions[0].partition_size > 0


def test_a_follower_keeps_its_records_durable_and_within_its_retention(world: World) -> None:
    create_topic(
        world, "short", retention_ms="1000", segment_bytes="100", ack_durability="os", file_delete_delay_ms="0"
    )
    fill(world, "short", b"one", b"two", b"three")
    log = world.node.hosted.leader("short", 0).log
    elect(world, "short", OTHER)
    world.advance(world.node.settings.log_retention_check_interval_ms + 2000)
    assert log.offsets.durable_end == log.offsets.end == 3
    assert log.offsets.start > 0


def test_another_brokers_registration_changes_what_metadata_says_and_touches_no_partition(world: World) -> None:
    create_topic(world, "wide", partitions=2000)
    elect(world, "orders", OTHER, replicas=(OTHER,))

    def told() -> tuple[int, int, str]:
        answer = world.ask(ApiKey.METADATA, 12, topics=[{"name": "orders"}])
        (part,) = [each for each in answer.topics[0].partitions if each.partition_index == 0]
        return part.leader_id, part.leader_epoch, error(part.error_code)

    assert told() == (OTHER, 1, "NONE")
    lines = Lines()
    assert lines.of(lambda: register(world)) < 1100
    assert told() == (OTHER, 2, "NONE")
    elect(world, "orders", OTHER)
    register(world)
    assert told() == (-1, 3, "LEADER_NOT_AVAILABLE")


def test_a_later_incarnation_of_this_broker_ends_all_its_leaderships(world: World) -> None:
    fill(world, "orders", b"one")
    waiting = world.begin(ApiKey.FETCH, 12, **fetch_values(("orders", 0, 1), max_wait_ms=30_000))
    register(world, ME)
    assert error(only(waiting.answer).error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert {error(ask_produce(world, "orders", index)) for index in range(2)} == {"NOT_LEADER_OR_FOLLOWER"}
