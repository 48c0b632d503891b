"""Three brokers that replicate a topic: leaders are written into the store by hand, as a controller would."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.checkers.content import read_batches
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.partitions import PartitionImage, partition_row
from cordwood.cluster.metadata.rows import encode_partition, partition_key
from cordwood.cluster.stores.interface import Put
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode
from cordwood.node.partitions.partition import Partition
from cordwood.node.replication.fetcher import AT_REST_MS, FEW_PARTITIONS
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

ONE, TWO, THREE = 1, 2, 3
ALL = (ONE, TWO, THREE)
TOPIC = "t"
LAG_MS = 5_000
ROUND_MS = 1_100
"""Longer than a leader waits with its answer to a follower, and a pause after a failure."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings={"replica.lag.time.max.ms": str(LAG_MS)}, machines=3).start()
    world.settle()
    yield world
    world.kill()


def create(world: World, **configs: str) -> int:
    """Creates a topic with three replicas. Returns its leader."""
    topic = {
        "name": TOPIC,
        "num_partitions": 1,
        "replication_factor": 3,
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }
    (answer,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    assert answer.error_code == 0, answer
    world.advance(ROUND_MS)
    return image(world).leader


def image(world: World, seen_by: int = ONE) -> PartitionImage:
    return world.machine_of(seen_by).node.image.topics[TOPIC].partitions[0]


def hosted(world: World, broker_id: int) -> Partition:
    partition = world.machine_of(broker_id).node.hosted.get(TOPIC, 0)
    assert partition is not None
    return partition


def log(world: World, broker_id: int) -> Log:
    return hosted(world, broker_id).log


def elect(
    world: World,
    leader: int,
    *,
    isr: tuple[int, ...] | None = None,
    seen_by: int | None = None,
    topic: str = TOPIC,
    lossy: bool = False,
) -> None:
    """Writes a new leader of the next epoch, as a controller does."""
    seen = world.machine_of(seen_by or leader).node.image
    partition = seen.topics[topic].partitions[0]
    leader_epoch = partition.leader_epoch + 1
    row = partition_row(partition)._replace(
        leader=leader,
        leader_broker_epoch=seen.broker_epochs[leader],
        leader_epoch=leader_epoch,
        isr=partition.isr if isr is None else isr,
        partition_epoch=partition.partition_epoch + 1,
        lossy_epoch=leader_epoch if lossy else partition.lossy_epoch,
    )
    put = Put(partition_key(seen.topics[topic].topic_id, 0), encode_partition(row))
    assert run(world.store.txn((), (put,))).succeeded
    world.settle()


def begin_produce(
    world: World,
    at: int,
    *values: bytes,
    key: bytes | None = None,
    acks: int = -1,
    timeout_ms: int = 30_000,
    index: int = 0,
) -> Exchange:
    batch = bytes(build_batch([(world.clock.wall_ms, key, value, []) for value in values]))
    entry = {"name": TOPIC, "partition_data": [{"index": index, "records": batch}]}
    exchange = world.connect(at).request(
        ApiKey.PRODUCE, 8, {"acks": acks, "timeout_ms": timeout_ms, "topic_data": [entry]}
    )
    world.settle()
    return exchange


def told(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return ErrorCode(exchange.answer.responses[0].partition_responses[0].error_code).name


def read(world: World, at: int, offset: int = 0) -> Any:
    values = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return world.ask_at(at, ApiKey.FETCH, 11, **values).responses[0].partitions[0]


def latest(world: World, at: int) -> tuple[str, int]:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": TOPIC, "partitions": [asked]}]
    answer = world.ask_at(at, ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics)
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code).name, partition.offset


def content(a_log: Log) -> bytes:
    """All batches of a log."""
    return b"".join(bytes(batch) for _, batch in read_batches(a_log))


def others(leader: int) -> list[int]:
    return [broker_id for broker_id in ALL if broker_id != leader]


def cut_off(world: World, broker_id: int) -> None:
    """Cuts the links of a broker to the other brokers. The store still reaches it."""
    for other in others(broker_id):
        world.links.cut(broker_id, other)
        world.links.cut(other, broker_id)


def heal(world: World, broker_id: int) -> None:
    for other in others(broker_id):
        world.links.heal(broker_id, other)
        world.links.heal(other, broker_id)


def test_records_are_acknowledged_when_all_replicas_have_them(world: World) -> None:
    leader = create(world)
    for number in range(5):
        sent = begin_produce(world, leader, b"value %d" % number)
        world.advance(10)
        assert told(sent) == "NONE"
        ends = [log(world, broker_id).offsets.durable_end for broker_id in ALL]
        assert ends == [number + 1] * 3
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    world.advance(ROUND_MS)
    assert [hosted(world, broker_id).high_watermark for broker_id in ALL] == [5, 5, 5]


def test_an_ack_of_all_replicas_waits_for_a_slow_one_and_consumers_see_nothing_before(world: World) -> None:
    leader = create(world)
    slow = others(leader)[0]
    cut_off(world, slow)
    sent = begin_produce(world, leader, b"one")
    quick = begin_produce(world, leader, b"two", acks=1)
    world.advance(100)
    assert not sent.answered
    assert told(quick) == "NONE"
    assert (read(world, leader).high_watermark, read(world, leader).records or b"") == (0, b"")
    heal(world, slow)
    world.advance(20_000)
    assert told(sent) == "NONE"
    assert read(world, leader).high_watermark == 2


def test_a_follower_that_lags_leaves_the_in_sync_set_and_comes_back(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    slow, quick = others(leader)
    cut_off(world, slow)
    sent = begin_produce(world, leader, b"one")
    world.advance(100)
    assert not sent.answered
    world.advance(2 * LAG_MS)
    assert set(image(world).isr) == {leader, quick}
    assert told(sent) == "NONE"
    heal(world, slow)
    world.advance(20_000)
    assert set(image(world).isr) == set(ALL)
    assert log(world, slow).offsets.end == 1


def test_a_waiting_ack_hears_that_too_few_replicas_are_left(world: World) -> None:
    leader = create(world, min_insync_replicas="3")
    cut_off(world, others(leader)[0])
    sent = begin_produce(world, leader, b"one")
    world.advance(2 * LAG_MS)
    assert told(sent) == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert told(begin_produce(world, leader, b"two")) == "NOT_ENOUGH_REPLICAS"
    assert image(world).elr


def test_a_history_that_diverged_is_cut_where_it_left_the_leaders(world: World) -> None:
    leader = create(world)
    begin_produce(world, leader, b"one", b"two")
    world.advance(ROUND_MS)
    cut_off(world, leader)
    lost = begin_produce(world, leader, b"lost", b"lost too", acks=1)
    assert told(lost) == "NONE"
    successor, _ = others(leader)
    world.advance(10)
    elect(world, successor)
    sent = begin_produce(world, successor, b"three")
    heal(world, leader)
    world.advance(20_000)
    assert told(sent) == "NONE"
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    assert [log(world, broker_id).offsets.end for broker_id in ALL] == [3, 3, 3]
    assert b"lost" not in content(log(world, leader))


def test_a_new_leader_does_not_tell_its_end_before_it_knows_what_is_committed(world: World) -> None:
    leader = create(world)
    begin_produce(world, leader, b"one")
    world.advance(20)
    successor, _ = others(leader)
    cut_off(world, successor)
    begin_produce(world, leader, b"two", acks=1)
    world.advance(10)
    heal(world, successor)
    world.advance(20_000)
    cut_off(world, successor)
    hosted(world, successor).role.following.high_watermark = 0  # type: ignore[union-attr]
    elect(world, successor)
    assert latest(world, successor) == ("OFFSET_NOT_AVAILABLE", -1)
    heal(world, successor)
    world.advance(20_000)
    assert latest(world, successor) == ("NONE", 2)


def test_a_follower_behind_the_leaders_log_start_begins_there(world: World) -> None:
    leader = create(world, segment_bytes="200")
    slow, _ = others(leader)
    cut_off(world, slow)
    world.advance(2 * LAG_MS)
    for number in range(6):
        begin_produce(world, leader, b"value %d" % number * 10)
        world.advance(100)
    deleted = world.ask_at(
        leader,
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 4}]}],
        timeout_ms=1000,
    )
    assert deleted.topics[0].partitions[0].low_watermark == 4
    heal(world, slow)
    world.advance(20_000)
    assert {(log(world, b).offsets.start, log(world, b).offsets.end) for b in ALL} == {(4, 6)}
    assert set(image(world).isr) == set(ALL)


