"""Very many groups, positions and transactional ids: listing them and looking at them by the clock takes turns."""

from collections.abc import Iterable
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.lines import busiest_turn
from tests.unit.node.speaking import batch_of, create_topic

from cordwood.groups.state.offset_records import Position, encode_key, encode_value
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.node.coordinators.coordinator_log import CoordinatorLog, S
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import State, Transaction
from cordwood.wire.apis import ApiKey

MANY = 8_000
MOST_LINES = 45_000
"""Of one turn, which are 2 to 5 ms. All entries in one go would be 60,000 lines in a list and 600,000 by the clock."""

DAY_MS = 86_400_000
A_WHILE_MS = 2_000
PARTITIONS = 4


def shard_of(world: World, log: CoordinatorLog[S], records: Iterable[tuple[bytes, bytes]]) -> S:
    """Makes these records the state of a shard, as if its log had told of them."""
    shards: list[S] = []
    log.with_shard(lambda count: 0, shards.append, lambda error: None)
    world.settle()
    (shard,) = shards
    for key, value in records:
        shard.machine.replay(key, value)
    return shard


@pytest.fixture
def topic_id(world: World) -> TopicId:
    create_topic(world, "orders", PARTITIONS)
    for key_type in (0, 1):
        world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=key_type)
    # Codecs are made when they are first needed.
    world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[])
    world.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    return world.node.image.topics["orders"].topic_id


def position(world: World, topic_id: TopicId) -> bytes:
    return encode_value(Position(5, -1, "", world.clock.wall_ms, -1, topic_id))


def many_groups(world: World, topic_id: TopicId) -> None:
    value, orders = position(world, topic_id), TopicPartition("orders", 0)
    records = ((encode_key(f"g{number}", orders), value) for number in range(MANY))
    shard_of(world, world.node.groups.shards.log, records)


def many_transactions(world: World, state: State) -> None:
    now_ms = world.clock.wall_ms
    partitions = frozenset({TopicPartition("orders", 0)}) if state is State.ONGOING else frozenset[TopicPartition]()
    each = (
        Transaction(f"t{number}", number, 0, 60_000, state, now_ms, partitions, started_ms=now_ms)
        for number in range(MANY)
    )
    shard_of(world, world.node.transactions.log, map(record_of, each))  # type: ignore[arg-type]


def test_a_list_of_very_many_groups_is_made_in_turns(world: World, topic_id: TopicId) -> None:
    many_groups(world, topic_id)
    asked = world.connect().request(ApiKey.LIST_GROUPS, 4, {"states_filter": ["Empty"]})
    assert busiest_turn(world) < MOST_LINES
    assert {group.group_id for group in asked.answer.groups} == {f"g{number}" for number in range(MANY)}


def test_a_list_of_very_many_transactions_is_made_in_turns(world: World, topic_id: TopicId) -> None:
    many_transactions(world, State.EMPTY)
    asked = world.connect().request(
        ApiKey.LIST_TRANSACTIONS, 0, {"state_filters": ["Empty"], "producer_id_filters": []}
    )
    assert busiest_turn(world) < MOST_LINES
    assert len(asked.answer.transaction_states) == MANY


def test_very_many_groups_expire_in_turns(world: World, topic_id: TopicId) -> None:
    many_groups(world, topic_id)
    world.clock.advance(world.settings.offsets_retention_minutes * 60_000 + DAY_MS)
    assert busiest_turn(world, within_ms=A_WHILE_MS) < MOST_LINES
    assert world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups == []


def test_very_many_positions_of_one_group_expire_in_turns_and_the_group_goes_with_the_next_look(
    world: World, topic_id: TopicId
) -> None:
    value = position(world, topic_id)
    records = ((encode_key("g", TopicPartition(f"t{number}", 0)), value) for number in range(MANY))
    machine = shard_of(world, world.node.groups.shards.log, records).machine
    world.clock.advance(world.settings.offsets_retention_minutes * 60_000 + DAY_MS)
    assert busiest_turn(world, within_ms=A_WHILE_MS) < MOST_LINES
    assert not machine.exists("g")


def test_positions_of_a_deleted_topic_are_forgotten_in_turns(world: World, topic_id: TopicId) -> None:
    many_groups(world, topic_id)
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    assert busiest_turn(world, within_ms=A_WHILE_MS) < MOST_LINES
    assert world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups == []


def test_very_many_transactional_ids_expire_in_turns(world: World, topic_id: TopicId) -> None:
    many_transactions(world, State.EMPTY)
    world.clock.advance(world.settings.transactional_id_expiration_ms + DAY_MS)
    assert busiest_turn(world, within_ms=A_WHILE_MS) < MOST_LINES
    asked = world.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    assert asked.transaction_states == []


@pytest.mark.stories
def test_very_many_transactions_time_out_in_turns(world: World, topic_id: TopicId) -> None:
    many_transactions(world, State.ONGOING)
    world.clock.advance(3_600_000)
    assert busiest_turn(world, within_ms=A_WHILE_MS) < MOST_LINES
    asked = world.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Ongoing", "PrepareAbort"], producer_id_filters=[])
    assert asked.transaction_states == []


def test_a_transaction_that_is_full_is_refused_more_partitions_and_can_be_aborted(world: World) -> None:
    world = World(seed=1, settings={"transaction.partitions.max": "2"}).start()
    create_topic(world, "orders", PARTITIONS)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="t", key_type=1)
    begun = world.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout_ms=60_000)
    who: dict[str, Any] = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}

    def add(*indexes: int) -> list[int]:
        answer = world.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": "orders", "partitions": list(indexes)}],
        )
        return [each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition]

    assert add(0, 1) == [0, 0]
    assert add(2) == [44]
    batch = batch_of(world, transactional=True, base_sequence=0, **who)
    produced = world.ask(
        ApiKey.PRODUCE,
        12,
        transactional_id="t",
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 3, "records": batch}]}],
    )
    assert produced.responses[0].partition_responses[0].error_code == 44
    assert world.ask(ApiKey.END_TXN, 4, transactional_id="t", committed=False, **who).error_code == 0
    assert add(2) == [0]
    world.kill()


def test_a_transactional_id_beyond_the_limit_is_refused_and_known_ones_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """Without a limit one client filled the broker's memory with ids, each kept for a week."""
    world = World(seed=1, settings={"transactional.ids.max": "2"}).start()
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="t", key_type=1)

    def begin(transactional_id: str) -> tuple[int, int]:
        answer = world.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return answer.error_code, answer.producer_epoch

    assert [begin("t0"), begin("t1"), begin("t2")] == [(0, 0), (0, 0), (44, -1)]
    assert begin("t0") == (0, 1)
    assert begin("t2") == (44, -1)
    listed = world.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    assert {each.transactional_id for each in listed.transaction_states} == {"t0", "t1"}
    assert len([each for each in caplog.records if "transactional.ids.max=2" in each.message]) == 1
    world.clock.advance(world.settings.transactional_id_expiration_ms + DAY_MS)
    world.advance(A_WHILE_MS)
    assert begin("t2") == (0, 0)
    world.kill()
