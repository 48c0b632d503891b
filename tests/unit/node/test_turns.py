"""Wide requests are handled in steps: others are served in between, and each connection's requests keep their order."""

import inspect
import sys
from types import FrameType
from typing import Any

import pytest
from simulation.world.exchange import Connection, Exchange
from simulation.world.world import World
from tests.unit.node.lines import busiest_turn
from tests.unit.node.speaking import batch_of, create_topic, fetch_values

from cordwood.node.handlers.coordination import positions
from cordwood.node.handlers.records.produce import BATCHES_PER_STEP
from cordwood.node.loop import turns
from cordwood.wire.apis import ApiKey

PARTITIONS = 3
MOST_LINES = 25_000
"""Of one turn, for requests of some hundred batches. What is not cut grows with their number."""


def positions_asked(count: int, offset: int) -> dict[str, Any]:
    each = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [{"partition_index": number % PARTITIONS, **each} for number in range(count)]
    return {
        "group_id": "g",
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "orders", "partitions": partitions}],
    }


def commit(connection: Connection, count: int, offset: int) -> Exchange:
    return connection.request(ApiKey.OFFSET_COMMIT, 8, positions_asked(count, offset))


def committed_offsets(world: World) -> list[int]:
    asked = [{"name": "orders", "partition_indexes": list(range(PARTITIONS))}]
    answer = world.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=asked)
    return [each.committed_offset for each in answer.topics[0].partitions]


def settle_network_first(world: World) -> None:
    """What has arrived is taken before what the loop has left to do."""
    while steps := world.steps():
        world.do(steps[-1][1])


@pytest.fixture
def orders(world: World) -> World:
    create_topic(world, "orders", PARTITIONS)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    committed_offsets(world)
    return world


def test_who_asks_for_little_is_served_between_the_steps_of_who_asks_for_much(orders: World) -> None:
    wide = commit(orders.connect(), 20_000, 1)
    order: list[Exchange] = []
    wide.on_end = order.append
    narrow = orders.connect().request(ApiKey.API_VERSIONS, 0, {}, on_end=order.append)
    settle_network_first(orders)
    assert order == [narrow, wide]
    assert committed_offsets(orders) == [1] * PARTITIONS


def test_the_next_request_of_a_connection_waits_for_the_steps_of_the_one_before(orders: World) -> None:
    connection = orders.connect()
    exchanges = [commit(connection, 20_000, 1), commit(connection, 3, 2)]
    orders.settle()
    assert all(exchange.answered for exchange in exchanges)
    assert committed_offsets(orders) == [2] * PARTITIONS


def test_connections_with_wide_requests_take_turns(orders: World) -> None:
    ended: list[Exchange] = []
    long, short = (orders.connect().request(ApiKey.OFFSET_COMMIT, 8, positions_asked(n, 1)) for n in (40_000, 5_000))
    long.on_end = short.on_end = ended.append
    settle_network_first(orders)
    assert ended == [short, long]


def test_the_steps_of_a_connection_that_is_closed_are_not_taken(orders: World) -> None:
    connection = orders.connect()
    exchange = commit(connection, 40_000, 1)
    while not connection.holds:
        orders.do(orders.steps()[0][1])
    assert len(orders.node.turns) == 1
    orders.network.drop(connection)
    assert len(orders.node.turns) == 0
    orders.settle()
    assert not exchange.replies
    assert committed_offsets(orders) == [-1] * PARTITIONS


def test_positions_in_a_topic_that_is_deleted_between_two_steps_are_refused(orders: World) -> None:
    connection = orders.connect()
    exchange = commit(connection, 40_000, 1)
    while not connection.holds:
        orders.do(orders.steps()[0][1])
    kept = orders.node.image.topics.pop("orders")
    orders.settle()
    orders.node.image.topics["orders"] = kept
    assert exchange.answered
    errors = {each.error_code for each in exchange.answer.topics[0].partitions}
    assert errors == {3}


def test_a_group_that_is_asked_for_again_and_again_is_answered_once(orders: World) -> None:
    orders.settle()
    commit(orders.connect(), 3, 7)
    orders.settle()
    group = {"group_id": "g", "topics": None}
    answer = orders.ask(ApiKey.OFFSET_FETCH, 8, groups=[group] * 3000)
    assert [each.group_id for each in answer.groups] == ["g"]
    assert [each.committed_offset for each in answer.groups[0].topics[0].partitions] == [7] * PARTITIONS


def test_more_positions_than_fit_into_an_answer_are_refused_before_it_is_made(
    orders: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(orders.connect(), 3, 7)
    orders.settle()
    monkeypatch.setattr(positions, "MAX_POSITIONS_ANSWERED", 2)
    exchange = orders.begin(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}])
    assert "3 positions" in exchange.hang_up_reason