def test_a_follower_begins_anew_with_the_batch_that_holds_the_leaders_log_start(world: World) -> None:
    leader = create(world, segment_bytes="200")
    slow, _ = others(leader)
    cut_off(world, slow)
    world.advance(2 * LAG_MS)
    for number in range(3):
        begin_produce(world, leader, b"value %d" % number * 10, b"and another of the same batch")
        world.advance(100)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 3}]}]
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1000)
    heal(world, slow)
    world.advance(20_000)
    assert {(log(world, b).offsets.start, log(world, b).offsets.end) for b in ALL} == {(3, 6)}
    assert set(image(world).isr) == set(ALL)


def test_deleted_records_go_on_followers_as_well_and_retention_of_a_follower_never_lowers_the_start(
    world: World,
) -> None:
    leader = create(world)
    begin_produce(world, leader, b"one", b"two")
    begin_produce(world, leader, b"three")
    world.advance(ROUND_MS)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 2}]}]
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1000)
    world.advance(2 * ROUND_MS)
    assert [log(world, broker_id).offsets.start for broker_id in ALL] == [2, 2, 2]


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_follower_that_was_down_catches_up(world: World, power_cut: bool) -> None:
    leader = create(world)
    down, _ = others(leader)
    begin_produce(world, leader, b"one")
    world.advance(ROUND_MS)
    machine = world.machine_of(down)
    if power_cut:
        machine.lose_power()
    else:
        machine.stop()
    world.advance(2 * LAG_MS)
    assert down not in image(world, leader).isr
    sent = begin_produce(world, leader, b"two")
    world.advance(100)
    assert told(sent) == "NONE"
    machine.start()
    world.advance(20_000)
    assert log(world, down).offsets.end == 2
    assert set(image(world, leader).isr) == set(ALL)


