"""Transactions where epochs end, where topics keep less or more than their coordinator, and among strangers."""

from dataclasses import replace
from typing import Any

import pytest
from simulation.checkers.committed_reads import committed_values, read_committed
from simulation.transaction_game import SETTINGS
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.world import World
from tests.simulation.one_producer import NAME, Producer, described
from tests.unit.node.speaking import create_topic

from cordwood.model.coordination import transaction_partition
from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH
from cordwood.wire.apis import ApiKey

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
PARTITIONS = range(3)


def started(seed: int = 1, *, durability: str = "disk", **settings: str) -> World:
    world = World(seed, {**SETTINGS, **settings})
    world.start()
    create_topic(world, TOPIC, partitions=len(PARTITIONS), ack_durability=durability)
    return world


def seen(world: World) -> set[tuple[bool, bool]]:
    """For all partitions: whether readers of what is committed see something, and whether they see all there is."""
    found = [read_committed(world, partition) for partition in PARTITIONS]
    return {(bool(values), stable == end) for values, stable, end in found}


# The last epoch


def at_the_last_epoch(world: World) -> Producer:
    """As after thirty thousand transactions, with one that is open."""
    producer = Producer(world, timeout_ms=5000)
    log = world.node.transactions.log
    shard = log._shards[transaction_partition(NAME, len(world.node.hosted.topics[log.topic]))]
    found = shard.machine.get(NAME)
    assert found is not None
    log.write(shard, [record_of(replace(found, producer_epoch=LAST_CLIENT_EPOCH))], lambda error: None)
    world.settle()
    producer.epoch = LAST_CLIENT_EPOCH
    assert producer.write(12, b"open") is ErrorCode.NONE
    return producer


def resume(world: World, producer: Producer) -> Any:
    return world.ask(ApiKey.INIT_PRODUCER_ID, 5, **producer.who, transaction_timeout_ms=5000)


def test_nobody_is_given_the_epoch_that_fences_the_last_one() -> None:
    world = started()
    producer = at_the_last_epoch(world)
    assert ErrorCode(resume(world, producer).error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert described(world).producer_epoch == MAX_EPOCH
    assert producer.end(commit=False) is ErrorCode.PRODUCER_FENCED
    given = resume(world, producer)
    assert (ErrorCode(given.error_code), given.producer_epoch) == (ErrorCode.NONE, 0)
    assert given.producer_id != producer.producer_id
    world.kill()


@pytest.mark.parametrize("version", [4, 5])
def test_nobody_writes_or_ends_with_an_epoch_that_nobody_is_given(version: int) -> None:
    world = started()
    producer = at_the_last_epoch(world)
    world.advance(20_000)
    assert (described(world).transaction_state, described(world).producer_epoch) == ("CompleteAbort", MAX_EPOCH)
    producer.epoch = MAX_EPOCH
    assert producer.end(commit=False, version=version) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert producer.write(12, b"more", sequence=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert described(world).transaction_state == "CompleteAbort"
    world.kill()


# Topics that keep less than the coordinator, or more


def test_what_a_coordinator_in_memory_decides_is_not_torn_by_a_power_cut_in_topics_on_disk() -> None:
    for seed in range(28):
        world = started(seed, **{"log.ack.durability": "os"})
        world.advance(2000)
        producer = Producer(world)
        for partition in PARTITIONS:
            assert producer.write(12, b"a", partition=partition, sequence=0) is ErrorCode.NONE
        world.connect().request(ApiKey.END_TXN, 5, {**producer.who, "committed": True})
        for _ in range(seed % 14 + 1):
            if steps := world.steps():
                world.do(steps[0][1])
        world.lose_power()
        world.start()
        world.advance(2 * MINUTE_MS)
        assert seen(world) in ({(True, True)}, {(False, True)}), seed
        world.kill()


def test_an_end_that_the_coordinator_remembers_is_on_disk_in_topics_in_memory() -> None:
    for seed in range(10):
        world = started(seed, durability="os")
        producer = Producer(world)
        for partition in PARTITIONS:
            assert producer.write(12, b"a", partition=partition, sequence=0) is ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE
        world.settle()
        assert described(world).transaction_state == "CompleteCommit"
        world.lose_power()
        world.start()
        world.advance(2 * MINUTE_MS)
        assert seen(world) == {(True, True)}, seed
        world.kill()


# Time


@pytest.mark.parametrize("by_ms", [-24 * HOUR_MS, HOUR_MS])
def test_a_transaction_may_be_open_for_as_long_if_the_clock_is_set(by_ms: int) -> None:
    world = started()
    producer = Producer(world, timeout_ms=60_000)
    assert producer.write(12, b"a") is ErrorCode.NONE
    for _ in range(2):
        world.clock.jump(by_ms)
        world.advance(20_000)
    assert described(world).transaction_state == "Ongoing"
    world.advance(40_000)
    assert described(world).transaction_state == "CompleteAbort"
    assert Producer(world, timeout_ms=60_000).write(12, b"b", sequence=0) is ErrorCode.NONE
    world.advance(20_000)
    assert described(world).transaction_state == "Ongoing"
    world.kill()


# Strangers


def test_a_batch_of_a_stranger_does_not_get_in_beside_that_of_the_rightful_writer() -> None:
    world = started()
    producer = Producer(world)

    def batch(producer_id: int) -> bytes:
        records = [(world.clock.wall_ms, None, b"value", ())]
        return bytes(
            build_batch(
                records, producer_id=producer_id, producer_epoch=producer.epoch, base_sequence=0, transactional=True
            )
        )

    answer = world.ask(
        ApiKey.PRODUCE,
        12,
        transactional_id=NAME,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            {
                "name": TOPIC,
                "partition_data": [
                    {"index": 0, "records": batch(999_999)},
                    {"index": 0, "records": batch(producer.producer_id)},
                ],
            }
        ],
    )
    told = [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]
    assert told == [ErrorCode.INVALID_REQUEST] * 2
    assert producer.write(12, b"value") is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    world.settle()
    assert committed_values(world, 0) == [b"value"]
    world.kill()


def test_a_marker_of_a_coordinator_that_never_was_is_refused_and_keeps_the_real_one_from_nothing() -> None:
    world = started()
    producer = Producer(world)
    topics = [{"name": TOPIC, "partition_indexes": [0]}]

    def told(coordinator_epoch: int) -> ErrorCode:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": topics,
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": 0,
        }
        answer = world.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker])
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert told(5) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert told(0) is ErrorCode.NONE
    assert producer.write(12, b"value") is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    world.advance(1000)
    assert described(world).transaction_state == "CompleteCommit"
    assert committed_values(world, 0) == [b"value"]
    world.kill()