@pytest.mark.parametrize(
    ("key", "version", "values"),
    [
        (ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), max_wait_ms=0)),
        (ApiKey.FETCH, 11, fetch_values(("orders", 0, 0), max_wait_ms=0)),
        (ApiKey.METADATA, 12, {"topics": [{"name": "orders"}]}),
        (ApiKey.HEARTBEAT, 4, {"group_id": "group", "member_id": "nobody"}),
    ],
)
def test_the_usual_request_is_served_without_generators(
    orders: World, key: ApiKey, version: int, values: dict[str, Any]
) -> None:
    paused: set[str] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        ours = "/cordwood/node/" in code.co_filename or "/cordwood/wire/" in code.co_filename
        made = code.co_name == "made"  # a reader or writer that is made from a schema
        if (ours or made) and code.co_flags & inspect.CO_GENERATOR and code.co_name != "<genexpr>":
            paused.add(code.co_qualname)

    orders.ask(key, version, **values)  # its codecs are made now
    orders.connect().request(key, version, values)
    sys.setprofile(look)
    try:
        settle_network_first(orders)
    finally:
        sys.setprofile(None)
    assert not paused


def test_positions_of_many_topics_are_looked_up_in_turns_however_many_each_topic_has(orders: World) -> None:
    """One topic with one position, then topics with two: their sum is never a round number."""
    each = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    two = [{"partition_index": index, **each} for index in range(2)]
    topics = [{"name": "orders", "partitions": two[:1]}, *[{"name": "orders", "partitions": two}] * 3_000]
    values = {**positions_asked(1, 1), "topics": topics}
    asked = orders.connect().request(ApiKey.OFFSET_COMMIT, 8, values)
    assert busiest_turn(orders) < MOST_LINES
    assert asked.answered


def test_a_wide_produce_is_read_in_one_turn_and_appended_in_others(orders: World) -> None:
    batches = [{"index": number % PARTITIONS, "records": batch_of(orders)} for number in range(2 * BATCHES_PER_STEP)]
    values = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": batches}]}
    asked = orders.connect().request(ApiKey.PRODUCE, 9, values)
    log = orders.node.hosted.leader("orders", 0).replica.log
    orders.do(orders.steps()[-1][1])
    assert log.offsets.end == 0
    settle_network_first(orders)
    assert asked.answered
    assert log.offsets.end == len([batch for batch in batches if batch["index"] == 0])


def test_a_wide_produce_is_decoded_once(orders: World) -> None:
    read: list[str] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code.co_name == "decode_produce" and argument is not None:
            read.append("whole")

    batches = [{"index": number % PARTITIONS, "records": batch_of(orders)} for number in range(2 * BATCHES_PER_STEP)]
    values = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": batches}]}
    asked = orders.connect().request(ApiKey.PRODUCE, 9, values)
    sys.setprofile(look)
    try:
        settle_network_first(orders)
    finally:
        sys.setprofile(None)
    assert asked.answered
    assert read == ["whole"]


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("codec", ["producer", "zstd"])
def test_a_wide_produce_in_a_transaction_is_prepared_and_appended_in_turns(
    orders: World, codec: str, version: int
) -> None:
    count = 8 * BATCHES_PER_STEP
    create_topic(orders, "many", count, compression_type=codec)
    orders.ask(ApiKey.FIND_COORDINATOR, 2, key="t", key_type=1)
    begun = orders.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout_ms=60_000)
    who: dict[str, Any] = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    if version < 12:
        orders.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": "many", "partitions": list(range(count))}],
        )

    def send(sequence: int) -> tuple[Exchange, int]:
        batch = batch_of(orders, transactional=True, base_sequence=sequence, **who)
        data = [{"index": index, "records": batch} for index in range(count)]
        values = {"topic_data": [{"name": "many", "partition_data": data}]}
        asked = orders.connect().request(
            ApiKey.PRODUCE, version, {"transactional_id": "t", "acks": -1, "timeout_ms": 1000, **values}
        )
        return asked, busiest_turn(orders, within_ms=1000)

    send(0)  # files are made
    asked, most = send(1)
    assert {each.error_code for topic in asked.answer.responses for each in topic.partition_responses} == {0}
    assert most < MOST_LINES
    assert orders.ask(ApiKey.END_TXN, 4, transactional_id="t", committed=True, **who).error_code == 0
    orders.advance(1000)
    log = orders.node.hosted.leader("many", count - 1).replica.log
    assert log.offsets.end == 3, "two batches and the marker"


def test_while_answers_under_way_have_many_bytes_the_oldest_is_finished_before_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand connections may ask for an answer of 100 MB each."""
    monkeypatch.setattr(turns, "MADE_AT_ONCE_BYTES", 200_000)
    names = [f"{number:0>200}" for number in range(1000)]
    asked = {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]}
    exchanges = [world.connect().request(ApiKey.DESCRIBE_CONFIGS, 4, asked) for _ in range(10)]
    most = 0
    while steps := world.steps():
        world.do(steps[0][1])
        most = max(most, world.node.turns._made_bytes)
    assert all(exchange.answered for exchange in exchanges)
    assert world.node.turns._made_bytes == 0
    assert 200_000 < most < 1_200_000, "all at once they have 4,000,000"