def test_the_high_watermark_is_known_after_a_restart(world: World) -> None:
    leader = create(world)
    begin_produce(world, leader, b"one")
    world.advance(ROUND_MS)
    down, _ = others(leader)
    machine = world.machine_of(down)
    machine.stop()
    machine.start()
    assert machine.node.logs.saved_high_watermark(hosted(world, down).name)[0] == 1
    assert hosted(world, down).log.offsets.end == 1
    assert hosted(world, down).high_watermark == 1


def test_a_broker_that_is_no_replica_is_refused(world: World) -> None:
    leader = create(world)
    stranger = others(leader)[0]
    seen = world.machine_of(leader).node.image
    row = partition_row(seen.topics[TOPIC].partitions[0])
    replicas = tuple(broker_id for broker_id in ALL if broker_id != stranger)
    row = row._replace(replicas=replicas, isr=replicas, partition_epoch=row.partition_epoch + 1)
    assert run(
        world.store.txn((), (Put(partition_key(seen.topics[TOPIC].topic_id, 0), encode_partition(row)),))
    ).succeeded
    world.settle()
    values = {
        "replica_state": {"replica_id": stranger, "replica_epoch": seen.broker_epochs[stranger]},
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [
            {
                "topic_id": seen.topics[TOPIC].topic_id,
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
            }
        ],
    }
    sender = Sender(stranger, world.machine_of(stranger).node.serving.key)
    exchange = world.machine_of(leader).network.connect(stranger).request(ApiKey.FETCH, 15, values, sender=sender)
    world.settle()
    assert ErrorCode(exchange.answer.responses[0].partitions[0].error_code).name == "NOT_LEADER_OR_FOLLOWER"


def test_each_replica_applies_retention_by_itself_and_starts_only_rise(world: World) -> None:
    leader = create(world, segment_bytes="200", retention_ms="60000")
    for number in range(4):
        begin_produce(world, leader, b"old %d" % number * 10)
        world.advance(50)
    world.advance(120_000)
    begin_produce(world, leader, b"new")
    world.advance(2 * world.settings.log_retention_check_interval_ms)
    starts = {log(world, broker_id).offsets.start for broker_id in ALL}
    assert min(starts) >= 4
    assert {log(world, broker_id).offsets.end for broker_id in ALL} == {5}
    world.advance(ROUND_MS)
    after = [log(world, broker_id).offsets.start for broker_id in ALL]
    assert min(after) >= min(starts)


def test_followers_compact_by_themselves_and_stay_in_sync(world: World) -> None:
    leader = create(world, segment_bytes="200", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for number in range(8):
        batch = bytes(build_batch([(world.clock.wall_ms, b"key", b"value %d" % number * 5, [])]))
        entry = {"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}
        sent = world.connect(leader).request(
            ApiKey.PRODUCE, 8, {"acks": -1, "timeout_ms": 30_000, "topic_data": [entry]}
        )
        world.advance(100)
        assert told(sent) == "NONE"
    world.advance(10 * 60_000)
    for broker_id in ALL:
        assert world.machine_of(broker_id).node.logs.clean_offset(hosted(world, broker_id).name) > 0, broker_id
        assert len(content(log(world, broker_id))) < 8 * 100
    assert set(image(world).isr) == set(ALL)
    last = {list(read_batches(log(world, broker_id)))[-1][1] for broker_id in ALL}
    assert len(last) == 1


def test_a_broker_that_stops_fetches_nothing_more(world: World) -> None:
    leader = create(world)
    stopping, _ = others(leader)
    node = world.machine_of(stopping).node
    node.stop_waiting(node.now)
    begin_produce(world, leader, b"one", acks=1)
    world.advance(ROUND_MS)
    assert log(world, stopping).offsets.end == 0


def test_followers_of_a_new_partition_do_not_wait_for_the_fetch_that_their_leader_holds(world: World) -> None:
    leader = create(world)
    successor, _ = others(leader)
    elect(world, successor)
    world.advance(ROUND_MS)
    topic = {"name": "more", "assignments": [{"partition_index": 0, "broker_ids": [successor, leader]}]}
    values = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    (answer,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=[topic | values], timeout_ms=1000).topics
    assert answer.error_code == 0, answer
    batch = bytes(build_batch([(world.clock.wall_ms, None, b"one", [])]))
    entry = {"name": "more", "partition_data": [{"index": 0, "records": batch}]}
    sent = world.connect(successor).request(
        ApiKey.PRODUCE, 8, {"acks": -1, "timeout_ms": 30_000, "topic_data": [entry]}
    )
    world.settle()
    assert told(sent) == "NONE"


def create_many(world: World, count: int, durability: str) -> int:
    """Creates a topic whose partitions all have the same leader. Returns the leader."""
    assignments = [{"partition_index": index, "broker_ids": list(ALL)} for index in range(count)]
    configs = [{"name": "ack.durability", "value": durability}]
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": configs}
    topics = [topic | {"assignments": assignments}]
    (answer,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=1000).topics
    assert answer.error_code == 0, answer
    return ONE


def named_together(world: World, leader: int) -> list[int]:
    """How many partitions each fetch names that a leader holds."""
    waiting = [fetch for partition in world.machine_of(leader).node.hosted for fetch in partition.waits.followers]
    return sorted(waiting.count(fetch) for fetch in set(waiting))


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_partitions_at_rest_are_fetched_apart_from_those_that_get_records(world: World, durability: str) -> None:
    many = FEW_PARTITIONS + 8
    leader = create_many(world, many, durability)
    for _ in range(AT_REST_MS // ROUND_MS + 3):
        world.advance(ROUND_MS)
    assert named_together(world, leader) == [many, many]
    for index, busy in ((0, 1), (0, 1), (1, 2), (0, 2), (5, 3)):
        # An ack does not wait for a fetch that the leader holds, whichever it is.
        assert told(begin_produce(world, leader, b"one", index=index)) == "NONE"
        assert named_together(world, leader) == [busy, busy, many - busy, many - busy]
        world.advance(ROUND_MS)
        assert named_together(world, leader) == [busy, busy, many - busy, many - busy]


def test_few_partitions_are_fetched_together_also_at_rest(world: World) -> None:
    leader = create_many(world, FEW_PARTITIONS, "os")
    for _ in range(AT_REST_MS // ROUND_MS + 3):
        world.advance(ROUND_MS)
    assert told(begin_produce(world, leader, b"one")) == "NONE"
    assert named_together(world, leader) == [FEW_PARTITIONS, FEW_PARTITIONS]


def test_partitions_at_rest_follow_their_next_leader(world: World) -> None:
    leader = create_many(world, FEW_PARTITIONS + 8, "os")
    for _ in range(AT_REST_MS // ROUND_MS + 3):
        world.advance(ROUND_MS)
    successor, _ = others(leader)
    elect(world, successor)
    assert told(begin_produce(world, successor, b"one")) == "NONE"
    assert [log(world, broker).offsets.end for broker in ALL] == [1, 1, 1]
    elect(world, leader)
    assert told(begin_produce(world, leader, b"two")) == "NONE"
    assert [log(world, broker).offsets.end for broker in ALL] == [2, 2, 2]


def test_a_waiting_fetch_tells_nothing_of_any_partition_once_its_broker_registers_anew(world: World) -> None:
    led = [{"partition_index": index, "broker_ids": [ONE, TWO, THREE]} for index in range(2)]
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "assignments": led}
    (created,) = world.ask_at(ONE, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    assert created.error_code == 0
    world.advance(ROUND_MS)
    for index in range(2):
        assert told(begin_produce(world, ONE, b"found", index=index)) == "NONE"
    asked = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(2)]
    values: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 30_000, "min_bytes": 1 << 20, "max_bytes": 1 << 20}
    fetch = world.begin_at(ONE, ApiKey.FETCH, 4, **values, topics=[{"topic": TOPIC, "partitions": asked}])
    world.settle()
    assert not fetch.ended
    life = world.machine_of(ONE).life
    assert life is not None
    life.node.serving.registered(life.node.serving.broker_epoch + 1, 5, world.clock.boot_ms)
    life.driver.run(lambda: life.node.registered(life.node.now))
    world.settle()
    (answered,) = fetch.answer.responses
    assert [ErrorCode(each.error_code).name for each in answered.partitions] == ["NOT_LEADER_OR_FOLLOWER"] * 2
